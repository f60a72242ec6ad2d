"""What a process reads over its wire: every question is a call like any other, and changes nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from waybill.record import MAX_PAGE, Ask, Finding, HeldKey, Idle, Line, Page, Record, Ref, SessionInfo, Store

T = TypeVar("T")
LITTLE = 0.3  # is at stake where an idle worker looks around


class Readings(ABC):
    store: Store

    @abstractmethod
    def _asked(self, verb: str, call: Callable[[], T], writes: bool = False, weight: float = 1.0) -> T:
        """The answer to one call, if it arrives."""

    def now(self) -> float:
        return self.store.now()

    def get(self, kind: str, id: str) -> Record:
        return self._asked("get", lambda: self.store.get(kind, id))

    def find(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        owner: str | None = None,
        after: int | None = None,
        newest: bool = False,
        limit: int = 100,
        docs: bool = False,
    ) -> Page:
        return self._asked(
            "find",
            lambda: self.store.find(
                kind, state=state, parent=parent, owner=owner, after=after, newest=newest, limit=limit, docs=docs
            ),
        )

    def requested(self, kind: str, request: str) -> Record:
        return self._asked("requested", lambda: self.store.requested(kind, request))

    def tally(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]:
        return self._asked("tally", lambda: self.store.tally(kind, parent=parent))

    def open_parents(self, refs: Sequence[Ref]) -> set[Ref]:
        return self._asked("open_parents", lambda: self.store.open_parents(refs))

    def history(self, kind: str, id: str) -> list[Line]:
        return self._asked("history", lambda: self.store.history(kind, id))

    def sessions(self) -> list[SessionInfo]:
        return self._asked("sessions", self.store.sessions)

    def asks(self, limit: int = 100) -> list[Ask]:
        return self._asked("asks", lambda: self.store.asks(limit))

    def held_keys(self, *, after: str = "", limit: int = MAX_PAGE) -> list[HeldKey]:
        return self._asked("held_keys", lambda: self.store.held_keys(after=after, limit=limit))

    def marks(self) -> dict[str, str]:
        return self._asked("marks", self.store.marks, weight=LITTLE)

    def idle_parents(self, *, after: str = "", limit: int = MAX_PAGE) -> Idle:
        return self._asked("idle_parents", lambda: self.store.idle_parents(after=after, limit=limit))

    def check(self) -> Iterator[Finding]:
        return iter(self._asked("check", lambda: list(self.store.check())))
