"""One worker process that leads records through eight durable states, and prints how many a second.

    python -m benchmarks.lifecycles URL COUNT [parcel|job|deposit] [--threads N] [--claims N] [--profile FILE]

All records are queued beforehand. Time runs from the first claim to the commit that brings the last record to its end.
"""

from __future__ import annotations

import argparse
import cProfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from benchmarks import machines
from benchmarks.peers.report import report
from benchmarks.timed import Race
from waybill import rules
from waybill.engine import Engine
from waybill.record import CommitGroup, CommitResult, Store
from waybill.rules import Machines
from waybill.runtime.server_processes import tune_process
from waybill.step import New
from waybill.stores import open_store
from waybill.worker import Worker

PORTION = 200


TABLES = {
    "parcel": lambda: (machines.parcel(),),
    "job": lambda: (machines.batch(), machines.job()),
    "deposit": machines.ingest,
}


def queue(store: Store, table: Machines, kind: str, count: int) -> None:
    """Submit them all, page by page."""
    maker = Engine(store, table).submit(New("batch", state="Processing")) if kind == "job" else None
    made = 0
    while made < count:
        some = min(PORTION, count - made)
        news = [New(kind, {"configuration": {"title": f"number {made + n}"}}) for n in range(some)]
        answer = store.commit([CommitGroup(tuple(rules.create(table, new, maker=maker, who="bench") for new in news))])[
            0
        ]
        if not isinstance(answer, CommitResult):
            raise answer
        made += some


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("count", type=int)
    parser.add_argument("kind", nargs="?", default="parcel", choices=tuple(TABLES))
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--claims", type=int, default=512)
    parser.add_argument("--profile", type=Path)
    arguments = parser.parse_args()
    tune_process()  # as `waybill work` does
    table = Machines.from_machines(TABLES[arguments.kind]())
    kind = "parcel" if arguments.kind == "parcel" else "job"
    race = Race("Arrived" if kind == "parcel" else "Completed", arguments.count, lambda: worker.stop())

    with tempfile.TemporaryDirectory() as root:
        store = open_store(arguments.url)
        started_at = time.perf_counter()
        queue(store, table, kind, arguments.count)
        creating = time.perf_counter() - started_at
        store.close()
        worker = Worker(
            lambda: cast(Store, race.enter(open_store(arguments.url))),
            table,
            host="bench",
            work_root=Path(root),
            objects=cast(Any, None),
            queues=[kind],
            threads=arguments.threads,
            max_claims=arguments.claims,
        )
        used = time.process_time()
        for _ in _profiled(arguments.profile):
            owner = time.thread_time()
            worker.run()
            owner = time.thread_time() - owner
        used = time.process_time() - used
    created_rate = arguments.count / (race.seconds + creating)
    report(arguments.count, race.seconds, created_rate=created_rate, cpu=used, owner_cpu=owner, verbs=race.verbs())


def _profiled(file: Path | None) -> Iterator[None]:
    if file is None:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    yield
    profile.disable()
    profile.dump_stats(file)


if __name__ == "__main__":
    main()
