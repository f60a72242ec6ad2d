"""The reads of a process: each is a call on which a fault may be injected, and changes nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from waybill.record import (
    MAX_PAGE,
    ActionRequest,
    Finding,
    HistoryEntry,
    IdleParents,
    OwnedLock,
    Page,
    Record,
    Ref,
    SessionInfo,
    Store,
    Visibility,
)

T = TypeVar("T")
LOW_WEIGHT = 0.3  # of a fault where an idle worker polls


class FaultInjectingReads(Store, ABC):
    """The read half of `FaultInjectingStore`."""

    store: Store

    @abstractmethod
    def _call_store(self, method: str, call: Callable[[], T], writes: bool = False, weight: float = 1.0) -> T:
        """Make one call; returns its answer, if it arrives."""

    def now(self) -> float:
        return self.store.now()

    def get(self, kind: str, id: str) -> Record:
        return self._call_store("get", lambda: self.store.get(kind, id))

    def get_many(self, refs: Sequence[Ref]) -> dict[Ref, Record]:
        return self._call_store("get_many", lambda: self.store.get_many(refs))

    def find(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        owner: str | None = None,
        visibility: Visibility | None = None,
        after: int | None = None,
        newest: bool = False,
        limit: int = 100,
        documents: bool = False,
    ) -> Page:
        return self._call_store(
            "find",
            lambda: self.store.find(
                kind,
                state=state,
                parent=parent,
                owner=owner,
                visibility=visibility,
                after=after,
                newest=newest,
                limit=limit,
                documents=documents,
            ),
        )

    def get_by_idempotency_key(self, kind: str, idempotency_key: str) -> Record:
        return self._call_store(
            "get_by_idempotency_key", lambda: self.store.get_by_idempotency_key(kind, idempotency_key)
        )

    def count_by_state(
        self, kind: str, *, parent: Ref | None = None, visibility: Visibility | None = None
    ) -> dict[str, int]:
        return self._call_store(
            "count_by_state", lambda: self.store.count_by_state(kind, parent=parent, visibility=visibility)
        )

    def parents_with_open_children(self, refs: Sequence[Ref]) -> set[Ref]:
        return self._call_store("parents_with_open_children", lambda: self.store.parents_with_open_children(refs))

    def history(self, kind: str, id: str) -> list[HistoryEntry]:
        return self._call_store("history", lambda: self.store.history(kind, id))

    def list_sessions(self) -> list[SessionInfo]:
        return self._call_store("list_sessions", self.store.list_sessions)

    def list_action_requests(self, limit: int = 100) -> list[ActionRequest]:
        return self._call_store("list_action_requests", lambda: self.store.list_action_requests(limit))

    def list_locks(self, *, after: str = "", limit: int = MAX_PAGE) -> list[OwnedLock]:
        return self._call_store("list_locks", lambda: self.store.list_locks(after=after, limit=limit))

    def list_holds(self) -> dict[str, str]:
        return self._call_store("list_holds", self.store.list_holds, weight=LOW_WEIGHT)

    def find_idle_parents(self, *, after: str = "", limit: int = MAX_PAGE) -> IdleParents:
        return self._call_store("find_idle_parents", lambda: self.store.find_idle_parents(after=after, limit=limit))

    def check(self) -> Iterator[Finding]:
        return iter(self._call_store("check", lambda: list(self.store.check())))
