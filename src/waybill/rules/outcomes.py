"""What a step's end makes of the record that it held: `settle` is the only place that decides.

Done        the next state, or another one that the table allows
Wait        the same state, looked at again later
Fail        gives up at once
exception   trouble: tried again later, until the state's tries are used up
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

from msgspec.structs import replace

from waybill.machine import MAX_WAIT, Machine, State
from waybill.record import Change, Record
from waybill.rules.entering import declared, enter, gates_in, leaving
from waybill.rules.papers import documents
from waybill.rules.refusals import clip, said
from waybill.step import Done, Fail, Outcome, Wait

RETRY_LINES = 20  # tries beyond this one leave no history line: a step that never gives up must not fill the history


def settle(
    machine: Machine,
    record: Record,
    outcome: Outcome | Exception,
    *,
    who: str = "",
    here: str = "",
    go_on: bool = False,
) -> Change:
    """What a step's outcome makes of the record that it held: the only place that decides. `here`: the host, when
    files bind to it.
    """
    state = declared(machine, record)
    if isinstance(outcome, Exception):
        return _trouble(machine, state, record, outcome, who)
    try:
        if isinstance(outcome, Done):
            return _done(machine, state, record, outcome, who, here, go_on)
        if isinstance(outcome, Wait):
            return _wait(machine, state, record, outcome, who)
        raise Fail(
            f"The step of {machine.name}.{state.name} answered {outcome!r}; a step answers Done or Wait, or raises."
        )
    # the functions of a table may raise anything, and the worker has other records
    except Exception as error:  # noqa: BLE001
        # The table, its gates or its keys cannot take this outcome: a mistake of the program, which trying again does
        # not mend.
        return _trouble(machine, state, record, Fail(said(error)), who)


def _wait(machine: Machine, state: State, record: Record, outcome: Wait, who: str) -> Change:
    seconds = outcome.seconds if outcome.seconds is not None else state.every
    docs = documents(machine, outcome.docs, "step") if outcome.docs else {}
    if not 0 <= seconds <= MAX_WAIT:
        raise Fail(f"The step wanted to wait for {seconds:g} seconds; say a number from 0 to {MAX_WAIT:,.0f}.")
    # What the step has found out may tell of a mark: the next claim heeds it.
    gates = gates_in(machine, state, replace(record, docs=record.docs.with_changes(docs))) if docs else record.gates
    waits = replace(record, session=None, parked="wait", message=clip(outcome.message), tries=0, gates=gates)
    return Change(record, waits, "", who, docs=docs, delay=float(seconds))


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
    # Our own errors are sentences; of a stranger's the name often says more than the words.
    own = isinstance(error, Fail) or type(error).__module__.partition(".")[0] == "waybill"
    reason = clip(words or type(error).__name__) if own else clip(f"{type(error).__name__}: {words}")
    tries = record.tries + 1
    if state.fails is None or (not isinstance(error, Fail) and tries < state.tries):
        again = replace(record, session=None, parked="wait", tries=tries, message=reason)
        event = "retry" if tries <= RETRY_LINES else ""
        return Change(record, again, event, who, reason, delay=state.backoff.delay(tries - 1))
    fields: dict[str, Any] = {"session": None, "message": reason, **leaving(machine, record)}
    try:
        failed = enter(machine, record, state.fails, **fields)
    except Exception as worse:  # noqa: BLE001 - the table's own functions are what is wrong; failing must not fail
        fields["message"] = reason = clip(
            f"{reason} (and {machine.name} cannot say what it needs in {state.fails}: {said(worse)})"
        )
        failed = enter(_plain(machine), record, state.fails, **fields)
    return Change(record, failed, "fail", who, reason)


def _plain(machine: Machine) -> Machine:
    """The machine without the functions that reckon keys and marks from documents."""
    return dataclasses.replace(
        machine,
        gates=(lambda record: record.gates) if machine.gates is not None else None,
        keys=tuple(dataclasses.replace(family, of=None) for family in machine.keys),
    )
