"""The end of a simulation: what is still restless, and whether the store tells the same story as the ledger.

A record is quiet when it rests or has ended, or waits for something that will not come by itself: a mark that people
left set, a key that a quiet record keeps, a child that rests and is open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from waybill import rules
from waybill.record import Record, Ref, Store
from waybill.sim.ledger import Entry, Ledger

if TYPE_CHECKING:
    from waybill.sim.simulation import Simulation


def restless(ledger: Ledger) -> Iterator[Entry]:
    """The records that should still be moving."""
    for entry in ledger.entries.values():
        if entry.session is not None:
            yield entry
        elif entry.ref.kind == "duty":
            continue
        else:
            state = entry.declared
            if state.works and not _waits_rightly(ledger, entry):
                yield entry


def _waits_rightly(ledger: Ledger, entry: Entry) -> bool:
    state = entry.declared
    if state.sort == "join" and ledger.open_children.get(entry.ref, 0):
        return True
    if state.gated and any(gate in ledger.marks for gate in entry.last.gates):
        return True
    return any(ledger.holders.get(key, entry.ref) != entry.ref for key in entry.keys)


def audit(simulation: Simulation, store: Store) -> Iterator[str]:
    """What is wrong, in sentences."""
    ledger = simulation.ledger
    stored: dict[Ref, Record] = {}
    for kind, machine in simulation.machines.items():
        counts: dict[str, int] = {}
        for record in _all(store, kind):
            stored[record.ref] = record
            counts[record.state] = counts.get(record.state, 0) + 1
            lines = [(line.before, line.after, line.event) for line in store.history(*record.ref)]
            if problem := rules.path_is_legal(machine, lines):
                yield f"the history of {record.ref} {problem}"
            if not lines or lines[-1][1] != record.state:
                yield f"{record.ref} is {record.state} and its history ends in {lines[-1][1] if lines else 'nothing'}"
        if store.tally(kind) != counts:
            yield f"the tally of {kind} is {store.tally(kind)} and there are {counts}"
    yield from _tallies(store, stored)
    yield from _compare(ledger, stored)
    yield from _promises(simulation, store)
    yield from (f"{finding.rule}: {finding.problem}" for finding in store.check())
    yield from simulation.scenario.finished(store)


def _compare(ledger: Ledger, stored: dict[Ref, Record]) -> Iterator[str]:
    for ref, entry in ledger.entries.items():
        record = stored.get(ref)
        if record is None:
            yield f"{ref} is lost"
        elif (record.state, record.session, record.open) != (entry.state, entry.session, entry.open):
            yield f"{ref} is {record.state} of {record.session} in the store and {entry.state} of {entry.session} in the ledger"
        elif record.version < entry.version:
            yield f"{ref} is at version {record.version} and came to {entry.version}"
    for ref in stored:
        if ref not in ledger.entries:
            yield f"{ref} is in the store and was never made, or was removed"


def _tallies(store: Store, stored: dict[Ref, Record]) -> Iterator[str]:
    """How many of each kind in each state every parent has."""
    counts: dict[tuple[Ref, str], dict[str, int]] = {}
    for record in stored.values():
        if record.parent is not None:
            states = counts.setdefault((record.parent, record.kind), {})
            states[record.state] = states.get(record.state, 0) + 1
    for (parent, kind), states in counts.items():
        if (tally := store.tally(kind, parent=parent)) != states:
            yield f"the tally of {kind} below {parent} is {tally} and there are {states}"


def _promises(simulation: Simulation, store: Store) -> Iterator[str]:
    ledger, promises = simulation.ledger, simulation.promises
    for (kind, request), ref in promises.known.items():
        if ledger.requests.get((kind, request)) is None:
            yield f"the request {request} was answered with {ref} and made nothing"
    for ref, action, who in promises.asked:
        # An answer that leaves the record where it is stands in the line of the step that ended meanwhile.
        rode = re.compile(rf"\basked by {re.escape(who)}(?!\d)")
        if ref in ledger.entries and not any(line.who == who or rode.search(line.why) for line in store.history(*ref)):
            yield f"{who} left {action} with the worker of {ref}, and nothing came of it"
    for ref, who, event in ledger.signed:
        if who in promises.denied and not event.endswith("refused"):
            yield f"{event} of {ref} was done, and {who} was told {promises.denied[who]!r}"
    for key, ref in ledger.holders.items():
        holder = ledger.entries[ref]
        if not holder.declared.works and key.partition("/")[0] not in holder.declared.needs:
            yield f"the key {key} is held by {ref}, which is {holder.state} and does not need it"


def _all(store: Store, kind: str) -> Iterator[Record]:
    after: int | None = None
    while True:
        page = store.find(kind, after=after, limit=50)
        yield from page.records
        if page.after is None:
            return
        after = page.after
