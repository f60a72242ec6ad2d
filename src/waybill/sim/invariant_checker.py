"""The invariants of records, sessions, locks and steps, checked with every answer of the store.

`InvariantChecker` keeps its own account beside the store: a `CheckedRecord` for each record, a `CheckedSession` for each
session. It sees every answer, also those that the caller never receives, and trusts none: a commit must come from the
session that has claimed the record, a claim must be of a free record, a change of state must be an arrow of the machine,
a lock must have been free. `RunningSteps` does the same for the steps that run. At the end of a simulation the store must
agree with this account (audit.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from waybill.machine import Machine, State
from waybill.record import (
    COUNTED,
    SHARED,
    Change,
    ClaimedRecord,
    CommitAnswer,
    CommitGroup,
    CommitResult,
    LockSort,
    Record,
    Ref,
    is_lock_available,
    parse_lock,
)
from waybill.rules import Machines
from waybill.worker import messages as m

if TYPE_CHECKING:
    from waybill.sim.process import SimulatedProcess
    from waybill.sim.simulation import Simulation


# not an Exception: a step in which it is raised must not turn it into a transient error, which is retried
class InvariantViolation(BaseException):
    """An invariant does not hold."""


class CheckedRecord:
    """One record, as its answered commits left it."""

    __slots__ = (
        "idempotency_key",
        "last",
        "locks",
        "machine",
        "open",
        "owned_locks",
        "parent",
        "ref",
        "session",
        "state",
        "version",
    )

    def __init__(self, record: Record, machine: Machine) -> None:
        self.ref, self.machine, self.parent, self.idempotency_key = (
            record.ref,
            machine,
            record.parent,
            record.idempotency_key,
        )
        self.state, self.version, self.open = record.state, record.version, record.open
        self.session: str | None = None
        self.locks = record.locks  # that it asks for
        self.owned_locks: tuple[str, ...] = ()  # that it owns
        self.last = record

    @property
    def declared_state(self) -> State:
        state = self.machine.find_state(self.state)
        if state is None:
            raise InvariantViolation(f"{self.ref} is in {self.state}, which is not a state of its machine")
        return state


class CheckedSession:
    """A session as the store must see it."""

    __slots__ = ("claimed_refs", "expires_at", "opened_at", "owner", "ttl")

    def __init__(self, owner: str, ttl: float, now: float) -> None:
        self.owner, self.ttl, self.opened_at, self.expires_at = owner, ttl, now, now + ttl
        self.claimed_refs: dict[Ref, None] = {}


class InvariantChecker:
    def __init__(self, machines: Machines, clock: Callable[[], float]) -> None:
        self.machines, self.clock = machines, clock
        self.records: dict[Ref, CheckedRecord] = {}
        self.refs: list[Ref] = []  # of all records ever created
        self.sessions: dict[str, CheckedSession] = {}  # that have not ended
        self.session_names: dict[str, None] = {}  # of all sessions so far
        self.lock_owners: dict[str, dict[Ref, LockSort]] = {}  # by name of the lock
        self.lock_limits: dict[str, int] = {}  # of counted locks, as the latest commit said
        self.holds: dict[str, None] = {}
        self.child_counts: dict[Ref, int] = {}  # ever created, by parent
        self.open_child_counts: dict[Ref, int] = {}
        self.refs_by_idempotency_key: dict[tuple[str, str], Ref] = {}
        self.removed_versions: dict[Ref, int] = {}  # the last version of each removed record
        # actions by who requested them, and why: one action may bring others along on the same record
        self.signed_actions: dict[tuple[Ref, str, str, str], None] = {}
        self.claim_versions: dict[tuple[Ref, int], None] = {}
        self.arrows = {name: arrows_of(machine) for name, machine in machines.items()}
        # the scenario's own invariants
        self.check_change: Callable[[Change, Record | None, CheckedRecord], None] = lambda change, record, checked: None
        self.commit_count = self.claim_count = 0

    # --- sessions

    def check_session_opened(self, name: str, owner: str, ttl: float) -> None:
        if name in self.session_names:
            raise InvariantViolation(f"the session name {name} is used twice")
        self.session_names[name] = None
        self.sessions[name] = CheckedSession(owner, ttl, self.clock())

    def check_session_renewed(self, name: str, is_alive: bool) -> None:
        checked_session = self.sessions.get(name)
        if is_alive and checked_session is None:
            raise InvariantViolation(f"the session {name} has ended and is renewed")
        if checked_session is not None:
            if not is_alive:
                raise InvariantViolation(f"the session {name} is alive and reported as expired")
            checked_session.expires_at = self.clock() + checked_session.ttl

    def note_session_closed(self, name: str) -> None:
        self._end_session(name)

    def check_sessions_reaped(self, names: Sequence[str]) -> None:
        for name in names:
            checked_session = self.sessions.get(name)
            if checked_session is None:
                raise InvariantViolation(f"the session {name} is reaped and did not exist")
            if checked_session.expires_at > self.clock():
                raise InvariantViolation(
                    f"the session {name} is reaped {checked_session.expires_at - self.clock():.3f} s before its time"
                )
            self._end_session(name)

    def _end_session(self, name: str) -> None:
        checked_session = self.sessions.pop(name, None)
        for ref in checked_session.claimed_refs if checked_session is not None else ():
            checked = self.records[ref]
            checked.session = None
            checked.version += 1

    # --- claims

    def check_claims(self, session: str, claimed: Sequence[ClaimedRecord]) -> None:
        for each in claimed:
            self._check_claim(session, each.record, each.hold)

    def _check_claim(self, session: str, record: Record, hold: str | None) -> None:
        self.claim_count += 1
        ref = record.ref
        checked, checked_session = self.records.get(ref), self.sessions.get(session)
        if checked is None:
            raise InvariantViolation(f"{ref} is claimed and does not exist")
        if checked_session is None:
            raise InvariantViolation(f"{ref} is claimed by {session}, which has ended")
        if checked.session is not None:
            raise InvariantViolation(f"{ref} is claimed by {checked.session} and claimed again by {session}")
        if record.session != session or record.state != checked.state or record.version <= checked.version:
            raise InvariantViolation(
                f"{ref} is {_describe_record(record)} when claimed, and was {checked.state} at version {checked.version}"
            )
        if hold is None and (holds := [name for name in record.hold_names if name in self.holds]):
            raise InvariantViolation(f"{ref} is claimed though the hold {holds[0]} is set")
        checked.session, checked.version, checked.last, checked.locks = session, record.version, record, record.locks
        checked_session.claimed_refs[ref] = None
        if hold is None:
            self._own_locks(checked, record.locks)

    def _own_locks(self, checked: CheckedRecord, locks: tuple[str, ...]) -> None:
        """Never two exclusive owners, never one beside those who share, never more than the limit."""
        for request in map(parse_lock, locks):
            owners = self.lock_owners.setdefault(request.name, {})
            others = [ref for ref in owners if ref != checked.ref]
            if owners.get(checked.ref) != request.sort and others:
                limit = self.lock_limits.get(request.name, request.limit)
                if not is_lock_available(request.sort, limit, owners[others[0]], len(others)):
                    raise InvariantViolation(
                        f"the lock {request.name} is owned by {', '.join(map(str, others))} ({owners[others[0]]}) "
                        f"and given to {checked.ref} ({request.to_text()})"
                    )
            owners[checked.ref] = request.sort
        checked.owned_locks = locks

    def _disown_lock(self, checked: CheckedRecord, lock: str) -> None:
        name = parse_lock(lock).name
        del self.lock_owners[name][checked.ref]
        if not self.lock_owners[name]:
            del self.lock_owners[name]

    def _note_limits(self, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        for request in (parse_lock(lock) for lock in after if lock not in before):
            if request.sort == COUNTED:
                self.lock_limits[request.name] = request.limit

    # --- commits

    def check_commits(self, groups: Sequence[CommitGroup], answers: Sequence[CommitAnswer]) -> None:
        for group, answer in zip(groups, answers, strict=True):
            if isinstance(answer, CommitResult):
                self.commit_count += 1
                if len(answer.records) != len(group.changes) or not self._is_repeated(group, answer):
                    for change, record in zip(group.changes, answer.records, strict=True):
                        self._check_change(change, record)
                    self._check_requirements(group)

    def _check_requirements(self, group: CommitGroup) -> None:
        """What the group needs of records that it does not change, as it left them."""
        for request in group.requests:
            checked = self.records.get(request.ref)
            if checked is None or checked.session is None:
                raise InvariantViolation(f"{request.action} is requested of {request.ref}, which nobody has claimed")
        for change in group.changes:
            if change.requires_open_parent and change.after is not None and change.after.parent is not None:
                parent = self.records.get(change.after.parent)
                if parent is None or not parent.open:
                    raise InvariantViolation(f"{change.after.parent} is closed and gets a child that needs it open")

    def _is_repeated(self, group: CommitGroup, answer: CommitResult) -> bool:
        """Whether the answer is that of an earlier commit with the same idempotency key, and nothing was written."""
        for change, record in zip(group.changes, answer.records, strict=True):
            if change.before is None and record is not None and record.ref in self.records:
                if (
                    record.idempotency_key is None
                    or self.refs_by_idempotency_key.get((record.kind, record.idempotency_key)) != record.ref
                ):
                    raise InvariantViolation(f"{record.ref} is created twice")
                return True
        return False

    def _check_change(self, change: Change, record: Record | None) -> None:
        if change.before is None:
            if record is None:
                raise InvariantViolation(f"{change.ref} was created and is not there")
            checked = self._check_created(record)
        else:
            checked = self._check_moved(change, change.before, record)
        self.check_change(change, record, checked)

    def _check_created(self, record: Record) -> CheckedRecord:
        ref = record.ref
        if record.version <= self.removed_versions.get(ref, 0):
            raise InvariantViolation(
                f"{ref} is created again at version {record.version}, which it had before it was removed"
            )
        if record.session is not None:
            raise InvariantViolation(f"{ref} is created and claimed by {record.session}")
        machine = self.machines[record.kind]
        if record.state != machine.initial_state and record.state not in machine.initial_states:
            raise InvariantViolation(f"{ref} is created in {record.state}, which is no initial state")
        if record.idempotency_key is not None:
            first = self.refs_by_idempotency_key.setdefault((record.kind, record.idempotency_key), ref)
            if first != ref and first in self.records:
                raise InvariantViolation(f"the submission {record.idempotency_key} created {first} and {ref}")
            self.refs_by_idempotency_key[record.kind, record.idempotency_key] = ref
        self.records[ref] = checked = CheckedRecord(record, machine)
        self._note_limits((), record.locks)
        self.refs.append(ref)
        if record.parent is not None:
            self.child_counts[record.parent] = self.child_counts.get(record.parent, 0) + 1
            if record.open:
                self._count_open_child(record.parent, 1)
        return checked

    def _check_moved(self, change: Change, before: Record, record: Record | None) -> CheckedRecord:
        checked = self.records.get(before.ref)
        if checked is None:
            raise InvariantViolation(f"{before.ref} is written and does not exist")
        if before.session != checked.session:
            raise InvariantViolation(
                f"{before.ref} is written by {before.session or 'nobody'} and claimed by {checked.session or 'nobody'}"
            )
        if before.session is not None and before.session not in self.sessions:
            raise InvariantViolation(f"{before.ref} is written by {before.session}, which has ended")
        if before.version < checked.version or before.state != checked.state:
            raise InvariantViolation(
                f"{before.ref} is written as of {_describe_record(before)} and was {checked.state} at version {checked.version}"
            )
        if change.cause and change.who:
            self._check_signature(checked.ref, change)
        if (
            change.cause == "done"
            and self.open_child_counts.get(checked.ref, 0)
            and checked.declared_state.type == "join"
        ):
            raise InvariantViolation(f"{checked.ref} leaves {checked.state} with an open child")
        if (
            change.is_continuation
            and record is not None
            and record.session is not None
            and any(name in self.holds for name in record.hold_names)
        ):
            raise InvariantViolation(f"{checked.ref} goes on to {record.state} though a hold is set")
        if record is None:
            self._remove_record(checked, before)
            return checked
        if record.version <= before.version:
            raise InvariantViolation(f"{before.ref} goes from version {before.version} to {record.version}")
        self._check_arrow(checked, change, record)
        if record.session != before.session:
            if record.session is not None:
                raise InvariantViolation(f"{record.ref} is claimed for {record.session} by a commit")
            if before.session is not None:
                del self.sessions[before.session].claimed_refs[record.ref]
        if record.parent is not None and record.open != checked.open:
            self._count_open_child(record.parent, 1 if record.open else -1)
        self._check_locks(checked, record)
        checked.state, checked.version, checked.session, checked.open = (
            record.state,
            record.version,
            record.session,
            record.open,
        )
        checked.locks, checked.last = record.locks, record
        return checked

    def _check_arrow(self, checked: CheckedRecord, change: Change, record: Record) -> None:
        if record.state != checked.state:
            if not change.cause:
                raise InvariantViolation(
                    f"{checked.ref} goes from {checked.state} to {record.state} without a history entry"
                )
            if (checked.state, record.state) not in self.arrows[checked.ref.kind] and change.cause != "move":
                raise InvariantViolation(
                    f"{checked.ref} goes from {checked.state} to {record.state} by {change.cause}, which is no arrow of its machine"
                )
        declared = checked.machine.find_state(record.state)
        if declared is not None and record.open != declared.open:
            raise InvariantViolation(f"{checked.ref} is {record.state} and {'open' if record.open else 'closed'}")

    def _check_signature(self, ref: Ref, change: Change) -> None:
        """An action requested once is done at most once; clients sign each request with a name of its own."""
        if change.who.startswith("request "):
            signature = (ref, change.who, change.cause, change.why)
            if signature in self.signed_actions:
                raise InvariantViolation(f"{change.cause} of {ref}, requested once by {change.who}, is done twice")
            self.signed_actions[signature] = None

    def _check_locks(self, checked: CheckedRecord, record: Record) -> None:
        """A record owns its locks from the commit that takes them to the commit that leaves the last state that needs them."""
        if not checked.owned_locks and not record.locks:
            return
        asked = {request.name: request for request in map(parse_lock, record.locks)}
        kept = [parse_lock(lock) for lock in checked.owned_locks]
        kept = [r for r in kept if r.name in asked and asked[r.name].sort == r.sort]
        owned = record.locks if record.session is not None else tuple(asked[request.name].to_text() for request in kept)
        declared = checked.machine.find_state(record.state)
        families = declared.locks if declared is not None else ()
        shared_families = declared.shared_locks if declared is not None else ()
        for lock in checked.owned_locks:
            request = parse_lock(lock)
            if request.name not in {parse_lock(each).name for each in owned}:
                if request.family in (shared_families if request.sort == SHARED else families):
                    raise InvariantViolation(f"{checked.ref} loses the lock {lock}, which it needs in {record.state}")
                self._disown_lock(checked, lock)
        self._own_locks(checked, owned)
        self._note_limits(checked.locks, record.locks)

    def _remove_record(self, checked: CheckedRecord, before: Record) -> None:
        ref = checked.ref
        if checked.session is not None:
            self.sessions[checked.session].claimed_refs.pop(ref, None)
        for lock in checked.owned_locks:
            self._disown_lock(checked, lock)
        if checked.parent is not None and checked.open:
            self._count_open_child(checked.parent, -1)
        self.removed_versions[ref] = max(before.version, checked.version)
        del self.records[ref]

    def _count_open_child(self, parent: Ref, by: int) -> None:
        self.open_child_counts[parent] = self.open_child_counts.get(parent, 0) + by

    # --- steps

    def check_step_begin(self, record: Record, claim_version: int) -> None:
        """A step begins: no other run of the record has its claim version."""
        if (record.ref, claim_version) in self.claim_versions:
            raise InvariantViolation(f"two runs of {record.ref} have the claim version {claim_version}")
        self.claim_versions[record.ref, claim_version] = None

    def is_claimed_by(self, ref: Ref, session: str | None) -> bool:
        """Whether the session still has the claim: not so for a late worker."""
        checked = self.records.get(ref)
        return checked is not None and session is not None and checked.session == session


@cache
def arrows_of(machine: Machine) -> frozenset[tuple[str, str]]:
    return frozenset((arrow.source, arrow.target) for arrow in machine.iter_arrows())


def _describe_record(record: Record) -> str:
    return f"{record.state} at version {record.version}" + (f" of {record.session}" if record.session else "")


class RunningStep(NamedTuple):
    process: SimulatedProcess
    number: int
    ref: Ref
    session: str | None


class RunningSteps:
    """The steps that run now, in all processes: no two of one record unless a session was lost, and no session is closed
    while a step of it runs.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.by_key: dict[tuple[str, int], RunningStep] = {}

    @contextmanager
    def track_run(self, process: SimulatedProcess, step_run: m.StepRun) -> Iterator[None]:
        simulation, record = self.simulation, step_run.record
        simulation.checker.check_step_begin(record, step_run.claim_version)
        if record.session in simulation.checker.sessions:
            self._check_concurrent_runs(record)
        key = (process.name, step_run.number)
        self.by_key[key] = RunningStep(process, step_run.number, record.ref, record.session)
        simulation.note(f"begins {record.ref} {record.state} claim version {step_run.claim_version}")
        try:
            yield
        finally:
            del self.by_key[key]
            if not process.is_dead:
                simulation.note(f"ended {record.ref} {record.state}")

    def _check_concurrent_runs(self, record: Record) -> None:
        """Another run of this record must belong to a lost session, and be told to stop unless its process was frozen."""
        for other in self.by_key.values():
            if other.ref != record.ref:
                continue
            if other.session in self.simulation.checker.sessions:
                raise InvariantViolation(f"two steps of {record.ref} run side by side, and no session was lost")
            was_frozen = other.process.was_frozen or self.simulation.faults.counts.get("jump")
            if (
                not was_frozen
                and other.process.worker is not None
                and not other.process.worker.is_told_to_stop(other.number)
            ):
                raise InvariantViolation(
                    f"a step of {record.ref} begins while {other.process.name}, whose session has ended, has not told its own to stop"
                )

    def check_session_close(self, session: str) -> None:
        """Closing a session while its step runs would let a second run begin beside it."""
        for other in self.by_key.values():
            if other.session == session:
                raise InvariantViolation(
                    f"the session {self.simulation.trace.alias_of(session)} is closed while its step of {other.ref} runs"
                )
