"""Several workers in one process, started and stopped as one.

A worker waits while its store writes. Where a server does the writing, another worker can use the time; where the store
is a file with one writer, it cannot. And each pool of threads that the machines name is a worker of the group, with its
own queues and threads: work that takes hours fills its pool, and mail, subscriptions and maintenance go on.

Each worker of a group has its own connection, session and share of the threads. They share nothing but the process and
the log of outages: two workers of a group are as independent as two processes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from waybill.machine import UPKEEP_POOL, WORK_POOL
from waybill.record import StoreError, WorkQueue
from waybill.rules import Machines

log = logging.getLogger("waybill.worker")

REPEAT_SECONDS = 60.0  # between two log lines of one outage

WORKERS_BY_SCHEME = {"postgresql": 2, "postgres": 2}  # on ZooKeeper the client's own work is the limit


class OutageLog:
    """What the log says of an unavailable store: when an outage begins and ends, and once a minute meanwhile, not with each
    of several tries a second. One for all workers of a process; thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unreachable_workers: set[object] = set()
        self._began_at = self._logged_at = 0.0

    def report_unavailable(self, worker: object, error: StoreError, now: float) -> None:
        with self._lock:
            is_new = not self._unreachable_workers
            self._unreachable_workers.add(worker)
            if is_new:
                self._began_at = self._logged_at = now
                log.warning("the store is unavailable: %s", error)
            elif now - self._logged_at >= REPEAT_SECONDS:
                self._logged_at = now
                log.warning("the store has been unavailable for %.0f s: %s", now - self._began_at, error)

    def report_available(self, worker: object, now: float) -> None:
        if worker not in self._unreachable_workers:
            return
        with self._lock:
            self._unreachable_workers.discard(worker)
            if not self._unreachable_workers:
                log.warning("the store is available again after %.0f s", now - self._began_at)


def split_threads(url: str, threads: int) -> list[int]:
    """How many threads each worker of the group has, by the store's URL."""
    workers = min(WORKERS_BY_SCHEME.get(urlsplit(url).scheme, 1), threads)
    return [threads // workers + (place < threads % workers) for place in range(workers)]


class PoolShare(NamedTuple):
    """The queues and the threads of one pool."""

    queues: tuple[WorkQueue, ...]
    threads: int


def split_pools(
    machines: Machines, queues: Sequence[WorkQueue], pools: Mapping[str, int], default: int
) -> list[PoolShare]:
    """Return a share for each pool that the states of these queues name, first the one of most work. Each pool is a worker
    of its own: it claims for its own threads only, so what fills one pool delays no other. `default`: the threads of a pool that
    `pools` does not name.
    """
    by_pool: dict[str, list[WorkQueue]] = {}
    for each in queues:
        state = machines[each.kind].find_state(each.state)
        by_pool.setdefault(state.pool if state is not None else WORK_POOL, []).append(each)
    names = sorted(by_pool, key=lambda name: (name != WORK_POOL, name == UPKEEP_POOL, name))
    return [PoolShare(tuple(by_pool[name]), pools.get(name, default)) for name in names]


class RunnableWorker(Protocol):
    def run(self) -> None: ...

    def stop(self) -> None: ...


class WorkerGroup:
    """The other workers of a process, for as long as the main one runs.

    If one fails, all are stopped, and `join` raises its error.
    """

    def __init__(self, main_worker: RunnableWorker, other_workers: Sequence[RunnableWorker]) -> None:
        self._main_worker, self._other_workers = main_worker, other_workers
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run_worker, args=(worker,), name=f"worker-{n}")
            for n, worker in enumerate(other_workers, 2)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for worker in self._other_workers:
            worker.stop()

    def join(self) -> None:
        self.stop()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _run_worker(self, worker: RunnableWorker) -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - raised by join
            self._errors.append(error)
            self._main_worker.stop()
