"""What people ask of a record: actions, at once or of the worker that holds it, and moves by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from waybill.machine import RESUME, STAY, Action, Machine
from waybill.record import Ask, Change, Record, Store, StoreError
from waybill.rules.entering import enter, leaving
from waybill.rules.papers import documents
from waybill.rules.priority import PRIORITY, reprioritise
from waybill.rules.refusals import Refused, UnknownState, clip, said


def find_action(machine: Machine, record: Record, name: str) -> Action:
    """The action, or Refused with what is possible instead."""
    action = machine.action(name)
    if action is None:
        raise Refused(f"A {machine.name} has no action {name!r}; it has {_names(machine.actions) or 'none'}.")
    if record.state not in action.sources:
        possible = _names(machine.leaves(record.state)) or "none"
        raise Refused(
            f"{record.ref} is {record.state}; {name} needs it to be {' or '.join(action.sources)}. Possible now: {possible}."
        )
    return action


def act(
    machine: Machine,
    record: Record,
    name: str,
    *,
    store: Store,
    who: str = "",
    why: str = "",
    args: Mapping[str, Any] | None = None,
    confirmed: bool = False,
    answers: bool = False,
) -> Change:
    """The change that an action makes, or Refused. Held records are the caller's business."""
    action = find_action(machine, record, name)
    if action.guard is not None and (sentence := action.guard(record, store)):
        raise Refused(sentence)
    if not confirmed and (question := action.question(record, store)):
        raise Refused(f"{question} Confirm to go on.")
    if args and action.writes is None:
        raise Refused(f"{name} takes no arguments.")
    docs = documents(machine, action.writes(record, args or {})) if action.writes is not None else {}
    known = replace(record, docs=record.docs.with_changes(docs))
    if action.target == STAY:
        # A document for a joining or waiting record may be what it waits for, so it is looked at again.
        after = replace(record, session=None, parked=None)
    else:
        resumed = action.target == RESUME
        target = machine.resume(record.last_done) if resumed else action.target
        fields: dict[str, Any] = {
            "session": None,
            "message": _told(machine, target, name, who, why),
            **leaving(machine, record),
        }
        if resumed:
            fields["retries"] = record.retries + 1
        after = replace(enter(machine, known, target, **fields), docs=record.docs)
    return Change(record, after, name, who, clip(why), docs, answers=answers)


def answer(machine: Machine, record: Record, ask: Ask, *, store: Store) -> Change:
    """What was asked while a worker held the record, now that its step has ended; refused requests leave a line that
    says why.
    """
    try:
        args = msgspec.json.decode(ask.args, type=dict[str, Any])
        if ask.action == PRIORITY:
            return reprioritise(record, int(args[PRIORITY]), ask.who, ask.why, answers=True)
        return act(
            machine, record, ask.action, store=store, who=ask.who, why=ask.why, args=args, confirmed=True, answers=True
        )
    except StoreError:
        raise  # a guard could not read: the request stays where it is
    # also what a guard or a rewrite dies of: the worker goes on with the others
    except Exception as refusal:  # noqa: BLE001
        return refuse(record, ask, said(refusal))


def refuse(record: Record, ask: Ask, why: str) -> Change:
    """Whoever asked is told by a line of history, and the record is let go as it is."""
    return Change(record, replace(record, session=None), refused(ask), clip(ask.who), clip(why), answers=True)


def refused(ask: Ask) -> str:
    """What happened, for the history."""
    return f"{ask.action} refused"


def move(machine: Machine, record: Record, to: str, *, who: str = "", why: str = "") -> Change:
    """By hand, out of a state that this release does not declare; declared states are left by actions."""
    if machine.state(record.state) is not None:
        raise Refused(f"{record.ref} is {record.state}, which {machine.name} declares; use one of its actions.")
    if machine.state(to) is None:
        raise UnknownState(f"{machine.name} has no state {to!r}; it has {', '.join(s.name for s in machine.states)}.")
    return Change(record, enter(machine, record, to, message=""), "move", who, clip(why))


def _told(machine: Machine, target: str, name: str, who: str, why: str) -> str:
    """What a record that comes to rest says of it: nobody else will say why it is there."""
    state = machine.state(target)
    if state is None or state.works:
        return ""
    by = f"{name} by {who}" if who else name
    return clip(f"{by}: {why}" if why else by)


def _names(actions: Iterable[Action]) -> str:
    return ", ".join(a.name for a in actions)
