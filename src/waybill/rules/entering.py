"""A record enters a state: its first, or the next one."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from waybill.machine import Machine, MachineError, State
from waybill.record import Change, Record
from waybill.rules.keys import keys_in
from waybill.rules.machines import Machines
from waybill.rules.papers import documents
from waybill.rules.priority import DEFAULT_PRIORITY, check_priority
from waybill.rules.refusals import Refused, clip
from waybill.step import New

# not in an id: slashes, spaces, control characters, halves of characters
_ODD = re.compile(r"[\x00-\x20/\x7f-\x9f\ud800-\udfff]")


def enter(machine: Machine, record: Record, target: str, **fields: Any) -> Record:
    """The record as it enters a state: what the table says of the state, on top of what the caller says."""
    state = machine.state(target)
    if state is None:
        raise MachineError(f"{machine.name}: {target} is no state.")
    if state.clears_files:
        fields["host"] = ""
    if machine.gates is not None or record.gates:
        fields["gates"] = gates_in(machine, state, record)
    if machine.keys or record.keys:
        fields["keys"] = keys_in(machine, state, record)
    return replace(record, state=target, parked=None, tries=0, open=state.open, **fields)


def gates_in(machine: Machine, state: State, record: Record) -> tuple[str, ...]:
    """The marks that keep the record from beginning the state's work, as far as its documents tell."""
    return tuple(machine.gates(record)) if machine.gates is not None and (state.holds or state.gated) else ()


def create(machines: Machines, new: New, *, maker: Record | None = None, who: str = "", why: str = "") -> Change:
    """The change that makes a record."""
    machine = machines[new.kind]
    state = new.state or machine.initial
    if state != machine.initial and state not in machine.begins:
        raise Refused(
            f"A {machine.name} cannot begin in {state}; it begins in {', '.join((machine.initial, *machine.begins))}."
        )
    if new.id is None and not machine.prefix:
        raise Refused(f"A {machine.name} needs an id from its caller.")
    if new.id is not None and (problem := bad_id(new.id)):
        raise Refused(problem)
    if new.parent is not None and new.parent.kind != machine.parent:
        raise Refused(
            f"A {machine.name} cannot be a child of {new.parent}; {machine.parent or 'nothing'} waits for it."
        )
    parent = new.parent or (maker.ref if maker is not None and new.child and machine.parent == maker.kind else None)
    priority = new.priority if new.priority is not None else maker.priority if maker is not None else DEFAULT_PRIORITY
    check_priority(priority)
    docs = documents(machine, new.docs)
    bare = Record(
        new.kind,
        new.id if new.id is not None else f"{machine.prefix}*",
        state,
        parent=parent,
        owner=new.owner if new.owner is not None else maker.owner if maker is not None else "",
        priority=priority,
        keys=new.keys,
        host=new.host,
        request=new.request,
        last_done=new.last_done,
    )
    known = replace(bare, docs=bare.docs.with_changes(docs))
    return Change(
        None,
        replace(enter(machine, known, state, message=clip(new.message)), docs=bare.docs),
        "submit",
        who,
        clip(why),
        docs,
    )


def bad_id(id: str) -> str | None:
    """Why this cannot be a record's id: ids are parts of paths, URLs and znode names."""
    if not id or len(id.encode(errors="replace")) > 200:  # a name of a file has at most 255 bytes
        return "An id has 1 to 200 characters, and fewer where they are not ASCII: 200 bytes."
    if _ODD.search(id) or id in (".", "..") or id.endswith("*"):
        return f"{id!r} is no id: no slash, no space, no control character, no star at its end, not . or .."
    return None


def leaving(machine: Machine, record: Record) -> dict[str, Any]:
    """What counts as done of a record that leaves its work undone: resume comes back to it."""
    state = machine.state(record.state)
    return {"last_done": machine.before(record.state, record.last_done)} if state is not None and state.works else {}


def declared(machine: Machine, record: Record) -> State:
    state = machine.state(record.state)
    if state is None:
        raise MachineError(f"{record.ref} is in {record.state}, which this release does not declare; move it by hand.")
    return state
