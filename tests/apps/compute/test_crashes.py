"""What a crash leaves: every key counted once, whatever is killed and wherever; files that are complete, or not there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.apps.compute.compute_server import ComputeServer, JobClient
from tests.budget import Budget
from tests.servers.postgres import PostgresServer
from waybill import config
from waybill.apps.compute.application import APPLICATION
from waybill.apps.compute.entries import Entry
from waybill.apps.compute.jobs import Jobs
from waybill.apps.compute.manifest import check_manifest
from waybill.apps.compute.paths import parse_path
from waybill.apps.compute.resources import ComputeResources
from waybill.apps.compute.storage import ObjectHeaders, now_ms
from waybill.environment import Environment
from waybill.record import Ref
from waybill.testing import StepTester

FILES = ("in.txt", "out.txt", "err.txt", "fail.txt", "tasks.txt", "metrics.json", "job.json")


def put_numbers(resources: ComputeResources, count: int) -> list[str]:
    """Objects that hold the numbers from 1 on, all in one stored content, as outputs of tasks are."""
    folder = parse_path("/alice/stor/numbers")
    resources.storage.make_directories(folder)
    lines = [f"{number}\n".encode() for number in range(1, count + 1)]
    content, start, entries = resources.storage.store(lines), 0, []
    for number, line in enumerate(lines, 1):
        entries.append(Entry(f"{number:06d}", "object", content.name, start, f"{number}", len(line), "", "text/plain", 2,
                             {}, now_ms()))  # fmt: skip
        start += len(line)
    for at in range(0, count, 1000):
        with resources.storage.open_entries() as tables:
            tables.put_many(folder, entries[at : at + 1000], now=now_ms())
    return [str(folder.child(entry.name)) for entry in entries]


def open_resources(server: ComputeServer) -> ComputeResources:
    given = {"data": server.data, "store": server.store or None}
    environment = Environment.from_config(config.load(env={}, overrides=given))
    found: ComputeResources = environment.resources_of("compute")
    return found


def wait_for_tasks(jobs: JobClient, job: str, count: int) -> None:
    while jobs.status(job)["stats"]["tasksDone"] < count:
        time.sleep(0.02)


@pytest.mark.timeout(250)
def test_a_sum_counts_each_input_once_while_everything_is_killed(
    tmp_path: Path, fast_postgres_server: PostgresServer, budget: Budget
) -> None:
    """The server with its worker, two more worker processes, and one that only archives: killed in turn, all the time."""
    count = budget.pick(small=3000, long=10_000)
    server = ComputeServer(tmp_path, store=fast_postgres_server.create_database())
    workers: list[subprocess.Popen[bytes]] = []

    def start_worker(*queues: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "waybill", "work", "--data", str(server.data), "--store", server.store]
        words += [word for queue in queues for word in ("--queue", queue)]
        with server.log.open("ab") as log:
            return subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)

    with server:
        resources = open_resources(server)
        keys = put_numbers(resources, count)
        jobs = JobClient(server)
        workers = [start_worker(), start_worker("compute-job")]
        try:
            job = jobs.create({"exec": "cat"}, {"exec": "awk '{n += $1; c += 1} END {print n, c}'", "type": "reduce"})
            jobs.add(job, keys[: count // 2])
            for round_number in range(3):
                wait_for_tasks(jobs, job, (round_number + 1) * count // 8)
                if round_number == 1:
                    server.kill()
                    server.start()
                else:
                    os.killpg(workers[0].pid, signal.SIGKILL)
                    workers[0].wait()
                    workers[0] = start_worker()
            jobs.add(job, keys[count // 2 :], end=True)
            while jobs.status(job)["stats"]["tasksDone"] < count + 1:
                time.sleep(0.05)
            os.killpg(workers[1].pid, signal.SIGKILL)  # perhaps in the middle of the archive
            workers[1].wait()
            status = jobs.wait(job, 120)
            assert jobs.outputs(job) == [f"{count * (count + 1) // 2} {count}\n".encode()]
            assert status["stats"] == {
                "errors": 0,
                "outputs": 1,
                "retries": 0,
                "tasks": count + 1,
                "tasksDone": count + 1,
            }
            assert sorted(server.get(jobs.path(job, "in.txt")).body.decode().splitlines()) == keys
            tasks = [json.loads(line) for line in server.get(jobs.path(job, "tasks.txt")).body.splitlines()]
            assert sorted(task["key"] for task in tasks if task["key"].startswith("/alice/stor")) == keys
        finally:
            for worker in workers:
                if worker.poll() is None:
                    os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
            resources.environment.close()


class CrashedJob:
    """One job on the model store, all of whose steps run in the thread of the test."""

    def __init__(self, folder: Path, phases: list[dict[str, Any]], contents: list[bytes]) -> None:
        self.tester = StepTester(
            APPLICATION, folder, settings={"sandbox.mode": "unsandboxed"}, app={"slots": 1, "garbage_seconds": 0}
        )
        self.keys = []
        for number, data in enumerate(contents):
            self.keys.append(f"/alice/stor/k{number}")
            self.resources.storage.put(parse_path(self.keys[-1]), [data], ObjectHeaders())
        jobs = self.jobs
        self.job = jobs.make("alice", check_manifest({"phases": phases}), who="alice")
        row = jobs.find("alice", self.job)
        jobs.add_input(row, (f"{key}\n".encode() for key in self.keys))
        jobs.end_input(row)

    @property
    def resources(self) -> ComputeResources:
        found: ComputeResources = self.tester.resources
        return found

    @property
    def jobs(self) -> Jobs:
        return Jobs(self.resources, lambda: nullcontext(self.tester.engine))

    def read(self, name: str) -> list[str]:
        storage = self.resources.storage
        with storage.open(storage.get(parse_path(f"/alice/jobs/{self.job}/{name}"))) as body:
            return b"".join(body).decode().splitlines()

    def read_output(self) -> bytes:
        storage, found = self.resources.storage, b""
        for key in self.read("out.txt"):
            with storage.open(storage.get(parse_path(key))) as body:
                found += b"".join(body)
        return found


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """In memory, since everything in it is put back a hundred times; users of a sandbox may pass through it."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None, prefix="waybill-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # the crash reaches a feeder's thread
@pytest.mark.parametrize(
    ("phases", "expected", "tasks"),
    [
        ([{"exec": "sed s/a/b/"}], [b"ba\n", b"bb\n"], 2),
        ([{"exec": "wc -l", "type": "reduce"}], [b"2\n"], 1),
    ],
    ids=["map", "reduce"],
)  # fmt: skip
def test_a_job_is_whole_wherever_its_worker_crashes(
    memory_folder: Path, phases: list[dict[str, Any]], expected: list[bytes], tasks: int
) -> None:
    crashed = CrashedJob(memory_folder, phases, [b"aa\n", b"ab\n"])
    with crashed.tester as tester:
        points = 0
        for point in tester.crash_at_every_call(Ref("compute-job", crashed.job), "Done"):
            points += 1
            assert sorted(crashed.read_output().splitlines(keepends=True)) == expected, point
            assert crashed.read("in.txt") == crashed.keys, point
            assert (crashed.read("err.txt"), crashed.read("fail.txt")) == ([], []), point
            status = json.loads("".join(crashed.read("job.json")))
            assert (status["stats"]["tasks"], status["stats"]["tasksDone"]) == (tasks, tasks), point
            assert len(crashed.read("tasks.txt")) == tasks, point
            # Nothing is left of the tasks but the files, and every stored byte has its entry, or is noted as garbage.
            objects = tester.environment.objects
            assert list(objects.list(crashed.resources.job_prefix(crashed.job))) == [], point
            with crashed.resources.connections.open() as tables:
                assert tables.query("logs", job=crashed.job) == [], point
        assert points > 50
