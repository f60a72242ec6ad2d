"""Deposits by a real worker process, from the submission to the batch's completion, on SQLite and a folder of objects.

    python -m benchmarks.deposits FOLDER PAYLOAD_URL TYPE COUNT [--threads N] [--processes N]

TYPE is that of the submission: single-file-batch-manifest, object-manifest. `waybill work` is started first, with its
settings as they are by default (but that loopback may be fetched from); the clock runs from the submission to the
batch's Completed, which is after its report. Printed: objects a second, and the most memory that the worker's processes
had, together.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import cast

from benchmarks import ROOT
from benchmarks.peers.report import report
from waybill import config
from waybill.apps.ingest import service
from waybill.apps.ingest.application import APPLICATION
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.submission import Submission, payload_type_of
from waybill.engine import Engine
from waybill.environment import Environment

SETTINGS = '[app.ingest.fetch]\nallow = ["127.0.0.0/8"]\n[app.ingest.disk_space]\nkeep_free = 0\n'
PROFILE, OWNER, COLLECTION = "bench", "ark:/99999/fk4owner", "ark:/99999/fk4bench"
WHO = "bench"
PATIENCE = 60.0  # seconds that the worker may take to end
LOOK = 0.05  # seconds between two looks at the batch


def prepare_environment(folder: Path) -> Environment:
    """A data folder with its settings, a collection and a profile."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / config.CONFIG_FILE).write_text(SETTINGS)
    environment = Environment.from_config(config.load(env={}, overrides={"data": folder}), [APPLICATION])
    with closing(environment.open_store()) as store:
        engine = environment.make_engine(store)
        service.COLLECTIONS.put(engine, {"mnemonic": "bench", "ark": COLLECTION, "name": "Measured"}, who=WHO)
        service.PROFILES.put(
            engine, {"name": PROFILE, "owner": OWNER, "collections": [COLLECTION], "description": "Measured."}, who=WHO
        )
    return environment


@contextmanager
def working(folder: Path, threads: int | None, processes: int) -> Iterator[subprocess.Popen[str]]:
    """`waybill work`, from the moment that all its processes say so."""
    more = ["--processes", str(processes), *(["--threads", str(threads)] if threads else [])]
    command = [sys.executable, "-m", "waybill", "work", "--data", str(folder), *more]
    with (
        open(folder / "work.log", "w") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as worker,
    ):
        try:
            while (folder / "work.log").read_text().count("Working as") < processes:
                if worker.poll() is not None:
                    raise SystemExit((folder / "work.log").read_text())
                time.sleep(LOOK)
            yield worker
        finally:
            worker.terminate()
            try:
                worker.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                worker.kill()
                raise


def family(pid: int) -> list[int]:
    """A process and those that it has started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended since it was listed
            found += map(int, (task / "children").read_text().split())
    return found


def memory(pid: int) -> int:
    """The most bytes that each process has had, all together."""
    files = [Path(f"/proc/{each}/status").read_text().splitlines() for each in family(pid)]
    return sum(int(line.split()[1]) * 1024 for lines in files for line in lines if line.startswith("VmHWM"))


def cpu(pid: int) -> float:
    """Seconds of CPU that they have used."""
    stats = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in family(pid)]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


def completed(engine: Engine, batch: str, worker: subprocess.Popen[str]) -> None:
    while (record := engine.store.get("batch", batch)).state != "Completed":
        if record.state == "Failed" or worker.poll() is not None:
            raise SystemExit(f"The batch is {record.state}: {record.message}; the worker {worker.poll()}.")
        time.sleep(LOOK)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("url")
    parser.add_argument("type", type=payload_type_of)
    parser.add_argument("count", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    environment = prepare_environment(arguments.folder)
    with (
        closing(environment),
        closing(environment.open_store()) as store,
        working(arguments.folder, arguments.threads, arguments.processes) as worker,
    ):
        engine, resources = environment.make_engine(store), cast(IngestResources, environment.resources_of("ingest"))
        used, began = cpu(worker.pid), time.perf_counter()
        accepted = service.submit_deposit(
            engine, resources, Submission(profile=PROFILE, url=arguments.url, type=arguments.type), who=WHO
        )
        completed(engine, accepted.batch.id, worker)
        seconds = time.perf_counter() - began
        counts = store.count_by_state("job")
        if counts.get("Completed") != arguments.count:
            raise SystemExit(f"{arguments.count} objects were submitted; the jobs are {counts}.")
        peak, used = memory(worker.pid), cpu(worker.pid) - used
    report(arguments.count, seconds, megabytes=peak / 1e6, cpu=used)


if __name__ == "__main__":
    main()
