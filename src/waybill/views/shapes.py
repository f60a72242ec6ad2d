"""What the outside shape of each thing is made of. The API's description (OpenAPI) is generated from these."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict  # pydantic reads these, and before Python 3.12 only in this form


class RefView(TypedDict):
    kind: str
    id: str


class StateView(TypedDict):
    name: str
    sort: str
    doc: str
    then: str | None
    also: list[str]
    fails: str | None
    holds: str | None
    settled: bool
    actions: list[str]


class ActionView(TypedDict):
    name: str
    doc: str
    sources: list[str]
    target: str | None  # None: the state after the last one that was done
    role: str
    confirm: str | None
    waits: bool  # while a worker holds the record: it is asked, and applies it when its step has ended


class ArrowView(TypedDict):
    source: str
    target: str
    label: str
    by: str


class DocumentView(TypedDict):
    name: str
    writer: str
    doc: str


class KeysView(TypedDict):
    family: str
    doc: str


class MachineView(TypedDict):
    kind: str
    plural: str
    doc: str
    parent: str | None
    mints: bool  # ids are given by the store; otherwise the caller names its records
    initial: str
    begins: list[str]
    queue: str
    digest: str
    states: list[StateView]
    actions: list[ActionView]
    documents: list[DocumentView]
    keys: list[KeysView]
    arrows: list[ArrowView]
    mermaid: str


class ProgressView(TypedDict):
    done: float
    total: float | None
    unit: str
    fraction: float | None


class PossibleView(TypedDict):
    """An action of a record in its present state. `why_not` is the guard's sentence, where the guard was asked."""

    name: str
    doc: str
    role: str
    confirm: str | None
    target: str
    why_not: str | None


class RecordView(TypedDict):
    kind: str
    id: str
    state: str
    sort: str | None
    state_doc: str
    parent: RefView | None
    owner: str
    priority: int
    message: str
    last_done: str | None
    tries: int
    retries: int
    session: str | None
    parked: str | None
    wake_at: str | None
    keys: list[str]
    gates: list[str]
    open: bool
    host: str
    seq: int
    version: int
    created: str | None
    updated: str | None
    progress: ProgressView | None
    actions: list[PossibleView]
    docs: dict[str, Any] | None  # None: not asked for


class PageView(TypedDict):
    records: list[RecordView]
    next: str | None  # the token of the next page; None: this is the last


class LineView(TypedDict):
    version: int
    at: str | None
    who: str
    event: str
    before: str | None
    after: str | None
    why: str


class CountView(TypedDict):
    state: str
    count: int
    sort: str | None
    doc: str


class TallyView(TypedDict):
    kind: str
    parent: RefView | None
    total: int
    states: list[CountView]


class StepView(TypedDict):
    """A record that a worker is busy with and how far it is."""

    kind: str
    id: str
    progress: ProgressView


class SessionView(TypedDict):
    name: str
    host: str
    since: str | None
    expires: str | None
    expired: bool  # its worker is gone, and has not been missed yet
    about: dict[str, Any]
    steps: list[StepView]


class FindingView(TypedDict):
    rule: str
    where: str
    problem: str
    remedy: str
    mendable: bool
    record: RefView | None
