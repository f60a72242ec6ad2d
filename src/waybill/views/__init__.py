"""The one outside shape of machines, records, histories and pages: the API, the command line and the web page all
show these.

Every function here takes a thing as the store or the table has it and answers plain JSON: dicts, lists, texts, numbers.
Times are RFC 3339 in UTC. What is secret is left out here, once, so that no caller can forget it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from waybill import drawing
from waybill.machine import RESUME, STAY, Action, Document, Machine, State
from waybill.record import Docs, Finding, Line, Page, Record, Ref, SessionInfo, Store, StoreError
from waybill.rules import Machines, said
from waybill.views.pages import BadToken, PageTokens, Query
from waybill.views.resting import current, message, rests
from waybill.views.shapes import (
    ActionView,
    CountView,
    FindingView,
    LineView,
    MachineView,
    PageView,
    PossibleView,
    ProgressView,
    RecordView,
    RefView,
    SessionView,
    StateView,
    StepView,
    TallyView,
)

__all__ = [
    "BadToken",
    "PageTokens",
    "Query",
    "current",
    "documents",
    "finding",
    "line",
    "living",
    "machine",
    "message",
    "moment",
    "page",
    "progress_of",
    "record",
    "ref",
    "session",
    "tally",
]

UNDECLARED = "This release does not declare this state; records in it are shown, never claimed, and moved by hand."
LAST_MOMENT = "9999-12-31T23:59:59.999Z"
log = logging.getLogger("waybill")


def machine(m: Machine) -> MachineView:
    """All that a table says."""
    return {
        "kind": m.name,
        "plural": m.plural,
        "doc": m.doc,
        "parent": m.parent,
        "mints": bool(m.prefix),
        "initial": m.initial,
        "begins": [m.initial, *m.begins],
        "queue": m.queue,
        "digest": m.digest(),
        "states": [_state(m, s) for s in m.states],
        "actions": [_action(a) for a in m.actions],
        "documents": [{"name": d.name, "writer": d.writer, "doc": d.doc} for d in m.documents],
        "keys": [{"family": k.family, "doc": k.doc} for k in m.keys],
        "arrows": [{"source": a.source, "target": a.target, "label": a.label, "by": a.by} for a in m.arrows()],
        "mermaid": drawing.mermaid(m),
    }


def _state(m: Machine, s: State) -> StateView:
    return {
        "name": s.name,
        "sort": s.sort,
        "doc": s.doc,
        "then": s.then,
        "also": list(s.also),
        "fails": s.fails,
        "holds": s.holds,
        "settled": not s.open,
        "actions": [a.name for a in m.leaves(s.name)],
    }


def _action(a: Action) -> ActionView:
    return {
        "name": a.name,
        "doc": a.doc,
        "sources": list(a.sources),
        "target": None if a.target in (RESUME, STAY) else a.target,
        "role": a.role,
        "confirm": a.confirm,
        "waits": a.claimed == "wait",
    }


def record(
    r: Record,
    machines: Machines,
    docs: bool = False,
    *,
    progress: Mapping[str, Any] | None = None,
    store: Store | None = None,
) -> RecordView:
    """A record as people see it. `progress`: of `progress_of`; `store`: ask the guards of its actions too (`r` has
    its documents then).
    """
    m = machines[r.kind]
    s = m.state(r.state)
    return {
        "kind": r.kind,
        "id": r.id,
        "state": r.state,
        "sort": s.sort if s is not None else None,
        "state_doc": s.doc if s is not None else UNDECLARED,
        "parent": ref(r.parent),
        "owner": r.owner,
        "priority": r.priority,
        "message": message(m, r, store.marks()) if store is not None and rests(m, r) else r.message,
        "last_done": r.last_done,
        "tries": r.tries,
        "retries": r.retries,
        "session": r.session,
        "parked": r.parked,
        "wake_at": moment(r.wake_at) if r.parked == "wait" else None,
        "keys": list(r.keys),
        "gates": list(r.gates),
        "open": r.open,
        "host": r.host,
        "seq": r.seq,
        "version": r.version,
        "created": moment(r.created),
        "updated": moment(r.updated),
        "progress": _progress((progress or {}).get(str(r.ref)), r.state),
        "actions": [_possible(m, a, r, store) for a in m.leaves(r.state)],
        "docs": documents(m, r.docs) if docs else None,
    }


def _possible(m: Machine, a: Action, r: Record, store: Store | None) -> PossibleView:
    target = m.resume(r.last_done) if a.target == RESUME else r.state if a.target == STAY else a.target
    why_not, confirm = None, a.confirm
    if store is not None:
        try:
            why_not = a.guard(r, store) if a.guard is not None else None
            confirm = a.question(r, store)
        except StoreError:
            raise
        except Exception as error:  # a table's own function: whoever looks at the record must see it all the same
            log.info("whether %s can be asked to %s", r.ref, a.name, exc_info=error)
            why_not = f"Whether it is possible cannot be told: {type(error).__name__}: {said(error)}."
    return {"name": a.name, "doc": a.doc, "role": a.role, "confirm": confirm, "target": target, "why_not": why_not}


def documents(m: Machine, docs: Docs) -> dict[str, Any]:
    """The documents of a record of that machine, decoded, without what is secret."""
    shown: dict[str, Any] = {}
    for name in docs:
        try:
            body = docs[name]
        except (msgspec.DecodeError, UnicodeDecodeError):  # written by a foreign service
            body = {"unreadable": docs.raw[name].decode("utf-8", "replace")}
        declared = m.document(name)
        for path in declared.secret if declared is not None else ():
            body = _without(body, path.split("."))
        shown[name] = _shown(m, declared, body) if declared is not None and declared.shown is not None else body
    return shown


def _shown(m: Machine, declared: Document, body: Any) -> Any:
    """As its table shows it. What the table stumbles over may hold a secret: then nothing of it is shown, and the
    rest of the list is.
    """
    assert declared.shown is not None
    try:
        return declared.shown(body)
    except Exception as error:  # a table's own function, over what anybody may have sent
        log.info("showing the document %s of a %s", declared.name, m.name, exc_info=error)
        return {"not shown": f"It is not of the form that a {m.name} has: {type(error).__name__}."}


def _without(body: Any, path: list[str]) -> Any:
    """The same without the field that the path leads to."""
    if not isinstance(body, dict) or path[0] not in body:
        return body
    rest = {key: value for key, value in body.items() if key != path[0]}
    return rest if len(path) == 1 else {**rest, path[0]: _without(body[path[0]], path[1:])}


def line(entry: Line) -> LineView:
    return {
        "version": entry.version,
        "at": moment(entry.at),
        "who": entry.who,
        "event": entry.event,
        "before": entry.before,
        "after": entry.after,
        "why": entry.why,
    }


def page(
    found: Page,
    machines: Machines,
    store: Store,
    token: str | None = None,
    docs: bool = False,
    *,
    progress: Mapping[str, Any] | None = None,
) -> PageView:
    """A page that was found, with or without documents. `store`: why those that rest do so now."""
    told = current(found.records, machines, store, docs=docs)
    return {"records": [record(r, machines, docs, progress=progress) for r in told], "next": token}


def tally(m: Machine, counts: Mapping[str, int], parent: Ref | None = None) -> TallyView:
    """How many are in each state: every declared one in the order of the table, then those that this release does
    not declare.
    """
    declared: list[CountView] = [
        {"state": s.name, "count": counts.get(s.name, 0), "sort": s.sort, "doc": s.doc} for s in m.states
    ]
    foreign: list[CountView] = [
        {"state": name, "count": counts[name], "sort": None, "doc": UNDECLARED}
        for name in sorted(counts)
        if m.state(name) is None
    ]
    return {"kind": m.name, "parent": ref(parent), "total": sum(counts.values()), "states": declared + foreign}


def session(s: SessionInfo, now: float) -> SessionView:
    """Who works. `now`: by the store's clock; one that has expired is gone, and the next worker frees what it held."""
    steps: list[StepView] = []
    for name, values in sorted(s.progress.items()):
        kind, _, id = name.partition(" ")
        if (shown := _progress(values)) is not None:
            steps.append({"kind": kind, "id": id, "progress": shown})
    return {
        "name": s.name,
        "host": s.host,
        "since": moment(s.since),
        "expires": moment(s.expires),
        "expired": s.expires <= now,
        "about": dict(s.about),
        "steps": steps,
    }


def living(store: Store) -> list[SessionInfo]:
    """The workers that have not expired."""
    now = store.now()
    return [s for s in store.sessions() if s.expires > now]


def progress_of(sessions: Iterable[SessionInfo]) -> dict[str, Any]:
    """What all workers last said of how far their records are, by "kind id"."""
    return {name: values for s in sessions for name, values in s.progress.items()}


def _progress(values: Any, state: str | None = None) -> ProgressView | None:
    """[done, total, unit, state], as workers send it; what is not of that form, or of a state that the record has
    left, is not shown.
    """
    if not isinstance(values, (list, tuple)) or len(values) != 4 or state not in (None, values[3]):
        return None
    done, total, unit = values[:3]
    if not isinstance(done, (int, float)) or not (total is None or isinstance(total, (int, float))):
        return None
    fraction = min(1.0, max(0.0, done / total)) if total else None
    return {"done": done, "total": total, "unit": str(unit or ""), "fraction": fraction}


def finding(f: Finding) -> FindingView:
    return {
        "rule": f.rule,
        "where": f.where,
        "problem": f.problem,
        "remedy": f.remedy,
        "mendable": f.mendable,
        "record": ref(f.ref),
    }


def ref(r: Ref | None) -> RefView | None:
    return {"kind": r.kind, "id": r.id} if r is not None else None


def moment(at: float) -> str | None:
    """Seconds since 1970 as RFC 3339 in UTC; None for never."""
    if not at:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return LAST_MOMENT
