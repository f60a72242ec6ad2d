"""How soon a submitted record starts, and what a worker costs that has nothing to do.

latency.STORE.start     from before the submit in one process to the first line of the step in another; median
latency.STORE.p95       the same, the slowest but one in twenty
latency.STORE.idle      seconds of CPU that an idle worker needs in a minute
latency.STORE.calls     calls to the store that it makes in a minute
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from tests.servers.postgres import PostgresServer
from tests.servers.zookeeper import ZooKeeperServer

from benchmarks import ROOT, machines
from benchmarks.disk import Disk
from benchmarks.effort import Effort
from benchmarks.engine import POSTGRES
from benchmarks.figure import Figure
from waybill.engine import Engine
from waybill.rules import Machines
from waybill.step import New
from waybill.stores import open_store

PATIENCE = 60.0  # seconds for the worker to end
IDLE_CPU = 0.6  # seconds of a minute: one percent of a core
IDLE_CALLS = 300  # five a second are no storm
PAUSE = 0.11  # between two submits: the worker is asleep again, and not in step with anybody's interval


def sqlite(effort: Effort) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder:
        yield from _measure("latency.sqlite", f"sqlite:///{folder}/store.db", effort, goal=100)


def postgres(effort: Effort) -> Iterator[Figure]:
    with PostgresServer(settings=POSTGRES) as server:
        yield from _measure("latency.postgres", server.create_database(), effort, goal=50)


def zookeeper(effort: Effort) -> Iterator[Figure]:
    with ZooKeeperServer() as server:
        yield from _measure("latency.zookeeper", server.create_chroot(), effort, goal=50)


def _measure(name: str, url: str, effort: Effort, goal: float) -> Iterator[Figure]:
    submits, seconds = effort.pick(60, 4), effort.pick(60.0, 1.0)
    disk = Disk.of(effort)
    disk.note()
    store = open_store(url)
    engine = Engine(store, Machines.from_machines((machines.parcel(),)))
    with tempfile.TemporaryDirectory() as root, Worker(url, root) as worker:
        waits = [worker.start(engine) for _ in range(submits + 1)][1:]
        note = f"{submits} submits, {min(waits):.1f} to {max(waits):.1f} ms"
        yield Figure(f"{name}.start", statistics.median(waits), "ms", goal=goal, sense="at most", note=note)
        yield Figure(f"{name}.p95", sorted(waits)[int(len(waits) * 0.95)], "ms", goal=goal, sense="at most")
        found = worker.idle(seconds)
        minutes = seconds / 60
        calls: dict[str, int] = found["calls"]
        note = f"CPU of a worker that had nothing to do for {seconds:.0f} s"
        yield Figure(f"{name}.idle", found["cpu"] / minutes, "s/min", goal=IDLE_CPU, sense="at most", note=note)
        note = f"in {seconds:.0f} s: {' '.join(f'{verb} {count}' for verb, count in calls.items())}"
        yield Figure(
            f"{name}.calls", sum(calls.values()) / minutes, "calls/min", goal=IDLE_CALLS, sense="at most", note=note
        )
    store.close()
    disk.note()
    yield disk.figure(name)


class Worker:
    """A worker in a process of its own, which speaks lines of JSON; it ends when its input is closed."""

    def __init__(self, url: str, root: str) -> None:
        command = [sys.executable, "-m", "benchmarks.waiting", url, root]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def start(self, engine: Engine) -> float:
        """Submit one; milliseconds until its step has begun. Both processes read the same clock."""
        time.sleep(PAUSE)
        began = time.monotonic()
        record = engine.submit(New("parcel"), who="bench")
        return float(self._line("id", record.id)["at"] - began) * 1000

    def idle(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return self._line("cpu")

    def _line(self, name: str, value: object = None) -> dict[str, Any]:
        """The next that has this name (and this value)."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            found: dict[str, Any] = json.loads(line)
            if name in found and value in (None, found[name]):
                return found
        raise SystemExit(f"The worker ended before its time, with code {self.process.wait()}.")
