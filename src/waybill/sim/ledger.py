"""The ledger: what must be true of the records, kept beside the store from the answers to every call, and checked
with each of them.

It sees every answer, also those that the caller never got to see, and believes none: a commit must have been made by
whoever held the record, a claim must be of a free record, an arrow must be one of the table, a key must have been free.
What it keeps of a record is an `Entry`; at the end of a simulation the store must tell the same story (audit.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from waybill.machine import Machine, State
from waybill.record import Answer, Change, Claimed, Committed, Group, Record, Ref
from waybill.rules import Machines


# not an Exception: a step in which it is found must not turn it into trouble that is tried again
class Violation(BaseException):
    """An invariant does not hold."""


class Entry:
    """One record, as its story goes so far."""

    __slots__ = ("held", "keys", "last", "machine", "open", "parent", "ref", "request", "session", "state", "version")

    def __init__(self, record: Record, machine: Machine) -> None:
        self.ref, self.machine, self.parent, self.request = record.ref, machine, record.parent, record.request
        self.state, self.version, self.open = record.state, record.version, record.open
        self.session: str | None = None
        self.keys = record.keys  # asked for
        self.held: tuple[str, ...] = ()  # and had
        self.last = record

    @property
    def declared(self) -> State:
        state = self.machine.state(self.state)
        if state is None:
            raise Violation(f"{self.ref} is in {self.state}, which is no state")
        return state


class Life:
    """A session as the store must see it."""

    __slots__ = ("expires", "held", "owner", "since", "ttl")

    def __init__(self, owner: str, ttl: float, now: float) -> None:
        self.owner, self.ttl, self.since, self.expires = owner, ttl, now, now + ttl
        self.held: dict[Ref, None] = {}


class Ledger:
    def __init__(self, machines: Machines, clock: Callable[[], float]) -> None:
        self.machines, self.clock = machines, clock
        self.entries: dict[Ref, Entry] = {}
        self.refs: list[Ref] = []  # all that were ever made
        self.lives: dict[str, Life] = {}  # sessions that have not ended
        self.names: dict[str, None] = {}  # sessions so far
        self.holders: dict[str, Ref] = {}  # of keys
        self.marks: dict[str, None] = {}
        self.children: dict[Ref, int] = {}  # ever made, by parent
        self.open_children: dict[Ref, int] = {}
        self.requests: dict[tuple[str, str], Ref] = {}
        self.gone: dict[Ref, int] = {}  # removed records: the version that they came to
        self.signed: dict[tuple[Ref, str, str], None] = {}  # actions, by who asked
        self.attempts: dict[tuple[Ref, int], None] = {}
        self.arrows = {name: arrows_of(machine) for name, machine in machines.items()}
        # the scenario's own invariants
        self.watch: Callable[[Change, Record | None, Entry], None] = lambda change, record, entry: None
        self.commits = self.claims = 0

    # --- sessions

    def opened(self, name: str, owner: str, ttl: float) -> None:
        if name in self.names:
            raise Violation(f"the session name {name} is used twice")
        self.names[name] = None
        self.lives[name] = Life(owner, ttl, self.clock())

    def renewed(self, name: str, alive: bool) -> None:
        life = self.lives.get(name)
        if alive and life is None:
            raise Violation(f"the session {name} has ended and is renewed all the same")
        if life is not None:
            if not alive:
                raise Violation(f"the session {name} lives and is called dead")
            life.expires = self.clock() + life.ttl

    def closed(self, name: str) -> None:
        self._free(name)

    def reaped(self, names: Sequence[str]) -> None:
        for name in names:
            life = self.lives.get(name)
            if life is None:
                raise Violation(f"the session {name} is reaped and was not there")
            if life.expires > self.clock():
                raise Violation(f"the session {name} is reaped {life.expires - self.clock():.3f} s before its time")
            self._free(name)

    def _free(self, name: str) -> None:
        life = self.lives.pop(name, None)
        for ref in life.held if life is not None else ():
            entry = self.entries[ref]
            entry.session = None
            entry.version += 1

    # --- claims

    def claimed(self, session: str, claimed: Sequence[Claimed]) -> None:
        for each in claimed:
            self._claimed(session, each.record, each.mark)

    def _claimed(self, session: str, record: Record, mark: str | None) -> None:
        self.claims += 1
        ref = record.ref
        entry, life = self.entries.get(ref), self.lives.get(session)
        if entry is None:
            raise Violation(f"{ref} is claimed and does not exist")
        if life is None:
            raise Violation(f"{ref} is claimed by {session}, which has ended")
        if entry.session is not None:
            raise Violation(f"{ref} is held by {entry.session} and claimed by {session}")
        if record.session != session or record.state != entry.state or record.version <= entry.version:
            raise Violation(f"{ref} is {_brief(record)} when claimed, and was {entry.state} at version {entry.version}")
        if mark is None and (stops := [g for g in record.gates if g in self.marks]):
            raise Violation(f"{ref} is claimed though {stops[0]} is set")
        entry.session, entry.version, entry.last, entry.keys = session, record.version, record, record.keys
        life.held[ref] = None
        if mark is None:
            self._hold(entry, record.keys)

    def _hold(self, entry: Entry, keys: tuple[str, ...]) -> None:
        for key in keys:
            holder = self.holders.setdefault(key, entry.ref)
            if holder != entry.ref:
                raise Violation(f"the key {key} is held by {holder} and given to {entry.ref}")
        entry.held = keys

    # --- commits

    def committed(self, groups: Sequence[Group], answers: Sequence[Answer]) -> None:
        for group, answer in zip(groups, answers, strict=True):
            if isinstance(answer, Committed):
                self.commits += 1
                if len(answer.records) != len(group.changes) or not self._repeated(group, answer):
                    for change, record in zip(group.changes, answer.records, strict=True):
                        self._changed(change, record)

    def _repeated(self, group: Group, answer: Committed) -> bool:
        """Answered with the records of the first time, and nothing written."""
        for change, record in zip(group.changes, answer.records, strict=True):
            if change.before is None and record is not None and record.ref in self.entries:
                if record.request is None or self.requests.get((record.kind, record.request)) != record.ref:
                    raise Violation(f"{record.ref} is made twice")
                return True
        return False

    def _changed(self, change: Change, record: Record | None) -> None:
        if change.before is None:
            if record is None:
                raise Violation(f"{change.ref} was made and is not there")
            entry = self._created(record)
        else:
            entry = self._moved(change, change.before, record)
        self.watch(change, record, entry)

    def _created(self, record: Record) -> Entry:
        ref = record.ref
        if record.version <= self.gone.get(ref, 0):
            raise Violation(f"{ref} begins a second life at version {record.version}, which its first has seen")
        if record.session is not None:
            raise Violation(f"{ref} is made and held by {record.session}")
        machine = self.machines[record.kind]
        if record.state != machine.initial and record.state not in machine.begins:
            raise Violation(f"{ref} begins in {record.state}")
        if record.request is not None:
            first = self.requests.setdefault((record.kind, record.request), ref)
            if first != ref and first in self.entries:
                raise Violation(f"the request {record.request} made {first} and {ref}")
            self.requests[record.kind, record.request] = ref
        self.entries[ref] = entry = Entry(record, machine)
        self.refs.append(ref)
        if record.parent is not None:
            self.children[record.parent] = self.children.get(record.parent, 0) + 1
            if record.open:
                self._opens(record.parent, 1)
        return entry

    def _moved(self, change: Change, before: Record, record: Record | None) -> Entry:
        entry = self.entries.get(before.ref)
        if entry is None:
            raise Violation(f"{before.ref} is written and does not exist")
        if before.session != entry.session:
            raise Violation(
                f"{before.ref} is written by {before.session or 'nobody'} and held by {entry.session or 'nobody'}"
            )
        if before.session is not None and before.session not in self.lives:
            raise Violation(f"{before.ref} is written by {before.session}, which has ended")
        if before.version < entry.version or before.state != entry.state:
            raise Violation(
                f"{before.ref} is written as of {_brief(before)} and was {entry.state} at version {entry.version}"
            )
        if change.event and change.who:
            self._sign(entry.ref, change)
        if change.event == "done" and self.open_children.get(entry.ref, 0) and entry.declared.sort == "join":
            raise Violation(f"{entry.ref} leaves {entry.state} with an open child")
        if (
            change.goes_on
            and record is not None
            and record.session is not None
            and any(gate in self.marks for gate in record.gates)
        ):
            raise Violation(f"{entry.ref} goes on to {record.state} though it is marked to stop")
        if record is None:
            self._removed(entry, before)
            return entry
        if record.version <= before.version:
            raise Violation(f"{before.ref} goes from version {before.version} to {record.version}")
        self._check_arrow(entry, change, record)
        if record.session != before.session:
            if record.session is not None:
                raise Violation(f"{record.ref} goes to {record.session} by a commit")
            if before.session is not None:
                del self.lives[before.session].held[record.ref]
        if record.parent is not None and record.open != entry.open:
            self._opens(record.parent, 1 if record.open else -1)
        self._keys(entry, record)
        entry.state, entry.version, entry.session, entry.open = (
            record.state,
            record.version,
            record.session,
            record.open,
        )
        entry.keys, entry.last = record.keys, record
        return entry

    def _check_arrow(self, entry: Entry, change: Change, record: Record) -> None:
        if record.state != entry.state:
            if not change.event:
                raise Violation(f"{entry.ref} goes from {entry.state} to {record.state} without a line in its history")
            if (entry.state, record.state) not in self.arrows[entry.ref.kind] and change.event != "move":
                raise Violation(
                    f"{entry.ref} goes from {entry.state} to {record.state} by {change.event}, which is no arrow"
                )
        declared = entry.machine.state(record.state)
        if declared is not None and record.open != declared.open:
            raise Violation(f"{entry.ref} is {record.state} and {'open' if record.open else 'closed'}")

    def _sign(self, ref: Ref, change: Change) -> None:
        """What a person asked for once is done at most once; people sign with a name of their own for each request."""
        if change.who.startswith("ask "):
            signature = (ref, change.who, change.event)
            if signature in self.signed:
                raise Violation(f"{change.event} of {ref}, asked once by {change.who}, is done twice")
            self.signed[signature] = None

    def _keys(self, entry: Entry, record: Record) -> None:
        """Keys stay from the commit that takes them to the commit that leaves the last state that needs them."""
        if not entry.held and not record.keys:
            return
        kept = record.keys if record.session is not None else tuple(k for k in entry.held if k in record.keys)
        declared = entry.machine.state(record.state)
        needs = declared.needs if declared is not None else ()
        for key in entry.held:
            if key not in kept:
                if key.partition("/")[0] in needs:
                    raise Violation(f"{entry.ref} loses the key {key}, which it needs in {record.state}")
                del self.holders[key]
        self._hold(entry, kept)

    def _removed(self, entry: Entry, before: Record) -> None:
        ref = entry.ref
        if entry.session is not None:
            self.lives[entry.session].held.pop(ref, None)
        for key in entry.held:
            del self.holders[key]
        if entry.parent is not None and entry.open:
            self._opens(entry.parent, -1)
        self.gone[ref] = max(before.version, entry.version)
        del self.entries[ref]

    def _opens(self, parent: Ref, by: int) -> None:
        self.open_children[parent] = self.open_children.get(parent, 0) + by

    # --- steps

    def began(self, record: Record, attempt: int) -> None:
        """A step begins: no other run has its attempt."""
        if (record.ref, attempt) in self.attempts:
            raise Violation(f"two runs of {record.ref} have the attempt {attempt}")
        self.attempts[record.ref, attempt] = None

    def holds(self, ref: Ref, session: str | None) -> bool:
        """Whether the record is still that session's: not so for a late worker."""
        entry = self.entries.get(ref)
        return entry is not None and session is not None and entry.session == session


@cache
def arrows_of(machine: Machine) -> frozenset[tuple[str, str]]:
    return frozenset((arrow.source, arrow.target) for arrow in machine.arrows())


def _brief(record: Record) -> str:
    return f"{record.state} at version {record.version}" + (f" of {record.session}" if record.session else "")
