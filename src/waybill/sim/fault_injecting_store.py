"""A process's connection to its store: every call is a point before and after it, and not every answer arrives.

    point -> (refused: nothing is written) -> the store -> the invariant checker sees the true answer -> point ->
    (lost: CommitOutcomeUnknown) -> the caller

With `splits_commits` it shows what a store with one writer cannot: the groups of one commit are written one by one, with
other processes in between and a cut in the middle, and whether a parent has open children is read after the commit, when
others may have written already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from waybill.record import (
    MAX_PAGE,
    ActionRequest,
    ClaimedRecord,
    CommitAnswer,
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    DueWaits,
    Finding,
    Ref,
    SessionRenewal,
    Store,
    StoreError,
    StoreUnavailable,
    WorkQueue,
)
from waybill.sim.fault_injecting_reads import LOW_WEIGHT, FaultInjectingReads, T
from waybill.sim.fibers import ProcessCrashed
from waybill.sim.invariant_checker import InvariantViolation

if TYPE_CHECKING:
    from waybill.sim.process import SimulatedProcess

HIGH_WEIGHT = 3.0  # of a fault where something is written


class FaultInjectingStore(FaultInjectingReads):
    """One connection, with faults."""

    def __init__(self, process: SimulatedProcess, store: Store, *, splits_commits: bool) -> None:
        self.url = store.url
        self.process, self.store, self.splits_commits = process, store, splits_commits
        self.simulation = process.simulation
        self.checker = self.simulation.checker

    # --- one call

    def _send_call(self, method: str, weight: float = LOW_WEIGHT) -> None:
        """The way to the store."""
        process = self.process
        if process.is_dead:
            raise ProcessCrashed
        process.simulation.reach_point(method, weight)
        if process.wire_fault == "refused":
            process.wire_fault = None
            raise StoreUnavailable("the store cannot be reached (simulated)")
        if max(process.simulation.faults.unavailable_until, process.cut_until) > process.simulation.scheduler.now:
            raise StoreUnavailable("the store is unavailable (simulated)")

    def _receive_answer(self, method: str, writes: bool = True, weight: float = LOW_WEIGHT) -> None:
        """The way back."""
        process = self.process
        process.simulation.reach_point(f"{method} done", weight)
        if writes and process.wire_fault == "lost":
            process.wire_fault = None
            raise CommitOutcomeUnknown("the answer was lost (simulated)")

    def _call_store(self, method: str, call: Callable[[], T], writes: bool = False, weight: float = 1.0) -> T:
        self._send_call(method, weight)
        answer = call()
        self._receive_answer(method, writes, weight)
        return answer

    # --- commits

    def commit(self, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        self._send_call("commit", HIGH_WEIGHT)
        answers = self._commit_split(groups) if self.splits_commits else self._commit_whole(groups)
        try:
            self._receive_answer("commit", weight=HIGH_WEIGHT)
        except CommitOutcomeUnknown as lost:
            if self.simulation.rng.random() < 0.5:
                raise
            return [lost if isinstance(a, CommitResult) else a for a in answers]
        return answers

    def _commit_whole(self, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        answers = self.store.commit(groups)
        self.simulation.note_commits(groups, answers)
        return answers

    def _commit_split(self, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        answers: list[CommitAnswer] = []
        chance = self.simulation.draw_chance
        rest = list(groups)
        while rest:
            n = 1 + sum(chance(0.7) for _ in range(len(rest) - 1))
            chunk, rest = rest[:n], rest[n:]
            answers += self._reread_idle_parents(chunk, self._commit_whole(chunk))
            if rest:
                self.simulation.reach_point("commit goes on", HIGH_WEIGHT)
                if self.process.wire_fault in ("lost", "refused"):
                    # Cut in the middle: the next group may or may not have been written, the others were not sent.
                    self.process.wire_fault = None
                    if chance(0.5):
                        self._commit_whole(rest[:1])
                    answers.append(CommitOutcomeUnknown("the answer was lost (simulated)"))
                    answers += [StoreUnavailable("the store cannot be reached (simulated)")] * (len(rest) - 1)
                    break
        return answers

    def _reread_idle_parents(self, groups: Sequence[CommitGroup], answers: list[CommitAnswer]) -> list[CommitAnswer]:
        """Which parents are idle is read after the commit."""
        reread: list[CommitAnswer] = []
        for group, answer in zip(groups, answers, strict=True):
            parents = find_affected_parents(group) if isinstance(answer, CommitResult) else ()
            if not parents or not isinstance(answer, CommitResult):
                reread.append(answer)
                continue
            self.simulation.reach_point("reread idle parents", HIGH_WEIGHT)
            busy_parents = self.store.parents_with_open_children(parents)
            reread.append(
                replace(
                    answer,
                    idle_parents=tuple(p for p in parents if p in self.checker.records and p not in busy_parents),
                )
            )
        return reread

    # --- sessions and claims

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        self._send_call("open_session")
        name = self.store.open_session(host=host, ttl=ttl, about=about)
        self.checker.check_session_opened(name, self.process.name, ttl)
        self.simulation.trace.note_session_opened(name)
        self._receive_answer("open_session")
        return name

    def renew_session(self, session: str, progress: Mapping[str, Any] | None = None) -> SessionRenewal:
        self._send_call("renew_session")
        answer = self.store.renew_session(session, progress)
        self.checker.check_session_renewed(session, answer.alive)
        self.simulation.note(
            f"renew {session}: {'alive' if answer.alive else 'gone'}, requested {[a.action for a in answer.action_requests]}"
        )
        self._receive_answer("renew_session")
        return answer

    def close_session(self, session: str) -> None:
        self._send_call("close_session")
        self.simulation.running_steps.check_session_close(session)
        self.store.close_session(session)
        self.checker.note_session_closed(session)
        self.simulation.note(f"close {session}")
        self.simulation.cluster.hint_workers()
        self._receive_answer("close_session")

    def claim(self, queues: Sequence[WorkQueue], session: str, limit: int) -> list[ClaimedRecord]:
        self._send_call("claim", 1.0)
        simulation = self.simulation
        if simulation.draw_chance(simulation.profile.empty_claim_rate):
            limit = int(limit * simulation.rng.random())  # another worker claims them first
            if not limit:
                return []
        claimed = self.store.claim(queues, session, limit)
        if len(claimed) > limit:
            raise InvariantViolation(f"{len(claimed)} records claimed, {limit} requested")
        self.checker.check_claims(session, claimed)
        if claimed:
            simulation.trace.note_claims(session, claimed)
        self._receive_answer("claim", weight=HIGH_WEIGHT if claimed else LOW_WEIGHT)
        return claimed

    def claim_one(self, kind: str, id: str, session: str) -> ClaimedRecord:
        self._send_call("claim_one")
        claimed = self.store.claim_one(kind, id, session)
        self.checker.check_claims(session, [claimed])
        self.simulation.trace.note_claims(session, [claimed])
        self._receive_answer("claim_one")
        return claimed

    def reap_sessions(self) -> list[str]:
        self._send_call("reap_sessions")
        names = self.store.reap_sessions()
        if names:
            self.checker.check_sessions_reaped(names)
            self.simulation.note(f"reap {' '.join(sorted(map(self.simulation.trace.alias_of, names)))}")
            self.simulation.cluster.hint_workers()
        self._receive_answer("reap_sessions")
        return names

    # --- action requests, holds, maintenance

    def request_action(self, request: ActionRequest) -> bool:
        self._send_call("request_action")
        is_left = self.store.request_action(request)
        self.simulation.note(f"request {request.ref} to {request.action} for {request.who}: {is_left}")
        self._receive_answer("request_action")
        return is_left

    def set_hold(self, name: str, who: str = "", why: str = "") -> None:
        self._send_call("set_hold")
        self.store.set_hold(name, who, why)
        self.checker.holds[name] = None
        self.simulation.note(f"set hold {name}")
        self._receive_answer("set_hold")

    def clear_hold(self, name: str) -> None:
        self._send_call("clear_hold")
        self.store.clear_hold(name)
        self.checker.holds.pop(name, None)
        self.simulation.cluster.hint_workers()
        self.simulation.note(f"clear hold {name}")
        self._receive_answer("clear_hold")

    def release_due_waits(self, limit: int = MAX_PAGE) -> DueWaits:
        self._send_call("release_due_waits")
        due = self.store.release_due_waits(limit)
        if due.released_count:
            self.simulation.note(f"release {due.released_count}")
            self.simulation.cluster.hint_workers()
        self._receive_answer("release_due_waits")
        return due

    def maintain_indexes(self, limit: int = MAX_PAGE) -> int:
        self._send_call("maintain_indexes")
        count = self.store.maintain_indexes(limit)
        if count:
            self.simulation.note(f"maintain {count}")
            self.simulation.cluster.hint_workers()
        self._receive_answer("maintain_indexes")
        return count

    def repair(self, finding: Finding) -> bool:
        return self._call_store("repair", lambda: self.store.repair(finding), writes=True)

    def remove_foreign_lock(self, name: str) -> bool:
        return self._call_store("remove_foreign_lock", lambda: self.store.remove_foreign_lock(name), writes=True)

    def remember(self, name: str, value: str) -> str:
        return self._call_store("remember", lambda: self.store.remember(name, value), writes=True)

    # --- not in a simulation

    def watch(self, timeout: float) -> bool:
        raise StoreError("a simulated worker does not watch the store: its sleep is replaced")

    def interrupt_watch(self) -> None:
        raise StoreError("a simulated worker does not watch the store: its sleep is replaced")

    def close(self) -> None:
        if not self.process.is_dead:
            self.simulation.backend.disconnect(self.store)


class DirectStore(FaultInjectingStore):
    """A connection without faults: for what is created before the simulation begins."""

    def _send_call(self, method: str, weight: float = 0.0) -> None:
        return

    def _receive_answer(self, method: str, writes: bool = True, weight: float = 0.0) -> None:
        return


def find_affected_parents(group: CommitGroup) -> tuple[Ref, ...]:
    """The parents of the records that the group closes."""
    closed = [c.before.parent for c in group.changes if c.before and c.before.open and not (c.after and c.after.open)]
    return tuple(dict.fromkeys(p for p in closed if p is not None))
