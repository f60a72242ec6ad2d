"""The end of a simulation: which records are still restless, and whether the store agrees with the invariant checker.

A record is quiet when it rests or has ended, or waits for something that will not happen by itself: a hold that an
operator left set, a lock that a quiet record owns, a child that rests and is open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from waybill import rules
from waybill.events import SUBSCRIPTION_KIND
from waybill.record import Record, Ref, Store, lock_names_of
from waybill.sim.invariant_checker import CheckedRecord, InvariantChecker

if TYPE_CHECKING:
    from waybill.sim.simulation import Simulation


def find_restless(checker: InvariantChecker) -> Iterator[CheckedRecord]:
    """The records that should still be moving."""
    for checked in checker.records.values():
        if checked.session is not None:
            yield checked
        elif checked.ref.kind in ("maintenance", SUBSCRIPTION_KIND):
            continue
        else:
            if checked.declared_state.works and not _is_rightly_waiting(checker, checked):
                yield checked


def _is_rightly_waiting(checker: InvariantChecker, checked: CheckedRecord) -> bool:
    state = checked.declared_state
    if state.type == "join" and checker.open_child_counts.get(checked.ref, 0):
        return True
    if state.blocks_on_hold and any(name in checker.holds for name in checked.last.hold_names):
        return True
    return any(checker.lock_owners.get(name, {}).keys() - {checked.ref} for name in lock_names_of(checked.locks))


def find_problems(simulation: Simulation, store: Store) -> Iterator[str]:
    """What is wrong, one sentence each."""
    checker = simulation.checker
    stored: dict[Ref, Record] = {}
    for kind, machine in simulation.machines.items():
        counts: dict[str, int] = {}
        for record in store.each(kind):
            stored[record.ref] = record
            counts[record.state] = counts.get(record.state, 0) + 1
            transitions = [(entry.before, entry.after, entry.cause) for entry in store.history(*record.ref)]
            if problem := rules.find_illegal_transition(machine, transitions):
                yield f"the history of {record.ref} {problem}"
            last = transitions[-1][1] if transitions else "nothing"
            if last != record.state:
                yield f"{record.ref} is {record.state} and its history ends in {last}"
        if store.count_by_state(kind) != counts:
            yield f"the count of {kind} is {store.count_by_state(kind)} and there are {counts}"
    yield from _check_child_counts(store, stored)
    yield from _compare_records(checker, stored)
    yield from _check_expectations(simulation, store)
    yield from (f"{finding.rule}: {finding.problem}" for finding in store.check())
    yield from simulation.scenario.find_problems(store)


def _compare_records(checker: InvariantChecker, stored: dict[Ref, Record]) -> Iterator[str]:
    for ref, checked in checker.records.items():
        record = stored.get(ref)
        if record is None:
            yield f"{ref} is lost"
        elif (record.state, record.session, record.open) != (checked.state, checked.session, checked.open):
            yield f"{ref} is {record.state} of {record.session} in the store, and {checked.state} of {checked.session} by its commits"
        elif record.version < checked.version:
            yield f"{ref} is at version {record.version} and was at {checked.version}"
    for ref in stored:
        if ref not in checker.records:
            yield f"{ref} is in the store and was never created, or was removed"


def _check_child_counts(store: Store, stored: dict[Ref, Record]) -> Iterator[str]:
    """Compare the store's counts of children by state with the records."""
    counts: dict[tuple[Ref, str], dict[str, int]] = {}
    for record in stored.values():
        if record.parent is not None:
            states = counts.setdefault((record.parent, record.kind), {})
            states[record.state] = states.get(record.state, 0) + 1
    for (parent, kind), states in counts.items():
        if (counted := store.count_by_state(kind, parent=parent)) != states:
            yield f"the count of {kind} below {parent} is {counted} and there are {states}"


def _check_expectations(simulation: Simulation, store: Store) -> Iterator[str]:
    checker, expectations = simulation.checker, simulation.expectations
    for (kind, key), ref in expectations.answered_refs.items():
        if checker.refs_by_idempotency_key.get((kind, key)) is None:
            yield f"the submission {key} was answered with {ref} and created nothing"
    for ref, action, who in expectations.pending_actions:
        # An answer that leaves the record in its state is part of the history entry of the step that ended meanwhile.
        mentions = re.compile(rf"\brequested by {re.escape(who)}(?!\d)")
        if ref in checker.records and not any(
            entry.who == who or mentions.search(entry.why) for entry in store.history(*ref)
        ):
            yield f"{who} left {action} with the worker of {ref}, and it was never answered"
    for ref, who, cause, _ in checker.signed_actions:
        if who in expectations.refusals and not cause.endswith("refused"):
            yield f"{cause} of {ref} was done, and {who} received the refusal {expectations.refusals[who]!r}"
    for lock, owners in checker.lock_owners.items():
        for ref in owners:
            owner = checker.records[ref]
            if not owner.declared_state.works and lock.partition("/")[0] not in owner.declared_state.lock_families:
                yield f"the lock {lock} is owned by {ref}, which is {owner.state} and does not need it"
