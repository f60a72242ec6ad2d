"""Why a record is not moving, and what would move it: one sentence each, the same for pages, API and command line.

The reasons, in the order in which they are looked for:

    ended            nothing leaves its state
    working          a worker has claimed it
    failed           a step gave up
    retry            a step failed and is tried again at a time
    hold             a hold stops it, or sent it to rest
    pause            the queue of its state is paused
    lock             another record owns a lock that it needs
    space            it waits for disk space
    children         it waits until its children have settled
    timer            its step looks again at a time
    person           a person, or another record, decides
    no-worker        no worker that is alive serves its state
    queue            it waits for its turn
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict

from waybill.machine import FAILED, Machine
from waybill.record import OwnedLock, Record, SessionInfo, Store
from waybill.rules import Machines, list_pause_holds

Reason = Literal[
    "ended", "working", "failed", "retry", "hold", "pause", "lock", "space", "children", "timer", "person", "no-worker", "queue"
]  # fmt: skip
# those of records that do not move by themselves, with what a list of them is called; the urgent ones first
STANDSTILL_REASONS: Mapping[str, str] = {
    "no-worker": "No worker serves their state",
    "pause": "Their queue is paused",
    "hold": "A hold stops them",
    "lock": "Another record owns their lock",
    "space": "They wait for disk space",
    "retry": "A step failed and is tried again",
    "person": "A person decides",
    "children": "They wait for their children",
    "timer": "Their step looks again later",
    "queue": "They wait for a free worker",
}
SPACE_STATE_HINT = "disk space"  # begins nowhere else: the message of a record that waits for it


class StandstillView(TypedDict):
    reason: Reason
    sentence: str  # why it is not moving
    remedy: str  # what would move it


class StandstillReader:
    """Explains many records with one read of holds, sessions and locks."""

    def __init__(self, store: Store, machines: Machines) -> None:
        self._store = store
        self._machines = machines
        self._holds = store.list_holds()
        now = store.now()
        self._sessions = [s for s in store.list_sessions() if s.expires > now and not s.about.get("server")]
        self._lock_owners: dict[str, OwnedLock | None] = {}

    def explain(self, record: Record) -> StandstillView:
        machine = self._machines[record.kind]
        state = machine.find_state(record.state)
        if state is None:
            return _view(
                "person",
                f"This release does not declare the state {record.state}.",
                "An operator moves it by hand: `waybill move`.",
            )
        if state.type == "end":
            return _view("ended", state.description, "Nothing: it has ended.")
        if record.session is not None:
            return _view(
                "working", f"{self._describe_session(record.session)} works on it.", "It moves when the step ends."
            )
        if record.blocked_by is not None and record.blocked_by.startswith("lock "):
            return self._explain_lock(record.blocked_by.removeprefix("lock "))
        if record.blocked_by is not None and record.blocked_by.startswith("hold "):
            return self._explain_hold([record.blocked_by.removeprefix("hold ")])
        if record.blocked_by == "children":
            return _view(
                "children", "It waits until its children have settled.", "It goes on by itself with the last of them."
            )
        if record.blocked_by == "wait":
            return self._explain_wait(record, state.max_tries if state.on_fail is not None else None)
        if not state.works:
            return self._explain_rest(machine, record)
        paused = sorted(list_pause_holds(machine, record.state) & set(self._holds))
        if paused:
            return _view(
                "pause", f"Its queue is paused: {self._describe_hold(paused[0])}.", f"Clear the hold {paused[0]}."
            )
        if not self._is_served(machine, record):
            where = f" on the host {record.host}, which has its working files" if record.host else ""
            return _view(
                "no-worker",
                f"No worker that is alive serves {machine.name}.{record.state}{where}.",
                "`waybill work` starts one.",
            )
        return _view(
            "queue", "It waits for a free worker.", "It goes on by itself; a lower priority number brings it forward."
        )

    def _explain_wait(self, record: Record, max_tries: int | None) -> StandstillView:
        if record.error_count:
            tries = f"{record.error_count} of {max_tries} tries" if max_tries else f"{record.error_count} tries"
            return _view("retry", f"{tries} failed: {record.message}", "It is tried again by itself.")
        if SPACE_STATE_HINT in record.message.lower():
            return _view("space", record.message, "It goes on when there is space on the working disk.")
        return _view(
            "timer", record.message or "Its step waits for something outside.", "Its step looks again by itself."
        )

    def _explain_lock(self, name: str) -> StandstillView:
        owner = self._find_lock_owner(name)
        if owner is None:
            return _view("lock", f"It waits for the lock {name}.", "It goes on by itself when the lock is free.")
        by = str(owner.owners[0]) if owner.owners else "another service"
        if owner.owner_count == 1:
            by_whom, who = f"which {by} owns", f"{by} has"
        else:
            most = f", {owner.limit} at most" if owner.limit is not None else ""
            by_whom, who = (
                f"which {by} and {owner.owner_count - 1} more own ({owner.sort}{most})",
                "enough of them have",
            )
        return _view("lock", f"It waits for the lock {name}, {by_whom}.", f"It goes on by itself when {who} moved on.")

    def _explain_hold(self, names: Sequence[str]) -> StandstillView:
        about = " and ".join(self._describe_hold(name) for name in names)
        return _view("hold", f"Stopped by {about}.", f"Clear the hold {names[0]}.")

    def _explain_rest(self, machine: Machine, record: Record) -> StandstillView:
        actions = [action.name for action in machine.list_actions_from(record.state)]
        remedy = f"Somebody takes an action: {', '.join(actions)}." if actions else "Something outside moves it."
        if is_failed_state(machine, record.state):
            return _view("failed", record.message or "Its step gave up.", remedy)
        if any(state.on_hold == record.state for state in machine.states):
            in_force = [name for name in record.hold_names if name in self._holds]
            if in_force:
                return self._explain_hold(in_force)
            return _view("hold", record.message or "It was held.", remedy)
        state = machine.find_state(record.state)
        return _view("person", record.message or (state.description if state is not None else ""), remedy)

    def _describe_hold(self, name: str) -> str:
        about = self._holds.get(name)
        return f"the hold {name} ({about})" if about else f"the hold {name}"

    def _describe_session(self, name: str) -> str:
        session = next((s for s in self._sessions if s.name == name), None)
        return f"A worker on {session.host}" if session is not None else "A worker that has not been heard of lately"

    def _is_served(self, machine: Machine, record: Record) -> bool:
        return any(
            (not record.host or session.host == record.host) and _serves(session, machine, record.state)
            for session in self._sessions
        )

    def _find_lock_owner(self, name: str) -> OwnedLock | None:
        if name not in self._lock_owners:
            before = name[:-1] + chr(max(0, ord(name[-1]) - 1))  # just before it, in the order of names
            found = self._store.list_locks(after=before, limit=1000)
            self._lock_owners[name] = next((lock for lock in found if lock.name == name), None)
        return self._lock_owners[name]


def is_failed_state(machine: Machine, state: str) -> bool:
    """Whether permanent errors lead here."""
    return state == FAILED or any(each.on_fail == state for each in machine.states)


def _serves(session: SessionInfo, machine: Machine, state: str) -> bool:
    """Whether a worker has announced the queue; one that announces nothing serves everything."""
    queues: Collection[Any] = session.about.get("queues") or ()
    return not queues or f"{machine.name}.{state}" in queues or machine.name in queues


def _view(reason: Reason, sentence: str, remedy: str) -> StandstillView:
    return {"reason": reason, "sentence": sentence, "remedy": remedy}
