"""Jobs whose map tasks run in a Dask cluster: the same outputs, and each once when its workers die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.apps.compute.compute_server import ComputeServer, JobClient
from tests.apps.compute.test_crashes import open_resources, put_numbers
from tests.servers.ports import free_port
from tests.servers.process import wait_until


class DaskCluster:
    """A scheduler and two workers with one thread each, in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self._folder = folder
        self._scheduler = self._start("scheduler", "--host", self.address, "--no-dashboard")
        self.workers = [self.start_worker() for _ in range(2)]

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self._folder / "dask.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *words], stdout=log, stderr=log, start_new_session=True, cwd=self._folder
            )

    def start_worker(self) -> subprocess.Popen[bytes]:
        return self._start(
            "worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "60"
        )

    def kill_worker(self) -> None:
        worker = self.workers.pop(0)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        self.workers.append(self.start_worker())

    def stop(self) -> None:
        for process in [*self.workers, self._scheduler]:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def is_running(*words: str) -> bool:
    """Whether a process runs this command, also in a sandbox."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if path.read_bytes() == b"".join(word.encode() + b"\0" for word in words):
                return True
    return False


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    running = DaskCluster(tmp_path)
    yield running
    running.stop()


def test_a_cluster_gives_the_same_and_each_output_once_when_its_workers_die(
    tmp_path: Path, cluster: DaskCluster
) -> None:
    settings = f'[app.compute]\ndask = "{cluster.address}"\n'
    with ComputeServer(tmp_path, settings=settings) as server:
        resources = open_resources(server)
        keys = put_numbers(resources, 400)
        resources.environment.close()
        jobs = JobClient(server)
        phases = [{"exec": "sleep 0.01; cat"}, {"exec": "awk '{n += $1; c += 1} END {print n, c}'", "type": "reduce"}]
        job = jobs.create(*phases)
        jobs.add(job, [*keys, "/alice/stor/none"], end=True)
        for done in (20, 150):
            while jobs.status(job)["stats"]["tasksDone"] < done:
                time.sleep(0.02)
            cluster.kill_worker()
        status = jobs.wait(job, 120)
        assert jobs.outputs(job) == [f"{400 * 401 // 2} 400\n".encode()]
        assert status["stats"] == {"errors": 1, "outputs": 1, "retries": 0, "tasks": 402, "tasksDone": 402}
        (error,) = jobs.errors(job)
        assert (error["code"], error["input"]) == ("ResourceNotFoundError", "/alice/stor/none")
        job = jobs.run([{"exec": "tr 1 x"}, {"exec": "cat; echo $MANTA_INPUT_OBJECT | grep -c stor"}], keys[:3])
        assert sorted(jobs.outputs(job)) == [b"2\n1\n", b"3\n1\n", b"x\n1\n"]
        job = jobs.create({"exec": "sleep 300.125"})
        jobs.add(job, keys[:4])
        wait_until(lambda: is_running("sleep", "300.125"), "a task to run", seconds=60)
        jobs.cancel(job)
        status = jobs.wait(job)
        assert (status["cancelled"], status["stats"]["errors"]) == (True, 4)
