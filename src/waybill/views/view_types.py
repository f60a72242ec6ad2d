"""The types of the JSON that `waybill.views` returns. The API's OpenAPI description is generated from these."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict  # pydantic reads these, and before Python 3.12 only in this form


class RefView(TypedDict):
    kind: str
    id: str


class StateView(TypedDict):
    name: str
    type: str
    description: str
    to: str | None
    or_to: list[str]
    on_fail: str | None
    on_hold: str | None
    settled: bool
    actions: list[str]


class ActionView(TypedDict):
    name: str
    description: str
    sources: list[str]
    target: str | None  # None: the state after the last one that was done
    role: str
    confirm: str | None
    waits: bool  # while a worker has claimed the record, the action is requested of it and applied when its step ends


class ArrowView(TypedDict):
    source: str
    target: str
    label: str
    by: str


class DocumentView(TypedDict):
    name: str
    writer: str
    description: str


class LockFamilyView(TypedDict):
    name: str
    description: str


class MachineView(TypedDict):
    kind: str
    plural: str
    description: str
    parent: str | None
    mints: bool  # the store mints the ids; otherwise the caller chooses them
    initial_state: str
    initial_states: list[str]
    queue: str
    digest: str
    states: list[StateView]
    actions: list[ActionView]
    documents: list[DocumentView]
    locks: list[LockFamilyView]
    arrows: list[ArrowView]
    mermaid: str


class ProgressView(TypedDict):
    done: float
    total: float | None
    unit: str
    fraction: float | None


class PossibleActionView(TypedDict):
    """An action of a record in its present state. `why_not` is the guard's sentence, where the guard was evaluated."""

    name: str
    description: str
    role: str
    confirm: str | None
    target: str
    why_not: str | None


class RecordView(TypedDict):
    kind: str
    id: str
    state: str
    type: str | None
    state_description: str
    parent: RefView | None
    owner: str
    scope: str  # APPLICATION/TYPE/NAME; empty: none
    priority: int
    message: str
    last_done: str | None
    error_count: int
    resume_count: int
    session: str | None
    blocked_by: str | None
    wake_at: str | None
    locks: list[str]
    hold_names: list[str]
    open: bool
    host: str
    seq: int
    version: int
    created: str | None
    updated: str | None
    progress: ProgressView | None
    actions: list[PossibleActionView]
    documents: dict[str, Any] | None  # None: not requested


class PageView(TypedDict):
    records: list[RecordView]
    next: str | None  # the token of the next page; None: this is the last


class HistoryEntryView(TypedDict):
    version: int
    at: str | None
    who: str
    cause: str
    before: str | None
    after: str | None
    why: str


class StateCountView(TypedDict):
    state: str
    count: int
    type: str | None
    description: str


class StateCountsView(TypedDict):
    kind: str
    parent: RefView | None
    total: int
    states: list[StateCountView]


class StepProgressView(TypedDict):
    """A record that a worker has claimed, and the progress of its step."""

    kind: str
    id: str
    progress: ProgressView


class SessionView(TypedDict):
    name: str
    host: str
    since: str | None
    expires: str | None
    expired: bool  # its worker is gone, and no other worker has ended the session yet
    about: dict[str, Any]
    steps: list[StepProgressView]


class FindingView(TypedDict):
    rule: str
    where: str
    problem: str
    remedy: str
    repairable: bool
    record: RefView | None
