"""A store that notes how long each verb took and how often it was called; everything else is the store itself."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from waybill.record import ClaimedRecord, CommitAnswer, CommitGroup, CommitResult, Store, WorkQueue


class Race:
    """From the first claim that brings something to the commit that brings the last record to its end, over all
    connections of a worker.
    """

    def __init__(self, last: str, expected: int, on_end: Callable[[], None]) -> None:
        self.last, self.expected, self.on_end = last, expected, on_end
        self.stores: list[TimedStore] = []
        self.began = self.ended = 0.0

    def enter(self, store: Store) -> TimedStore:
        self.stores.append(TimedStore(store, self))
        return self.stores[-1]

    def start(self, at: float) -> None:
        self.began = min(self.began or at, at)

    def look(self) -> None:
        if not self.ended and sum(store.arrived for store in self.stores) >= self.expected:
            self.ended = time.perf_counter()
            self.on_end()

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def verbs(self) -> dict[str, list[float]]:
        """Of each verb: calls, seconds, seconds of CPU."""
        found: dict[str, list[float]] = {}
        for store in self.stores:
            for name, (calls, seconds, cpu) in store.verbs.items():
                had = found.get(name, [0, 0.0, 0.0])
                found[name] = [had[0] + calls, round(had[1] + seconds, 4), round(had[2] + cpu, 4)]
        return found


class TimedStore:
    def __init__(self, store: Store, race: Race) -> None:
        self.store, self.race = store, race
        self.verbs: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        self.arrived = 0

    def claim(self, queues: Sequence[WorkQueue], session: str, limit: int) -> list[ClaimedRecord]:
        started_at = time.perf_counter()
        claimed: list[ClaimedRecord] = self._time("claim", self.store.claim, queues, session, limit)
        if claimed:
            self.race.start(started_at)
        return claimed

    def commit(self, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        answers: list[CommitAnswer] = self._time("commit", self.store.commit, groups)
        last, arrived = self.race.last, 0
        for answer in answers:
            if not isinstance(answer, CommitResult):
                raise answer  # nothing may be refused here
            if answer.records and (record := answer.records[0]) is not None and record.state == last:
                arrived += 1
        if arrived:
            self.arrived += arrived
            self.race.look()
        return answers

    def _time(self, name: str, verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
        began, worked = time.perf_counter(), time.thread_time()
        try:
            return verb(*args, **options)
        finally:
            noted = self.verbs[name]
            noted[0] += 1
            noted[1] += time.perf_counter() - began
            noted[2] += time.thread_time() - worked

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.store, name)
        if not callable(value) or name == "interrupt":  # which other threads call
            return value
        return lambda *args, **options: self._time(name, value, *args, **options)
