"""The rules that are the same for every machine: from a record and what happened to it, to the change that says so. Pure.

    create   nothing -> a first state
    settle   a step's outcome, or its exception, on the record that it held
    look     a join whose children are still open goes on waiting for them
    hold     a mark in force sends the record to rest instead of to work
    act      a person's action, or the sentence that says why not
    answer   the same for an action that was asked while a worker held the record
    remake   the host with the working files is gone: back to the state that makes them again
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from waybill.machine import RESUME, STAY, Action, Machine, MachineError, State
from waybill.record import MAX_MESSAGE, Ask, Change, Record, Store, StoreError, encode
from waybill.step import Done, Fail, New, Outcome, Wait

RETRY_LINES = 20  # tries beyond this one leave no history line: a step that never gives up must not fill the history
PRIORITY = "priority"  # the one request that every machine understands and that stops no step
DEFAULT_PRIORITY = 5


class Refused(Exception):
    """This is not allowed now."""


class Held(Refused):
    """A worker holds the record now; try again when it has let go."""


class UnknownKind(LookupError):
    """There is no such machine."""


MAX_WAIT = 1e9  # seconds; 31 years are as good as for ever, and every store can keep them


class Machines(dict[str, Machine]):
    """The machines of a process, by kind."""

    @classmethod
    def of(cls, machines: Iterable[Machine]) -> Machines:
        table = cls()
        for machine in machines:
            if machine.name in table:
                raise MachineError(f"Two machines are called {machine.name}.")
            table[machine.name] = machine
        for machine in table.values():
            if machine.parent is not None and machine.parent not in table:
                raise MachineError(f"{machine.name}: its parent {machine.parent} is no machine here.")
        return table

    def __missing__(self, kind: str) -> Machine:
        raise UnknownKind(f"There is no kind {kind!r}; there are {', '.join(sorted(self)) or 'none'}.")

    def children_of(self, kind: str) -> list[Machine]:
        return [m for m in self.values() if m.parent == kind]


def clip(text: str) -> str:
    """A message or a reason as every store can keep it: not too long, no half characters, no null."""
    text = text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"
    if not text.isascii():
        text = text.encode(errors="replace").decode()
    return text.replace("\0", "?")


def said(error: BaseException) -> str:
    """What an exception says, even of one that cannot say it."""
    try:
        return str(error)
    except Exception as worse:  # noqa: BLE001 - whatever __str__ of a stranger's class may raise
        return f"{type(error).__name__}, which raises {type(worse).__name__} when asked what it says"


def documents(machine: Machine, docs: Mapping[str, Any], writer: str | None = None) -> dict[str, bytes | None]:
    """The bytes of documents, each with its version number; refuses what the table does not let this writer write."""
    written: dict[str, bytes | None] = {}
    for name, body in docs.items():
        declared = machine.document(name)
        if machine.documents:
            if declared is None:
                raise MachineError(f"{machine.name} declares no document {name}; it has {', '.join(d.name for d in machine.documents)}.")
            if writer is not None and declared.writer != writer:
                raise MachineError(f"The document {name} of {machine.name} is written by its {declared.writer}, not by a {writer}.")
        if declared is not None and declared.v is not None and isinstance(body, dict) and "v" not in body:
            body = {"v": declared.v, **body}
        written[name] = None if body is None else encode(body)
    return written


def read(machine: Machine, record: Record, name: str) -> Any:
    """A document, of the version that the table declares or the one before; unknown fields are the reader's to keep."""
    body, declared = record.docs[name], machine.document(name)
    if declared is not None and declared.v is not None and isinstance(body, dict):
        written = body.get("v", declared.v)
        if written not in (declared.v, declared.v - 1):
            raise Fail(
                f"The document {name} of {record.ref} is of version {written}; this release reads {declared.v} and {declared.v - 1}. "
                f"Upgrade the workers."
            )
    return body


def keys_in(machine: Machine, state: State, record: Record) -> tuple[str, ...]:
    """The keys that a record needs in a state: those it has of the families asked for, and those that its documents name."""
    if not state.needs:
        return ()
    names: dict[str, None] = {}
    for family in machine.keys:
        if family.family in state.needs:
            names.update((k, None) for k in record.keys if k.partition("/")[0] == family.family)
            names.update((f"{family.family}/{n}", None) for n in (family.of(record) if family.of else ()))
    return tuple(names)


def check_more_keys(machine: Machine, record: Record, more: Iterable[str]) -> tuple[str, ...]:
    """The keys of a record that asks for more in the middle of a step.

    Only of later families than it holds, or two records could wait for each other.
    """
    order = {k.family: i for i, k in enumerate(machine.keys)}
    state = machine.state(record.state)
    new = [k for k in dict.fromkeys(more) if k not in record.keys]
    for key in new:
        family = key.partition("/")[0]
        if state is None or family not in state.needs:
            raise MachineError(f"{machine.name}.{record.state} does not declare that it needs keys of the family {family}.")
        if any(order[held.partition("/")[0]] >= order[family] for held in record.keys):
            raise MachineError(f"{record.ref} holds {', '.join(record.keys)} and may no longer ask for {key}: its family comes earlier.")
    return (*record.keys, *new)


def enter(machine: Machine, record: Record, target: str, **fields: Any) -> Record:
    """The record as it enters a state: what the table says of the state, on top of what the caller says."""
    state = machine.state(target)
    if state is None:
        raise MachineError(f"{machine.name}: {target} is no state.")
    if state.clears_files:
        fields["host"] = ""
    if machine.gates is not None or record.gates:
        fields["gates"] = tuple(machine.gates(record)) if machine.gates is not None and (state.holds or state.gated) else ()
    if machine.keys or record.keys:
        fields["keys"] = keys_in(machine, state, record)
    return replace(record, state=target, parked=None, tries=0, open=state.open, **fields)


def create(machines: Machines, new: New, *, maker: Record | None = None, who: str = "", why: str = "") -> Change:
    """The change that makes a record."""
    machine = machines[new.kind]
    state = new.state or machine.initial
    if state != machine.initial and state not in machine.begins:
        raise Refused(f"A {machine.name} cannot begin in {state}; it begins in {', '.join((machine.initial, *machine.begins))}.")
    if new.id is None and not machine.prefix:
        raise Refused(f"A {machine.name} needs an id from its caller.")
    if new.id is not None and (problem := bad_id(new.id)):
        raise Refused(problem)
    parent = maker.ref if maker is not None and new.child and machine.parent == maker.kind else None
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
    return Change(None, replace(enter(machine, known, state), docs=bare.docs), "submit", who, clip(why), docs)


def bad_id(id: str) -> str | None:
    """Why this cannot be a record's id: ids are parts of paths, URLs and znode names."""
    odd = any(ord(c) < 33 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) <= 0xDFFF for c in id)
    if not id or len(id.encode(errors="replace")) > 200:  # a name of a file has at most 255 bytes
        return "An id has 1 to 200 characters, and fewer where they are not ASCII: 200 bytes."
    if odd or id in (".", "..") or "/" in id or id.endswith("*"):
        return f"{id!r} is no id: no slash, no space, no control character, no star at its end, not . or .."
    return None


def settle(
    machine: Machine, record: Record, outcome: Outcome | Exception, *, who: str = "", here: str = "", go_on: bool = False
) -> Change:
    """What a step's outcome makes of the record that it held: the only place that decides. `here`: the host, when files bind to it."""
    state = _declared(machine, record)
    if isinstance(outcome, Exception):
        return _trouble(machine, state, record, outcome, who)
    try:
        if isinstance(outcome, Done):
            return _done(machine, state, record, outcome, who, here, go_on)
        if isinstance(outcome, Wait):
            return _wait(machine, state, record, outcome, who)
        raise Fail(f"The step of {machine.name}.{state.name} answered {outcome!r}; a step answers Done or Wait, or raises.")
    except Exception as error:  # noqa: BLE001 - the functions of a table may raise anything, and the worker has other records
        # The table, its gates or its keys cannot take this outcome: a mistake of the program, which trying again does not mend.
        return _trouble(machine, state, record, Fail(said(error)), who)


def _wait(machine: Machine, state: State, record: Record, outcome: Wait, who: str) -> Change:
    seconds = outcome.seconds if outcome.seconds is not None else state.every
    docs = documents(machine, outcome.docs, "step") if outcome.docs else {}
    if not seconds < math.inf:
        raise Fail(f"The step wanted to wait for {seconds} seconds; say a number of seconds.")
    waits = replace(record, session=None, parked="wait", message=clip(outcome.message), tries=0)
    return Change(record, waits, "", who, docs=docs, delay=float(min(MAX_WAIT, max(0.0, seconds))))


def _done(machine: Machine, state: State, record: Record, outcome: Done, who: str, here: str, go_on: bool) -> Change:
    target = outcome.to or state.then
    if target is None or (outcome.to is not None and outcome.to not in (state.then, *state.also)):
        ways = ", ".join(t for t in (state.then, *state.also) if t)
        raise Fail(f"The step wanted to go to {target}; {state.name} leads to {ways}.")
    docs = documents(machine, outcome.docs, "step") if outcome.docs else {}
    known = replace(record, docs=record.docs.with_changes(docs)) if docs else record
    fields: dict[str, Any] = {"last_done": state.name, "message": clip(outcome.message)}
    if outcome.priority is not None:
        fields["priority"] = min(99, max(0, operator.index(outcome.priority)))
    if state.leaves_files and here:
        fields["host"] = here
    if not go_on:
        fields["session"] = None
    after = enter(machine, known, target, **fields)
    return Change(record, after, "done", who, docs=docs, closes=state.sort == "join")


def _trouble(machine: Machine, state: State, record: Record, error: Exception, who: str) -> Change:
    words = said(error)
    reason = clip(words or type(error).__name__) if isinstance(error, Fail) else clip(f"{type(error).__name__}: {words}")
    tries = record.tries + 1
    if state.fails is None or (not isinstance(error, Fail) and tries < state.tries):
        again = replace(record, session=None, parked="wait", tries=tries, message=reason)
        event = "retry" if tries <= RETRY_LINES else ""
        return Change(record, again, event, who, reason, delay=state.backoff.delay(tries - 1))
    fields: dict[str, Any] = {"session": None, "message": reason, **_leaving(machine, record)}
    try:
        failed = enter(machine, record, state.fails, **fields)
    except Exception as worse:  # noqa: BLE001 - the table's own functions are what is wrong; failing must not fail
        fields["message"] = reason = clip(f"{reason} (and {machine.name} cannot say what it needs in {state.fails}: {said(worse)})")
        failed = enter(_plain(machine), record, state.fails, **fields)
    return Change(record, failed, "fail", who, reason)


def _leaving(machine: Machine, record: Record) -> dict[str, Any]:
    """What counts as done of a record that leaves its work undone: resume comes back to it."""
    state = machine.state(record.state)
    return {"last_done": machine.before(record.state, record.last_done)} if state is not None and state.works else {}


def _plain(machine: Machine) -> Machine:
    """The machine without the functions that reckon keys and marks from documents."""
    return dataclasses.replace(
        machine, gates=(lambda record: record.gates) if machine.gates is not None else None,
        keys=tuple(dataclasses.replace(family, of=None) for family in machine.keys),
    )  # fmt: skip


def children_are_made(state: State, record: Record) -> bool:
    """Whether a join has only to wait. Without the document the children were made by others, and not by its step."""
    return state.opens is None or state.opens not in record.docs or bool(record.docs[state.opens].get("whole"))


def look(record: Record, who: str = "") -> Change:
    """A join with open children goes on waiting for them; a nudge that came meanwhile keeps it awake."""
    return Change(record, replace(record, session=None, parked="children"), "", who)


def wait_for_key(machine: Machine, record: Record, keys: tuple[str, ...], key: str, who: str = "") -> Change:
    """A step asked for a key that another record holds: let go, ask for it, and run again when it is free."""
    return Change(record, replace(record, session=None, keys=keys, parked=f"key {key}"), "", who)


def release(record: Record, who: str = "") -> Change:
    """Give the record back as it is: the worker must go, and nothing has failed."""
    return Change(record, replace(record, session=None), "", who)


def hold(machine: Machine, record: Record, mark: str, who: str = "") -> Change:
    state = _declared(machine, record)
    if state.holds is None:
        raise MachineError(f"{machine.name}.{state.name} has no state to be held in.")
    held = enter(machine, record, state.holds, session=None, message=f"held by {mark}", **_leaving(machine, record))
    return Change(record, held, "hold", who, f"{mark} is set")


def remake(machine: Machine, record: Record, who: str = "") -> Change:
    """Its host is gone with its files. Safe to repeat: the change is fenced by the version that was read."""
    state = _declared(machine, record)
    target = state.remakes or record.state
    why = f"the host {record.host} is gone, and its working files with it"
    return Change(record, enter(machine, record, target, host="", message=why), "remake", who, why)


def find_action(machine: Machine, record: Record, name: str) -> Action:
    """The action, or Refused with what is possible instead."""
    action = machine.action(name)
    if action is None:
        raise Refused(f"A {machine.name} has no action {name!r}; it has {_names(machine.actions) or 'none'}.")
    if record.state not in action.sources:
        possible = _names(machine.leaves(record.state)) or "none"
        raise Refused(f"{record.ref} is {record.state}; {name} needs it to be {' or '.join(action.sources)}. Possible now: {possible}.")
    return action


def act(
    machine: Machine, record: Record, name: str, *, store: Store, who: str = "", why: str = "", args: Mapping[str, Any] | None = None,
    confirmed: bool = False, answers: bool = False,
) -> Change:  # fmt: skip
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
        fields: dict[str, Any] = {"session": None, "message": "", **_leaving(machine, record)}
        if resumed:
            fields["retries"] = record.retries + 1
        after = replace(enter(machine, known, target, **fields), docs=record.docs)
    return Change(record, after, name, who, clip(why), docs, answers=answers)


def answer(machine: Machine, record: Record, ask: Ask, *, store: Store) -> Change:
    """What was asked while a worker held the record, now that its step has ended; refused requests leave a line that says why."""
    try:
        args = msgspec.json.decode(ask.args, type=dict[str, Any])
        if ask.action == PRIORITY:
            return reprioritise(record, int(args[PRIORITY]), ask.who, ask.why, answers=True)
        return act(machine, record, ask.action, store=store, who=ask.who, why=ask.why, args=args, confirmed=True, answers=True)
    except StoreError:
        raise  # a guard could not read: the request stays where it is
    except Exception as refusal:  # noqa: BLE001 - also what a guard or a rewrite dies of: the worker goes on with the others
        return refuse(record, ask, said(refusal))


def refuse(record: Record, ask: Ask, why: str) -> Change:
    """Whoever asked is told by a line of history, and the record is let go as it is."""
    return Change(record, replace(record, session=None), f"{ask.action} refused", clip(ask.who), clip(why), answers=True)


def reprioritise(record: Record, priority: int, who: str = "", why: str = "", *, answers: bool = False) -> Change:
    """A new place in the queue; the store moves the queue entry in the same commit."""
    check_priority(priority)
    return Change(record, replace(record, priority=priority, session=None), PRIORITY, who, clip(why), answers=answers)


def check_priority(priority: int) -> None:
    if not isinstance(priority, int) or not 0 <= priority <= 99:
        raise Refused(f"A priority is a number from 0 to 99, lower first; {priority} is not.")


def move(machine: Machine, record: Record, to: str, *, who: str = "", why: str = "") -> Change:
    """By hand, out of a state that this release does not declare; declared states are left by actions."""
    if machine.state(record.state) is not None:
        raise Refused(f"{record.ref} is {record.state}, which {machine.name} declares; use one of its actions.")
    if machine.state(to) is None:
        raise Refused(f"{machine.name} has no state {to!r}; it has {', '.join(s.name for s in machine.states)}.")
    return Change(record, enter(machine, record, to, message=""), "move", who, clip(why))


def path_is_legal(machine: Machine, lines: Iterable[tuple[str | None, str | None, str]]) -> str | None:
    """Whether (before, after, event) lines are a path of the table; the first that is not, in words."""
    arrows = {(a.source, a.target) for a in machine.arrows()}
    starts = {machine.initial, *machine.begins}
    at: str | None = None
    for before, after, event in lines:
        if before is None:
            if after not in starts:
                return f"begins in {after}"
        elif event != "seen from outside":
            if at is not None and before != at:
                return f"is in {at}, then leaves {before}"
            if before != after and (before, after) not in arrows and event != "move":
                return f"goes from {before} to {after} by {event}, which is no arrow"
        at = after
    return None


def undeclared(machine: Machine, tally: Mapping[str, int]) -> dict[str, int]:
    """States that hold records and that this release does not declare."""
    return {state: count for state, count in tally.items() if machine.state(state) is None}


def _declared(machine: Machine, record: Record) -> State:
    state = machine.state(record.state)
    if state is None:
        raise MachineError(f"{record.ref} is in {record.state}, which this release does not declare; move it by hand.")
    return state


def _names(actions: Iterable[Action]) -> str:
    return ", ".join(a.name for a in actions)

