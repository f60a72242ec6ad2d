"""A record is created, enters a state, and leaves it: the changes that follow from a step's outcome, or without one.

    create             the first state
    enter_state        what the machine says of a state: hold names, locks, host, whether the parent waits
    apply_outcome      Done       the next state, or another one that the machine allows
                       Wait       the same state, worked on again later
                       Fail       a permanent error: fails at once
                       exception  a transient error: retried later, until the state's tries are used up

Without an outcome of its step a record waits for its children or a lock, rests under a hold, is unclaimed, was created
or moved by another service or release, or lost its host.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from waybill.errors import ActionRefused
from waybill.machine import MAX_WAIT, LockFamily, Machine, MachineError, State
from waybill.record import COUNTED, MAX_LOCK_LIMIT, SHARED, Change, DocumentError, LockRequest, Record, parse_lock
from waybill.rules.documents import encode_documents
from waybill.rules.errors import clip, describe_error
from waybill.rules.inputs import DEFAULT_PRIORITY, check_priority, check_scope, find_id_problem
from waybill.rules.machines import Machines
from waybill.step import Done, Fail, New, Outcome, Wait

# transient errors of one record in a row that leave a history entry: a step that is retried for ever must not fill it
MAX_RETRY_ENTRIES = 20


def create(machines: Machines, new: New, *, maker: Record | None = None, who: str = "", why: str = "") -> Change:
    """Return the change that creates a record."""
    machine = machines[new.kind]
    state = new.state or machine.initial_state
    if state != machine.initial_state and state not in machine.initial_states:
        raise ActionRefused(
            f"A {machine.name} cannot begin in {state}; it begins in {', '.join((machine.initial_state, *machine.initial_states))}."
        )
    if new.id is None and not machine.prefix:
        raise ActionRefused(f"A {machine.name} needs an id from its caller.")
    if new.id is not None and (problem := find_id_problem(new.id)):
        raise ActionRefused(problem)
    if new.parent is not None and new.parent.kind not in machine.parent_kinds:
        raise ActionRefused(
            f"A {machine.name} cannot be a child of {new.parent}; {' or '.join(machine.parent_kinds) or 'nothing'} waits for it."
        )
    is_of_maker = maker is not None and new.is_child and maker.kind in machine.parent_kinds
    parent = new.parent or (maker.ref if maker is not None and is_of_maker else None)
    if new.if_parent_open and parent is None:
        raise ActionRefused(f"A {machine.name} was to be created only if its parent is open, and it has no parent.")
    priority = new.priority if new.priority is not None else maker.priority if maker is not None else DEFAULT_PRIORITY
    check_priority(priority)
    documents = encode_documents(machine, new.documents)
    bare = Record(
        new.kind,
        new.id if new.id is not None else f"{machine.prefix}*",
        state,
        parent=parent,
        owner=new.owner if new.owner is not None else maker.owner if maker is not None else "",
        scope=maker.scope if maker is not None and not machine.is_internal else "",
        priority=priority,
        locks=new.locks,
        host=new.host,
        idempotency_key=new.idempotency_key,
        last_done=new.last_done,
    )
    with_documents = replace(bare, documents=bare.documents.with_changes(documents))
    return Change(
        None,
        replace(enter_state(machine, with_documents, state, message=clip(new.message)), documents=bare.documents),
        "submit",
        who,
        clip(why),
        documents,
        requires_open_parent=new.if_parent_open,
    )


def enter_state(machine: Machine, record: Record, target: str, **fields: Any) -> Record:
    """Return the record in the target state: with what the machine says of the state, on top of the given fields."""
    state = machine.find_state(target)
    if state is None:
        raise MachineError(f"{machine.name}: {target} is no state.")
    if state.clears_files:
        fields["host"] = ""
    if machine.scope_of is not None:
        fields["scope"] = check_scope(machine.scope_of(record))
    if machine.hold_names is not None or record.hold_names:
        fields["hold_names"] = find_hold_names(machine, state, record)
    if machine.locks or record.locks:
        fields["locks"] = find_locks(machine, state, record)
    return replace(record, state=target, blocked_by=None, error_count=0, open=state.open, **fields)


def find_hold_names(machine: Machine, state: State, record: Record) -> tuple[str, ...]:
    """Return the holds that can stop the record before the state's work, as far as its documents tell."""
    return (
        tuple(machine.hold_names(record))
        if machine.hold_names is not None and (state.on_hold or state.blocks_on_hold)
        else ()
    )


def find_locks(machine: Machine, state: State, record: Record) -> tuple[str, ...]:
    """Return the locks that a record needs in a state, in the sort in which the state needs them: those of the state's
    families that it has, and those that its documents name.
    """
    if not state.lock_families:
        return ()
    locks: list[str] = []
    for family in machine.locks:
        if family.name in state.lock_families:
            names = {r.name: None for r in map(parse_lock, record.locks) if r.family == family.name}
            names.update((f"{family.name}/{n}", None) for n in (family.names_of(record) if family.names_of else ()))
            locks += [_write_lock(machine, state, family, name, record) for name in names]
    return tuple(locks)


def _write_lock(machine: Machine, state: State, family: LockFamily, name: str, record: Record) -> str:
    """Return a lock as a record asks for it in a state: in the sort that the state and the family declare."""
    if family.limit_of is None:
        return LockRequest(name, SHARED).to_text() if family.name in state.shared_locks else name
    limit = family.limit_of(record)
    if not isinstance(limit, int) or not 1 <= limit <= MAX_LOCK_LIMIT:
        raise MachineError(
            f"{machine.name}: {limit!r} records may own {name} at a time, says limit_of of {family.name}; it must say a whole "
            f"number from 1 to {MAX_LOCK_LIMIT:,}. To let nobody have it, set a hold."
        )
    return LockRequest(name, COUNTED, limit).to_text()


def extend_locks(machine: Machine, record: Record, more: Iterable[str]) -> tuple[str, ...]:
    """Return the locks of a record whose step needs more of them, which it names as "family/name": the sort is declared.

    Only of later families than it owns: otherwise two records could wait for each other.
    """
    order = {family.name: i for i, family in enumerate(machine.locks)}
    families = {family.name: family for family in machine.locks}
    state = machine.find_state(record.state)
    owned = [parse_lock(lock) for lock in record.locks]
    new = []
    for name in dict.fromkeys(more):
        if any(request.name == name for request in owned):
            continue
        family = name.partition("/")[0]
        if state is None or family not in state.lock_families:
            raise MachineError(
                f"{machine.name}.{record.state} does not declare that it needs locks of the family {family}."
            )
        if any(order[request.family] >= order[family] for request in owned):
            raise MachineError(
                f"{record.ref} owns {', '.join(record.locks)} and can no longer acquire {name}: its family comes earlier."
            )
        new.append(_write_lock(machine, state, families[family], name, record))
    return (*record.locks, *new)


def get_declared_state(machine: Machine, record: Record) -> State:
    state = machine.find_state(record.state)
    if state is None:
        raise MachineError(f"{record.ref} is in {record.state}, which this release does not declare; move it by hand.")
    return state


def compute_last_done(machine: Machine, record: Record) -> dict[str, Any]:
    """Return the field `last_done` of a record that leaves its work undone: resume returns to that work."""
    state = machine.find_state(record.state)
    return (
        {"last_done": machine.find_last_done(record.state, record.last_done)}
        if state is not None and state.works
        else {}
    )


def apply_outcome(
    machine: Machine,
    record: Record,
    outcome: Outcome | Exception,
    *,
    who: str = "",
    host: str = "",
    keep_claim: bool = False,
) -> Change:
    """Return the change that a step's outcome makes: the only place that decides this.

    `host`: the host to which the step's working files bind the record.
    """
    state = get_declared_state(machine, record)
    if isinstance(outcome, Exception):
        return _apply_error(machine, state, record, outcome, who)
    try:
        if isinstance(outcome, Done):
            return _apply_done(machine, state, record, outcome, who, host, keep_claim)
        if isinstance(outcome, Wait):
            return _apply_wait(machine, state, record, outcome, who)
        raise Fail(
            f"The step of {machine.name}.{state.name} returned {outcome!r}; a step returns Done or Wait, or raises."
        )
    # the functions of a machine may raise anything, and the worker has other records
    except Exception as error:  # noqa: BLE001
        # The machine, its hold names or its locks cannot take this outcome: an error of the program, which retrying
        # does not repair.
        return _apply_error(machine, state, record, Fail(describe_error(error)), who)


def _apply_wait(machine: Machine, state: State, record: Record, outcome: Wait, who: str) -> Change:
    seconds = outcome.seconds if outcome.seconds is not None else state.poll_interval
    documents = encode_documents(machine, outcome.documents, outcome.remove, record=record, writer="step")
    if not 0 <= seconds <= MAX_WAIT:
        raise Fail(f"The step wanted to wait for {seconds:g} seconds; say a number from 0 to {MAX_WAIT:,.0f}.")
    # What the step has found out may name a hold: the next claim respects it.
    hold_names = (
        find_hold_names(machine, state, replace(record, documents=record.documents.with_changes(documents)))
        if documents
        else record.hold_names
    )
    after = replace(
        record, session=None, blocked_by="wait", message=clip(outcome.message), error_count=0, hold_names=hold_names
    )
    return Change(record, after, "", who, documents=documents, delay=float(seconds))


def _apply_done(
    machine: Machine, state: State, record: Record, outcome: Done, who: str, host: str, keep_claim: bool
) -> Change:
    target = outcome.to or state.to
    if target is None or (outcome.to is not None and outcome.to not in (state.to, *state.or_to)):
        targets = ", ".join(t for t in (state.to, *state.or_to) if t)
        raise Fail(f"The step wanted to go to {target}; {state.name} leads to {targets}.")
    documents = encode_documents(machine, outcome.documents, outcome.remove, record=record, writer="step")
    updated = replace(record, documents=record.documents.with_changes(documents)) if documents else record
    fields: dict[str, Any] = {"last_done": state.name, "message": clip(outcome.message)}
    if outcome.priority is not None:
        fields["priority"] = min(99, max(0, operator.index(outcome.priority)))
    if state.leaves_files and host:
        fields["host"] = host
    if not keep_claim:
        fields["session"] = None
    after = enter_state(machine, updated, target, **fields)
    return Change(record, after, "done", who, documents=documents, requires_children_settled=state.type == "join")


def _apply_error(machine: Machine, state: State, record: Record, error: Exception, who: str) -> Change:
    text = describe_error(error)
    # Our own errors are sentences; the class name of a foreign one often says more than its text.
    is_own = isinstance(error, Fail) or type(error).__module__.partition(".")[0] == "waybill"
    reason = clip(text or type(error).__name__) if is_own else clip(f"{type(error).__name__}: {text}")
    error_count = record.error_count + 1
    if state.on_fail is None or (not isinstance(error, (Fail, DocumentError)) and error_count < state.max_tries):
        retried = replace(record, session=None, blocked_by="wait", error_count=error_count, message=reason)
        cause = "retry" if error_count <= MAX_RETRY_ENTRIES else ""
        return Change(record, retried, cause, who, reason, delay=state.backoff.compute_delay(error_count - 1))
    fields: dict[str, Any] = {"session": None, "message": reason, **compute_last_done(machine, record)}
    try:
        failed = enter_state(machine, record, state.on_fail, **fields)
    except Exception as worse:  # noqa: BLE001 - the machine's own functions are what is wrong; failing must not fail
        fields["message"] = reason = clip(
            f"{reason} (and {machine.name} cannot say what it needs in {state.on_fail}: {describe_error(worse)})"
        )
        failed = enter_state(_strip_functions(machine), record, state.on_fail, **fields)
    return Change(record, failed, "fail", who, reason)


def _strip_functions(machine: Machine) -> Machine:
    """Return the machine without the functions that compute locks, hold names and the scope from documents."""
    return dataclasses.replace(
        machine,
        hold_names=(lambda record: record.hold_names) if machine.hold_names is not None else None,
        scope_of=None,
        locks=tuple(
            dataclasses.replace(family, names_of=None, limit_of=_keep_limit if family.limit_of is not None else None)
            for family in machine.locks
        ),
    )


def _keep_limit(record: Record) -> int:
    """The limit with which the record asks for its counted locks now."""
    return max((request.limit for request in map(parse_lock, record.locks)), default=0) or 1


class _ChildrenDocument(msgspec.Struct):
    """The field that every document of a `children_document` has, whatever else its type adds."""

    whole: bool = False


def has_all_children(state: State, record: Record) -> bool:
    """Return whether a join has only to wait. Without the document others made the children, and not its step."""
    return (
        state.children_document is None
        or state.children_document not in record.documents
        or msgspec.json.decode(record.documents.raw[state.children_document], type=_ChildrenDocument).whole
    )


def wait_for_children(record: Record, who: str = "") -> Change:
    """A join with open children goes on waiting for them; a wake since its claim keeps it claimable."""
    return Change(record, replace(record, session=None, blocked_by="children"), "", who)


def wait_for_lock(machine: Machine, record: Record, locks: tuple[str, ...], lock: str, who: str = "") -> Change:
    """A step needs a lock that another record owns: unclaim, queue for the lock, and run again when it is free."""
    return Change(record, replace(record, session=None, locks=locks, blocked_by=f"lock {lock}"), "", who)


def unclaim(record: Record, who: str = "") -> Change:
    """Give the record back as it is: the worker must stop, and nothing has failed."""
    return Change(record, replace(record, session=None), "", who)


def enter_hold(machine: Machine, record: Record, hold_name: str, who: str = "") -> Change:
    """A hold in force sends the record to the rest state of its work; `hold_names` of the resting record names the
    hold.
    """
    state = get_declared_state(machine, record)
    if state.on_hold is None:
        raise MachineError(f"{machine.name}.{state.name} has no state to be held in.")
    held = enter_state(
        machine,
        record,
        state.on_hold,
        session=None,
        message=f"held by {hold_name}",
        **compute_last_done(machine, record),
    )
    return Change(record, replace(held, hold_names=(hold_name,)), "hold", who, f"{hold_name} is set")


def reload_declared(machine: Machine, record: Record, who: str = "") -> Change | None:
    """Another service, which knows no machine, created the record or moved it into its state: unclaim it with the hold
    names and locks that the machine declares.

    None: it has them. The next claim respects the holds and acquires the locks, or leaves the record blocked.
    """
    state = get_declared_state(machine, record)
    hold_names = find_hold_names(machine, state, record)
    locks = find_locks(machine, state, record)
    scope = check_scope(machine.scope_of(record)) if machine.scope_of is not None else record.scope
    if (hold_names, locks, scope) == (record.hold_names, record.locks, record.scope):
        return None
    return Change(record, replace(record, session=None, hold_names=hold_names, locks=locks, scope=scope), "", who)


def rebuild_files(machine: Machine, record: Record, who: str = "") -> Change:
    """The record's host is lost with its working files. Safe to repeat: the change is fenced by the version read."""
    state = get_declared_state(machine, record)
    target = state.on_host_lost or record.state
    why = f"the host {record.host} is lost, and its working files with it"
    return Change(record, enter_state(machine, record, target, host="", message=why), "rebuild-files", who, why)


def recompute_open(machine: Machine, record: Record, who: str = "") -> Change | None:
    """`open` was written by a release that declares the state otherwise: write it as this release says. None: it is
    the same.
    """
    state = machine.find_state(record.state)
    if state is None or state.open == record.open:
        return None
    why = f"this release declares {state.name} as {'open' if state.open else 'settled'}"
    return Change(record, replace(record, open=state.open), "recompute-open", who, why)
