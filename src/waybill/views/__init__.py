"""The JSON of machines, records, histories and pages, the same for the API, the command line and the web page.

Every function takes a value as the store or the machine has it and returns plain JSON: dicts, lists, strings, numbers.
Times are RFC 3339 in UTC. Secrets are removed here, once, so that no caller can forget it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from waybill import drawing
from waybill.accounts import full_store_of
from waybill.machine import RESUME, STAY, Action, Document, Machine, State
from waybill.record import Finding, HistoryEntry, Page, Record, RecordDocuments, Ref, SessionInfo, Store, StoreError
from waybill.rules import Machines, describe_error
from waybill.views.hold_messages import compose_record_message, is_on_hold, refresh_messages
from waybill.views.page_tokens import ListQuery, PageTokens, find_page
from waybill.views.view_types import (
    ActionView,
    FindingView,
    HistoryEntryView,
    MachineView,
    PageView,
    PossibleActionView,
    ProgressView,
    RecordView,
    RefView,
    SessionView,
    StateCountsView,
    StateCountView,
    StateView,
    StepProgressView,
)

__all__ = [
    "UNDECLARED",
    "ListQuery",
    "PageTokens",
    "compose_record_message",
    "find_page",
    "format_time",
    "list_live_sessions",
    "progress_of",
    "refresh_messages",
    "to_finding_view",
    "to_history_entry_view",
    "to_machine_view",
    "to_page_view",
    "to_public_documents",
    "to_record_view",
    "to_ref_view",
    "to_session_view",
    "to_state_counts_view",
]

UNDECLARED = "This release does not declare this state; records in it are shown, never claimed, and moved by hand."
MAX_TIME = "9999-12-31T23:59:59.999Z"
log = logging.getLogger("waybill")


def to_machine_view(m: Machine) -> MachineView:
    """Return everything that a machine declares."""
    return {
        "kind": m.name,
        "plural": m.plural,
        "description": m.description,
        "parent": m.parent,
        "mints": bool(m.prefix),
        "initial_state": m.initial_state,
        "initial_states": [m.initial_state, *m.initial_states],
        "queue": m.queue,
        "digest": m.compute_digest(),
        "states": [_to_state_view(m, s) for s in m.states],
        "actions": [_to_action_view(a) for a in m.actions],
        "documents": [{"name": d.name, "writer": d.writer, "description": d.description} for d in m.documents],
        "locks": [{"name": k.name, "description": k.description} for k in m.locks],
        "arrows": [{"source": a.source, "target": a.target, "label": a.label, "by": a.by} for a in m.iter_arrows()],
        "mermaid": drawing.render_mermaid(m),
    }


def _to_state_view(m: Machine, s: State) -> StateView:
    return {
        "name": s.name,
        "type": s.type,
        "description": s.description,
        "to": s.to,
        "or_to": list(s.or_to),
        "on_fail": s.on_fail,
        "on_hold": s.on_hold,
        "settled": not s.open,
        "actions": [a.name for a in m.list_actions_from(s.name)],
    }


def _to_action_view(a: Action) -> ActionView:
    return {
        "name": a.name,
        "description": a.description,
        "sources": list(a.sources),
        "target": None if a.target in (RESUME, STAY) else a.target,
        "role": a.role,
        "confirm": a.confirm,
        "waits": a.when_claimed == "wait",
    }


def to_record_view(
    r: Record,
    machines: Machines,
    documents: bool = False,
    *,
    progress: Mapping[str, Any] | None = None,
    store: Store | None = None,
) -> RecordView:
    """Return the JSON of a record. `progress`: of `progress_of`. `store`: evaluate the guards of its actions too; the
    record must have its documents then.
    """
    m = machines[r.kind]
    s = m.find_state(r.state)
    guard_store = full_store_of(store) if store is not None else None
    return {
        "kind": r.kind,
        "id": r.id,
        "state": r.state,
        "type": s.type if s is not None else None,
        "state_description": s.description if s is not None else UNDECLARED,
        "parent": to_ref_view(r.parent),
        "owner": r.owner,
        "scope": r.scope,
        "priority": r.priority,
        "message": compose_record_message(m, r, store.list_holds())
        if store is not None and is_on_hold(m, r)
        else r.message,
        "last_done": r.last_done,
        "error_count": r.error_count,
        "resume_count": r.resume_count,
        "session": r.session,
        "blocked_by": r.blocked_by,
        "wake_at": format_time(r.wake_at) if r.blocked_by == "wait" else None,
        "locks": list(r.locks),
        "hold_names": list(r.hold_names),
        "open": r.open,
        "host": r.host,
        "seq": r.seq,
        "version": r.version,
        "created": format_time(r.created),
        "updated": format_time(r.updated),
        "progress": _to_progress_view((progress or {}).get(str(r.ref)), r.state),
        "actions": [_to_possible_action_view(m, a, r, guard_store) for a in m.list_actions_from(r.state)],
        "documents": to_public_documents(m, r.documents) if documents else None,
    }


def _to_possible_action_view(m: Machine, a: Action, r: Record, store: Store | None) -> PossibleActionView:
    target = m.find_resume_state(r.last_done) if a.target == RESUME else r.state if a.target == STAY else a.target
    why_not, confirm = None, a.confirm
    if store is not None:
        try:
            why_not = a.guard(r, store) if a.guard is not None else None
            confirm = a.get_confirmation(r, store)
        except StoreError:
            raise
        except Exception as error:  # a machine's own function: the record must be shown all the same
            log.info("whether %s is possible for %s", a.name, r.ref, exc_info=error)
            why_not = f"Whether it is possible cannot be determined: {type(error).__name__}: {describe_error(error)}."
    return {
        "name": a.name,
        "description": a.description,
        "role": a.role,
        "confirm": confirm,
        "target": target,
        "why_not": why_not,
    }


def to_public_documents(m: Machine, documents: RecordDocuments) -> dict[str, Any]:
    """Return the documents of a record of that machine, decoded and without secrets."""
    shown: dict[str, Any] = {}
    for name in documents:
        try:
            body = documents[name]
        except (msgspec.DecodeError, UnicodeDecodeError):  # written by another service
            body = {"unreadable": documents.raw[name].decode("utf-8", "replace")}
        declared = m.find_document(name)
        for path in declared.secret if declared is not None else ():
            body = _remove_field(body, path.split("."))
        shown[name] = (
            _redact_document(m, declared, body) if declared is not None and declared.redact is not None else body
        )
    return shown


def _redact_document(m: Machine, declared: Document, body: Any) -> Any:
    """Return the document as its machine redacts it. One that the machine cannot read may hold a secret: then nothing of
    it is shown, and the other documents are.
    """
    assert declared.redact is not None
    try:
        return declared.redact(body)
    except Exception as error:  # a machine's own function, over what anybody may have sent
        log.info("redacting the document %s of a %s", declared.name, m.name, exc_info=error)
        return {"not shown": f"It is not of the form that a {m.name} has: {type(error).__name__}."}


def _remove_field(body: Any, path: list[str]) -> Any:
    """Return the same without the field at the path."""
    if not isinstance(body, dict) or path[0] not in body:
        return body
    others = {key: value for key, value in body.items() if key != path[0]}
    return others if len(path) == 1 else {**others, path[0]: _remove_field(body[path[0]], path[1:])}


def to_history_entry_view(entry: HistoryEntry) -> HistoryEntryView:
    return {
        "version": entry.version,
        "at": format_time(entry.at),
        "who": entry.who,
        "cause": entry.cause,
        "before": entry.before,
        "after": entry.after,
        "why": entry.why,
    }


def to_page_view(
    found: Page,
    machines: Machines,
    store: Store,
    token: str | None = None,
    documents: bool = False,
    *,
    progress: Mapping[str, Any] | None = None,
) -> PageView:
    """Return the JSON of a page, with or without documents. `store`: to say by which holds records rest now."""
    records = refresh_messages(found.records, machines, store, documents=documents)
    return {"records": [to_record_view(r, machines, documents, progress=progress) for r in records], "next": token}


def to_state_counts_view(m: Machine, counts: Mapping[str, int], parent: Ref | None = None) -> StateCountsView:
    """Return how many records are in each state: every declared one in the order of the machine, then those that this
    release does not declare.
    """
    declared: list[StateCountView] = [
        {"state": s.name, "count": counts.get(s.name, 0), "type": s.type, "description": s.description}
        for s in m.states
    ]
    undeclared: list[StateCountView] = [
        {"state": name, "count": counts[name], "type": None, "description": UNDECLARED}
        for name in sorted(counts)
        if m.find_state(name) is None
    ]
    return {
        "kind": m.name,
        "parent": to_ref_view(parent),
        "total": sum(counts.values()),
        "states": declared + undeclared,
    }


def to_session_view(s: SessionInfo, now: float) -> SessionView:
    """Return the JSON of a session. `now`: by the store's clock. An expired one is gone, and the next worker ends its
    claims.
    """
    steps: list[StepProgressView] = []
    for name, values in sorted(s.progress.items()):
        kind, _, id = name.partition(" ")
        if (shown := _to_progress_view(values)) is not None:
            steps.append({"kind": kind, "id": id, "progress": shown})
    return {
        "name": s.name,
        "host": s.host,
        "since": format_time(s.since),
        "expires": format_time(s.expires),
        "expired": s.expires <= now,
        "about": dict(s.about),
        "steps": steps,
    }


def list_live_sessions(store: Store) -> list[SessionInfo]:
    """Return the sessions that have not expired."""
    now = store.now()
    return [s for s in store.list_sessions() if s.expires > now]


def progress_of(sessions: Iterable[SessionInfo]) -> dict[str, Any]:
    """Return the latest progress of all workers, by "kind id"."""
    return {name: values for s in sessions for name, values in s.progress.items()}


def _to_progress_view(values: Any, state: str | None = None) -> ProgressView | None:
    """Return the JSON of [done, total, unit, state], as workers send it; None for another form, or a state that the
    record has left.
    """
    if not isinstance(values, (list, tuple)) or len(values) != 4 or state not in (None, values[3]):
        return None
    done, total, unit = values[:3]
    if not isinstance(done, (int, float)) or not (total is None or isinstance(total, (int, float))):
        return None
    fraction = min(1.0, max(0.0, done / total)) if total else None
    return {"done": done, "total": total, "unit": str(unit or ""), "fraction": fraction}


def to_finding_view(f: Finding) -> FindingView:
    return {
        "rule": f.rule,
        "where": f.where,
        "problem": f.problem,
        "remedy": f.remedy,
        "repairable": f.repairable,
        "record": to_ref_view(f.ref),
    }


def to_ref_view(r: Ref | None) -> RefView | None:
    return {"kind": r.kind, "id": r.id} if r is not None else None


def format_time(at: float) -> str | None:
    """Return seconds since 1970 as RFC 3339 in UTC; None for never."""
    if not at:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return MAX_TIME
