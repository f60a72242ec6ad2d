"""What operators request of a record: actions, at once or of the worker that has claimed it, priorities, and moves out of
undeclared states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from waybill.errors import ActionRefused, NotFound
from waybill.machine import RESUME, STAY, Action, Machine
from waybill.record import ActionRequest, Change, Record, Store, StoreError
from waybill.rules.documents import encode_documents
from waybill.rules.errors import clip, describe_error
from waybill.rules.inputs import PRIORITY, check_priority, check_scope
from waybill.rules.transitions import compute_last_done, enter_state
from waybill.step import Act


def find_action(machine: Machine, record: Record, name: str) -> Action:
    """Return the action. Raises ActionRefused with what is possible instead."""
    action = machine.find_action(name)
    if action is None:
        raise ActionRefused(
            f"A {machine.name} has no action {name!r}; it has {_join_action_names(machine.actions) or 'none'}."
        )
    if record.state not in action.sources:
        possible = _join_action_names(machine.list_actions_from(record.state)) or "none"
        raise ActionRefused(
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
    answers_request: bool = False,
) -> Change:
    """Return the change that an action makes, or raise ActionRefused. The caller checks whether the record is claimed."""
    action = find_action(machine, record, name)
    if action.guard is not None and (sentence := action.guard(record, store)):
        raise ActionRefused(sentence)
    if not confirmed and (warning := action.get_confirmation(record, store)):
        raise ActionRefused(f"{warning} Confirm to go on.")
    if args and action.writes is None:
        raise ActionRefused(f"{name} takes no arguments.")
    documents = (
        encode_documents(machine, action.writes(record, args or {}), record=record) if action.writes is not None else {}
    )
    updated = replace(record, documents=record.documents.with_changes(documents))
    if action.target == STAY:
        # The document may be what a joining or waiting record waits for, so its step runs again.
        after = replace(record, session=None, blocked_by=None)
        if documents and machine.scope_of is not None:
            after = replace(after, scope=check_scope(machine.scope_of(updated)))
    else:
        resumed = action.target == RESUME
        target = machine.find_resume_state(record.last_done) if resumed else action.target
        fields: dict[str, Any] = {
            "session": None,
            "message": _compose_rest_message(machine, target, name, who, why),
            **compute_last_done(machine, record),
        }
        if resumed:
            fields["resume_count"] = record.resume_count + 1
        after = replace(enter_state(machine, updated, target, **fields), documents=record.documents)
    return Change(record, after, name, who, clip(why), documents, answers_request=answers_request)


def answer_action_request(machine: Machine, record: Record, request: ActionRequest, *, store: Store) -> Change:
    """Return the change of an action that was requested while a worker had claimed the record, now that the step has
    ended. A refused request leaves a history entry that says why.
    """
    try:
        args = msgspec.json.decode(request.args, type=dict[str, Any])
        if request.action == PRIORITY:
            return reprioritise(record, int(args[PRIORITY]), request.who, request.why, answers_request=True)
        if (action := machine.find_action(request.action)) is not None:
            list_further_acts(action, record, args)  # what it raises refuses the request
        return act(
            machine,
            record,
            request.action,
            store=store,
            who=request.who,
            why=request.why,
            args=args,
            confirmed=True,
            answers_request=True,
        )
    except StoreError:
        raise  # a guard could not read the store: the request stays pending
    # also whatever a guard or a document writer raises: the worker has other records
    except Exception as refusal:  # noqa: BLE001
        return refuse_action_request(record, request, describe_error(refusal))


def list_further_acts(action: Action, record: Record, args: Mapping[str, Any]) -> tuple[Act, ...]:
    """Return the acts that an action brings along, in the same commit."""
    if action.acts is None:
        return ()
    why = f"with {action.name} of {record.ref}"
    return tuple(each if each.why else dataclasses.replace(each, why=why) for each in action.acts(record, args))


def further_acts_of_request(
    machine: Machine, record: Record, request: ActionRequest, answer: Change
) -> tuple[Act, ...]:
    """Return the acts that the answer to a request brings along; none where the request is refused or stays."""
    action = machine.find_action(request.action)
    if action is None or answer.cause != action.name or action.acts is None:
        return ()
    return list_further_acts(action, record, msgspec.json.decode(request.args, type=dict[str, Any]))


def refuse_action_request(record: Record, request: ActionRequest, why: str) -> Change:
    """Return the change that says in the history why the request is refused, and unclaims the record as it is."""
    return Change(
        record,
        replace(record, session=None),
        refusal_cause_of(request),
        clip(request.who),
        clip(why),
        answers_request=True,
    )


def refusal_cause_of(request: ActionRequest) -> str:
    """Return the cause of the history entry of a refused request."""
    return f"{request.action} refused"


def move(machine: Machine, record: Record, to: str, *, who: str = "", why: str = "") -> Change:
    """Move a record out of a state that this release does not declare; declared states are left by actions."""
    if machine.find_state(record.state) is not None:
        raise ActionRefused(f"{record.ref} is {record.state}, which {machine.name} declares; use one of its actions.")
    if machine.find_state(to) is None:
        raise NotFound(
            f"{machine.name} has no state {to!r}; it has {', '.join(s.name for s in machine.states)}.",
            code="unknown-state",
        )
    return Change(record, enter_state(machine, record, to, message=""), "move", who, clip(why))


def reprioritise(
    record: Record, priority: int, who: str = "", why: str = "", *, answers_request: bool = False
) -> Change:
    """Return the change of the priority; the store moves the queue entry in the same commit."""
    check_priority(priority)
    return Change(
        record,
        replace(record, priority=priority, session=None),
        PRIORITY,
        who,
        clip(why),
        answers_request=answers_request,
    )


def _compose_rest_message(machine: Machine, target: str, name: str, who: str, why: str) -> str:
    """Return the message of a record that an action sends to rest: nothing else says why it is there."""
    state = machine.find_state(target)
    if state is None or state.works:
        return ""
    by = f"{name} by {who}" if who else name
    return clip(f"{by}: {why}" if why else by)


def _join_action_names(actions: Iterable[Action]) -> str:
    return ", ".join(a.name for a in actions)
