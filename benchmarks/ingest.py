"""Deposits a second, from submission to completion, beside the least that anybody could do for them.

    ingest.small       objects of one 4 KiB file: a bare loop that makes the same requests and writes the same files with the same syncs
    ingest.large       one object of eight files of 256 MiB: `curl --parallel`, then `sha256sum`, then one copy
    ingest.zookeeper   jobs of ingest through their states on Merritt's layout: a client that makes the Java library's requests

The worker is a real `waybill work` on SQLite and a folder; the files come from one web server on this machine, for all
alike.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.servers.zookeeper import ZooKeeperServer

from benchmarks.disk import Disk
from benchmarks.effort import Effort
from benchmarks.figure import Figure
from benchmarks.rounds import Contestant, Results, child, rounds
from benchmarks.web import Web, fill

OURS, ALONE, BARE, CURL = "waybill", "one process", "bare loop", "curl"
DEPOSITS, LOOP, FETCH = "benchmarks.deposits", "benchmarks.peers.bare_loop", "benchmarks.peers.curl"
LIFECYCLES, MERRITT = "benchmarks.lifecycles", "benchmarks.peers.merritt_requests"
FILES, OBJECT = "single-file-batch-manifest", "object-manifest"

CORES = os.cpu_count() or 1  # worker processes for small objects, each with its threads as by default
THREADS = (4, 8)  # of the bare loop, which counts with the better one; what waits for the disk costs no CPU
MEMORY = 200.0  # MB that a worker may have, with all its processes
GROWTH = 1.25  # times its memory with a tenth of the objects
PARALLEL = 4  # files of one object, as by default


def small(effort: Effort) -> Iterator[Figure]:
    count = effort.pick(10_000, 12)
    few = max(1, count // 10)
    disk = Disk.of(effort)
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder, Web() as url:
        place = _places(Path(folder))
        # Not measured: what one object looks like in storage, and how much memory a tenth of the objects takes.
        first = place()
        before = child(DEPOSITS, first, f"{url}/small/0-{few}.checkm", FILES, few, "--processes", CORES)
        sample = next(Path(first).glob("objects/ocfl/*/*/*/inventory.json")).parent
        results = rounds(
            [
                Contestant(
                    OURS, DEPOSITS, place, (f"{url}/small/0-{count}.checkm", FILES, count, "--processes", CORES)
                ),
                *(Contestant(f"{BARE} {threads}", LOOP, place, (url, count, sample, threads)) for threads in THREADS),
                Contestant(ALONE, DEPOSITS, place, (f"{url}/small/0-{few}.checkm", FILES, few)),
                Contestant(CURL, FETCH, place, (url, count, max(THREADS))),
            ],
            effort.pick(3, 1),
            disk.note,
        )
    ours, peak = results[OURS], results[OURS].best("megabytes")
    bare, curl = max((results[f"{BARE} {threads}"] for threads in THREADS), key=Results.median), results[CURL]
    noted = f"{count:,} objects, {CORES} processes; {_rounds(ours)}; CPU for an object {_cpu(ours)} and {_cpu(bare)} ms"
    yield Figure("ingest.small.bare-loop", ours.median(), "objects/s", bare.median(), 0.5, note=noted)
    alone = f"one process, {few:,} objects"
    yield Figure("ingest.small.alone", results[ALONE].median(), "objects/s", bare.median(), note=alone)
    yield Figure(
        "ingest.small.curl", ours.median(), "objects/s", curl.median(), note="it stores, syncs and records nothing"
    )
    yield Figure(
        "ingest.small.memory",
        peak,
        "MB",
        goal=MEMORY,
        sense="at most",
        note="the most that each process had, all together",
    )
    grown = f"{count:,} objects beside {few:,}"
    yield Figure("ingest.small.memory-growth", peak, "MB", before["megabytes"], GROWTH, "ratio at most", note=grown)
    yield disk.figure("ingest.small")


def large(effort: Effort) -> Iterator[Figure]:
    count, size = 8, effort.pick(256 * 2**20, 2**18)
    total = count * size / 1e6
    disk = Disk.of(effort)
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder:
        fill(Path(folder) / "web", count, size)
        with Web(Path(folder) / "web") as url:
            place = _places(Path(folder), afresh=True)
            results = rounds(
                [
                    Contestant(OURS, DEPOSITS, place, (f"{url}/large.checkm", OBJECT, 1)),
                    Contestant(CURL, FETCH, place, (url, count, PARALLEL, "digests", "copy", "sync")),
                    Contestant("unsynced", FETCH, place, (url, count, PARALLEL, "digests", "copy")),
                ],
                effort.pick(3, 1),
                disk.note,
            )
    speed = total / results[OURS].median("seconds")
    peer, unsynced = (total / results[name].median("seconds") for name in (CURL, "unsynced"))
    noted = f"{count} files of {size / 2**20:g} MiB, {PARALLEL} at a time; the copy is synced on both sides; {_rounds(results[OURS])}"
    yield Figure("ingest.large.curl", speed, "MB/s", peer, 0.9, note=noted)
    yield Figure(
        "ingest.large.curl-unsynced", speed, "MB/s", unsynced, note="what was copied may be lost with the power"
    )
    yield Figure("ingest.large.memory", results[OURS].best("megabytes"), "MB", goal=MEMORY, sense="at most")
    yield disk.figure("ingest.large")


def zookeeper(effort: Effort) -> Iterator[Figure]:
    with ZooKeeperServer() as server:
        disk = Disk.of(effort)
        few = effort.pick(40, 4)
        results = rounds(
            [
                Contestant(OURS, LIFECYCLES, server.create_chroot, (effort.pick(2_000, 20), "deposit")),
                Contestant("one session", MERRITT, server.create_chroot, (few, 1)),
                Contestant("four sessions", MERRITT, server.create_chroot, (few, 4)),
            ],
            effort.pick(5, 1),
            disk.note,
        )
    ours, unit = results[OURS].median("created_rate"), "lifecycles/s"
    one, four = results["one session"], results["four sessions"]
    requests = f"{one.median('writes'):.0f} writes and {one.median('reads'):.0f} reads for a lifecycle"
    yield Figure(
        "ingest.zookeeper.merritt",
        ours,
        unit,
        one.median(),
        50,
        note=f"making them included; {requests}; {_rounds(one)}",
    )
    yield Figure(
        "ingest.zookeeper.merritt-four",
        ours,
        unit,
        four.median(),
        note="the same with four sessions; our worker has one",
    )
    yield disk.figure("ingest.zookeeper")


def _rounds(results: Results) -> str:
    return f"medians of {len(results.reports)} rounds"


def _cpu(results: Results) -> str:
    return f"{1000 * results.median('cpu') / results.reports[0]['count']:.1f}"


def _places(folder: Path, *, afresh: bool = False) -> Callable[[], str]:
    """A new folder for each; `afresh`: the one before is removed, since they are large."""
    numbers = itertools.count(1)

    def place() -> str:
        number = next(numbers)
        if afresh:
            shutil.rmtree(folder / f"run-{number - 1}", ignore_errors=True)
        return str(folder / f"run-{number}")

    return place


PARTS = {"ingest.small": small, "ingest.large": large, "ingest.zookeeper": zookeeper}
