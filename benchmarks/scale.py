"""What a long queue costs: claim and commit with 1,000 and with 1,000,000 queued, and pages and counts of a million
on SQLite.

    scale.sqlite       growth of claim + commit; the counts and the first page
    scale.postgres     growth of claim + commit

Both queues stand at the same time and are measured in turns, so that a slow minute of the machine slows down both.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

from tests.servers.postgres import PostgresServer

from benchmarks.disk import Disk
from benchmarks.effort import Effort
from benchmarks.engine import POSTGRES
from benchmarks.figure import Figure
from benchmarks.rounds import child

SHORT, LONG = 1_000, 1_000_000


def sqlite(effort: Effort) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder:
        yield from _grow(
            "scale.sqlite", effort, f"sqlite:///{folder}/short.db", f"sqlite:///{folder}/long.db", pages=True
        )


def postgres(effort: Effort) -> Iterator[Figure]:
    with PostgresServer(settings=POSTGRES) as server:
        yield from _grow("scale.postgres", effort, server.create_database(), server.create_database(), pages=False)


def _grow(name: str, effort: Effort, short: str, long: str, *, pages: bool) -> Iterator[Figure]:
    queued = effort.pick((SHORT, LONG), (200, 1_000))
    disk = Disk.of(effort)
    disk.note()
    found = child("benchmarks.queues", short, queued[0], long, queued[1], effort.pick(40, 5))
    for size in ("one", "ten"):
        low, high = found[f"{size} short"], found[f"{size} long"]
        note = f"medians of claim + commit of {size}; {queued[1]:,} queued beside {queued[0]:,}, filled at {found['filled']:,.0f}/s"
        yield Figure(f"{name}.{size}", high, "ms", low, 1.5, "ratio at most", note)
    if pages:
        for verb in ("counts", "first page", "newest page"):
            note = f"the slowest of {found['looks']}, {queued[1]:,} records"
            yield Figure(f"{name}.{verb.replace(' ', '-')}", found[verb], "ms", goal=50, sense="at most", note=note)
    disk.note()
    yield disk.figure(name)
