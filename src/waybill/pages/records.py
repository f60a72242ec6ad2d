"""The page of a record: its path on the figure, the time in each state, its documents, children, attempts, history and actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Path, Response
from markupsafe import Markup

from waybill import drawing, views
from waybill.http.api_services import API_PREFIX, IdText, KindText
from waybill.http.request_context import declare_role
from waybill.machine import Machine
from waybill.pages.figures import tone_of
from waybill.pages.formats import list_url
from waybill.pages.page_context import PageContext, PageRequest
from waybill.pages.page_routes import make_page_router
from waybill.pages.record_rows import list_links
from waybill.record import HistoryEntry, Record, Store
from waybill.sign_in import PRIVATE_KINDS
from waybill.views.standstill import StandstillReader
from waybill.views.view_types import PossibleActionView, StateCountsView
from waybill.worker.attempts import AttemptNote, read_notes

MAX_HISTORY = 200  # entries shown; the others are in the API's answer
MAX_CHILDREN = 10  # newest children of a kind that are listed


class TimeInState(NamedTuple):
    state: str
    tone: str
    seconds: float
    share: float  # of all the time, 0 to 1
    x: float  # where its part of the bar begins, 0 to 1
    is_now: bool


class AttemptView(NamedTuple):
    """A try of a step that ended, or that runs."""

    state: str
    began: str | None
    ended: str | None
    who: str
    outcome: str
    error: str
    version: int = 0  # of the history entry that ended it
    note: AttemptNote | None = None  # for operators


class ChildrenView(NamedTuple):
    machine: Machine
    counts: StateCountsView
    settled: int
    newest: list[Record]


class ActionButton(NamedTuple):
    action: PossibleActionView
    is_allowed: bool
    why_not: str  # the guard's sentence, or that it needs another role


def build_router() -> APIRouter:
    routes = make_page_router()

    @routes.get("/records/{kind}/{id}", **declare_role("reader", somewhere=True))
    def show_record(context: PageRequest, kind: Annotated[KindText, Path()], id: Annotated[IdText, Path()]) -> Response:
        ref = context.get_ref(kind, id)
        machine = context.machines[kind]
        with context.open_store() as store:
            record = store.get(*ref)
            entries = store.history(*ref)
            progress = views.progress_of(store.list_sessions()) if record.session is not None else {}
            view = views.to_record_view(record, context.machines, documents=True, progress=progress, store=store)
            standstill = StandstillReader(store, context.machines).explain(record)
            children = [_read_children(store, each, record) for each in context.machines.children_of(kind)]
            parts = [
                (part.template, part.build(context, store, record) if part.build is not None else {})
                for part in context.site.list_record_parts(kind)
            ]
            now = store.now()
        notes = (
            read_notes(context.environment.objects, ref)
            if context.access.may(record, "operator") and context.environment.objects
            else []
        )
        times = measure_states(machine, entries, now)
        attempts = list_attempts(machine, entries, record, notes)
        shown = entries[-MAX_HISTORY:]
        return context.render(
            "record.html",
            machine=machine,
            record=view,
            tone=tone_of(machine, record.state),
            standstill=standstill,
            buttons=[make_button(context, record, action) for action in view["actions"]],
            times=times,
            since=views.format_time(max((e.at for e in entries if e.before != e.after), default=record.updated)),
            figure=Markup(
                drawing.render_svg(
                    machine,
                    link_of=lambda state: list_url(kind, state),
                    current=record.state,
                    visited=frozenset(e.after for e in entries if e.after),
                )
            ),
            attempts=attempts if any(each.error for each in attempts) else [],  # otherwise the history says the same
            history=[views.to_history_entry_view(entry) for entry in reversed(shown)],
            left_out=len(entries) - len(shown),
            children=[each for each in children if each.counts["total"]],
            descriptions={d.name: d for d in machine.documents},
            parts=parts,
            lists=list_links(machine, record),
            json_path=f"{API_PREFIX}/records/{kind}/{id}",
            can_prioritise=context.access.may(record, "operator") and kind not in PRIVATE_KINDS,
        )

    return routes


def make_button(context: PageContext, record: Record, action: PossibleActionView) -> ActionButton:
    if not context.access.may(record, action["role"]):
        return ActionButton(action, False, f"This needs the role {action['role']}.")
    return ActionButton(action, action["why_not"] is None, action["why_not"] or "")


def _read_children(store: Store, machine: Machine, parent: Record) -> ChildrenView:
    counts = views.to_state_counts_view(machine, store.count_by_state(machine.name, parent=parent.ref), parent.ref)
    settled = sum(
        each["count"]
        for each in counts["states"]
        if (s := machine.find_state(each["state"])) is not None and not s.open
    )
    newest = (
        store.find(machine.name, parent=parent.ref, newest=True, limit=MAX_CHILDREN).records if counts["total"] else []
    )
    return ChildrenView(machine, counts, settled, newest)


def measure_states(machine: Machine, entries: Sequence[HistoryEntry], now: float) -> list[TimeInState]:
    """The states that a record passed, each with the time that it spent there; several stays in a row are one."""
    stays: list[tuple[str, float, float]] = []
    for n, entry in enumerate(entries):
        if entry.after is None:
            continue
        until = entries[n + 1].at if n + 1 < len(entries) else now
        state = machine.find_state(entry.after)
        if n + 1 == len(entries) and state is not None and state.type == "end":
            until = entry.at  # it is at its end, however long ago
        if stays and stays[-1][0] == entry.after:
            stays[-1] = (entry.after, stays[-1][1], until)
        else:
            stays.append((entry.after, entry.at, until))
    total = sum(max(0.0, until - since) for _, since, until in stays) or 1.0
    times, x = [], 0.0
    for n, (name, since, until) in enumerate(stays):
        seconds = max(0.0, until - since)
        times.append(TimeInState(name, tone_of(machine, name), seconds, seconds / total, x, n + 1 == len(stays)))
        x += seconds / total
    return times


def list_attempts(
    machine: Machine, entries: Sequence[HistoryEntry], record: Record, notes: Sequence[AttemptNote] = ()
) -> list[AttemptView]:
    """The tries of its steps, newest first: those that failed, those that succeeded, and the one that runs."""
    attempts: list[AttemptView] = []
    began: float | None = None
    for entry in entries:
        if entry.cause in ("done", "retry", "fail") and entry.before is not None:
            note = _find_note(notes, entry)
            outcome = {"done": "done", "retry": "failed, tried again", "fail": "failed"}[entry.cause]
            attempts.append(
                AttemptView(
                    entry.before,
                    views.format_time(note.began if note is not None else began or 0.0),
                    views.format_time(entry.at),
                    entry.who,
                    outcome,
                    entry.why if entry.cause != "done" else "",
                    entry.version,
                    note,
                )
            )
        began = entry.at
    state = machine.find_state(record.state)
    if record.session is not None:
        attempts.append(
            AttemptView(record.state, views.format_time(record.updated), None, record.session, "runs now", "")
        )
    elif record.blocked_by == "wait" and state is not None and record.error_count:
        attempts.append(AttemptView(record.state, views.format_time(record.wake_at), None, "", "next attempt", ""))
    return attempts[::-1]


def _find_note(notes: Sequence[AttemptNote], entry: HistoryEntry) -> AttemptNote | None:
    """The note of an attempt that failed: the commit that ended it follows the claim of its version."""
    if entry.cause == "done":
        return None
    fitting = [note for note in notes if note.state == entry.before and note.claim_version < entry.version]
    return max(fitting, key=lambda note: note.claim_version, default=None)
