"""Slots: how many tasks run at once in this process, and whose turn it is.

A step asks for a slot for its chunk and gives it back after a few seconds, so that the fair queue decides who is next.
One slot beyond the cores is kept for jobs that have none running: the first task of a new job starts at once, however
long the others are. Of those who wait, the user with the fewest slots is first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

WATCH_INTERVAL = 0.2  # seconds between two looks at whether a task must stop


@dataclass(eq=False)
class SlotLease:
    job: str
    owner: str
    must_stop: Callable[[], bool]  # the worker says so
    stop: threading.Event = field(default_factory=threading.Event)  # ends the running command
    is_cancelled: bool = False


class Slots:
    """`is_job_cancelled` is asked by the watching thread, for each job that has a slot."""

    def __init__(self, count: int, is_job_cancelled: Callable[[str], bool]) -> None:
        self.count = count
        self._is_job_cancelled = is_job_cancelled
        self._changed = threading.Condition()
        self._leases: list[SlotLease] = []
        self._waiting: list[SlotLease] = []
        self._reducers: list[SlotLease] = []
        self._watcher: threading.Thread | None = None
        self._closed = threading.Event()

    @contextmanager
    def take(self, job: str, owner: str, must_stop: Callable[[], bool], timeout: float) -> Iterator[SlotLease | None]:
        """A slot, or None when there was none in time."""
        lease = SlotLease(job, owner, must_stop)
        deadline = time.monotonic() + timeout
        with self._changed:
            self._waiting.append(lease)
            while not self._may_take(lease):
                left = deadline - time.monotonic()
                if left <= 0 or must_stop():
                    break
                self._changed.wait(min(left, WATCH_INTERVAL))
            self._waiting.remove(lease)
            is_taken = self._may_take(lease)
            if is_taken:
                self._leases.append(lease)
            self._changed.notify_all()
        if not is_taken:
            yield None
            return
        self._watch()
        try:
            yield lease
        finally:
            self._give_back(lease)

    @contextmanager
    def watch_only(self, job: str, owner: str, must_stop: Callable[[], bool]) -> Iterator[SlotLease]:
        """A lease that takes no slot, for a reducer: it is watched all the same."""
        lease = SlotLease(job, owner, must_stop)
        with self._changed:
            self._reducers.append(lease)
        self._watch()
        try:
            yield lease
        finally:
            with self._changed:
                self._reducers.remove(lease)

    def _give_back(self, lease: SlotLease) -> None:
        with self._changed:
            self._leases.remove(lease)
            self._changed.notify_all()

    def _may_take(self, lease: SlotLease) -> bool:
        running = len(self._leases)
        if all(other.job != lease.job for other in self._leases):
            return running <= self.count
        if running >= self.count:
            return False
        mine = self._count_of(lease.owner)
        return not any(self._count_of(other.owner) < mine for other in self._waiting if other is not lease)

    def _count_of(self, owner: str) -> int:
        return sum(lease.owner == owner for lease in self._leases)

    def is_idle_slot(self) -> bool:
        """Whether a slot is free that nobody waits for: then a chunk can be divided."""
        with self._changed:
            return len(self._leases) < self.count and not self._waiting

    # --- watching

    def _watch(self) -> None:
        with self._changed:
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._run_watcher, name="waybill-task-watch", daemon=True)
                self._watcher.start()

    def _run_watcher(self) -> None:
        while not self._closed.wait(WATCH_INTERVAL):
            with self._changed:
                leases = [*self._leases, *self._reducers]
                if not leases:
                    self._watcher = None
                    return
            cancelled = {job for job in {lease.job for lease in leases} if self._is_job_cancelled(job)}
            for lease in leases:
                if lease.job in cancelled:
                    lease.is_cancelled = True
                    lease.stop.set()
                elif lease.must_stop():
                    lease.stop.set()

    def close(self) -> None:
        self._closed.set()
