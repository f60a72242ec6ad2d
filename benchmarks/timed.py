"""A store that notes how long each verb took and how often it was called; everything else is the store itself."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from waybill.record import Answer, Claimed, Committed, Group, Role, Store


class TimedStore:
    """Wraps a store. `began`: when the first portion was asked for; `ended`: when the last record had reached `last`."""

    def __init__(self, store: Store, *, last: str, expected: int, on_last: Any) -> None:
        self.store, self.last, self.expected, self.on_last = store, last, expected, on_last
        self.calls: dict[str, int] = defaultdict(int)
        self.seconds: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)
        self.began: float | None = None
        self.ended = 0.0
        self.arrived = 0

    def claim(self, roles: Sequence[Role], session: str, limit: int) -> list[Claimed]:
        asked = time.perf_counter()
        claimed: list[Claimed] = self._time("claim", self.store.claim, roles, session, limit)
        if claimed and self.began is None:
            self.began = asked
        return claimed

    def commit(self, groups: Sequence[Group]) -> list[Answer]:
        answers: list[Answer] = self._time("commit", self.store.commit, groups)
        for answer in answers:
            if isinstance(answer, Committed):
                self.arrived += sum(1 for record in answer.records if record is not None and record.state == self.last)
            else:
                raise answer  # nothing may be refused here
        if self.arrived >= self.expected and not self.ended:
            self.ended = time.perf_counter()
            self.on_last()
        return answers

    def _time(self, name: str, verb: Any, *args: Any, **options: Any) -> Any:
        began, worked = time.perf_counter(), time.thread_time()
        try:
            return verb(*args, **options)
        finally:
            self.calls[name] += 1
            self.seconds[name] += time.perf_counter() - began
            self.cpu[name] += time.thread_time() - worked

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.store, name)
        if not callable(value) or name == "interrupt":
            return value
        return lambda *args, **options: self._time(name, value, *args, **options)
