"""The interface of both clients. Methods raise WaybillError: with the code of the server's answer, or of the local refusal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from typing_extensions import TypedDict

from waybill.errors import WaybillError
from waybill.record import Ref
from waybill.views.view_types import HistoryEntryView, MachineView, PageView, RecordView, SessionView, StateCountsView


class ActionResultView(TypedDict):
    record: RecordView
    pending: bool  # a worker has claimed the record; it applies this when its step has ended


class RecordsClient(Protocol):
    def list_machines(self) -> list[MachineView]: ...

    def get_machine(self, kind: str) -> MachineView: ...

    def count_by_state(self, kind: str, *, parent: str | None = None) -> StateCountsView:
        """`parent`: KIND:ID, to count its children only."""
        ...

    def list_records(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: str | None = None,
        owner: str | None = None,
        newest: bool | None = None,
        page_token: str | None = None,
        limit: int = 100,
        documents: bool = False,
    ) -> PageView:
        """One page; at most one of state, parent and owner."""
        ...

    def get_record(self, kind: str, id: str) -> RecordView: ...

    def get_history(self, kind: str, id: str) -> list[HistoryEntryView]: ...

    def submit(
        self,
        kind: str,
        documents: Mapping[str, Any],
        *,
        id: str | None = None,
        state: str | None = None,
        owner: str | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
        why: str = "",
    ) -> RecordView: ...

    def act(
        self,
        kind: str,
        id: str,
        action: str,
        *,
        why: str = "",
        args: Mapping[str, Any] | None = None,
        confirmed: bool = False,
    ) -> ActionResultView: ...

    def set_priority(self, kind: str, id: str, priority: int, *, why: str = "") -> ActionResultView: ...

    def list_holds(self) -> dict[str, str]:
        """The holds in force, with who set each and why."""
        ...

    def set_hold(self, name: str, *, why: str = "") -> None: ...

    def clear_hold(self, name: str) -> None: ...

    def list_sessions(self) -> list[SessionView]: ...

    def act_all(
        self,
        kind: str,
        action: str,
        *,
        state: str | None = None,
        parent: str | None = None,
        owner: str | None = None,
        why: str = "",
        confirmed: bool = False,
    ) -> Iterator[tuple[Ref, ActionResultView | WaybillError]]:
        """Act on all that one filter finds; yields the result or the refusal of each."""
        ...

    def follow_record(self, kind: str, id: str, interval: float) -> Iterator[RecordView]:
        """Yield the record as it is now, and again whenever it may have changed."""
        ...

    def wait(self, seconds: float) -> None:
        """Return after so many seconds, or earlier when something may have changed."""
        ...


def each_record(
    client: RecordsClient,
    kind: str,
    *,
    state: str | None = None,
    parent: str | None = None,
    owner: str | None = None,
    documents: bool = False,
) -> Iterator[RecordView]:
    """Yield the records of all pages, oldest first."""
    page_token: str | None = None
    while True:
        page = client.list_records(
            kind, state=state, parent=parent, owner=owner, page_token=page_token, limit=500, documents=documents
        )
        yield from page["records"]
        if (page_token := page["next"]) is None:
            return
