"""Bugs that are planted to test the simulator: each breaks one rule that the design depends on.

A bug is a function that breaks the real code through pytest's `monkeypatch`; its docstring says what the rule prevents.
`patch.setattr` raises when the code has no such name, so a bug that no longer applies fails its test.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from waybill import rules
from waybill.engine import Engine
from waybill.machine import Machine, State
from waybill.record import (
    Change,
    ClaimedRecord,
    ClaimLost,
    CommitAnswer,
    CommitGroup,
    CommitResult,
    Documents,
    LockUnavailable,
    Record,
    Ref,
    Store,
    StoreError,
    WorkQueue,
)
from waybill.rules import Machines, transitions
from waybill.shared_commits import SharedAnswer, SharedCommit, commit_shared
from waybill.sim.fault_injecting_store import FaultInjectingStore, find_affected_parents
from waybill.sim.seed_runs import SimulationCase, profile_of
from waybill.sim.world import get_current_world
from waybill.step import Act, Done, New, Wait
from waybill.stores.model import ModelDatabase, ModelStore
from waybill.worker import messages as m
from waybill.worker import store_commands
from waybill.worker.core import WorkerCore
from waybill.worker.core.claim_handler import ClaimHandler
from waybill.worker.core.commit_answer_handler import CommitAnswerHandler
from waybill.worker.core.outcome_handler import OutcomeHandler
from waybill.worker.core.step_runs import StepRuns
from waybill.worker.step_context import WorkerStepContext

Patch = pytest.MonkeyPatch
ORDERS = "tests.simulation.orders:OrdersScenario"


@dataclass(frozen=True)
class Bug:
    plant: Callable[[Patch], None]
    scenario: str
    fault_mix: str  # the fault mix in which it shows; "": any
    problem: str  # a part of the sentence with which it is found

    @property
    def name(self) -> str:
        return self.plant.__name__

    def seeds(self) -> list[int]:
        """The seeds within which it must be found."""
        matching = (
            seed
            for seed in itertools.count()
            if self.fault_mix in ("", profile_of(SimulationCase(seed, "model", self.scenario)).fault_mix)
        )
        return list(itertools.islice(matching, SEEDS))


BUGS: list[Bug] = []
SEEDS = 1000


def bug(
    scenario: str = ORDERS, *, fault_mix: str = "", problem: str
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BUGS.append(Bug(plant, scenario, fault_mix, problem))
        return plant

    return register


# --- the store


@bug(fault_mix="freezes", problem="is written")
def a_commit_is_not_fenced(patch: Patch) -> None:
    """A worker whose claim was given to another comes back and writes (rule 3)."""
    original = ModelDatabase._write

    def write(self: ModelDatabase, change: Change, now: float) -> Record | None:
        if change.before is not None and (current := self.contents.records.get(change.before.ref)) is not None:
            change = replace(change, before=replace(change.before, version=current.version, session=current.session))
        return original(self, change, now)

    patch.setattr(ModelDatabase, "_write", write)


@bug(problem="when claimed, and was")
def a_commit_is_fenced_by_the_version_only_and_a_reaper_does_not_move_it(patch: Patch) -> None:
    """The late commit of a reaped session is taken for a current one (A1, A3)."""
    original = ModelDatabase._write

    def write(self: ModelDatabase, change: Change, now: float) -> Record | None:
        if change.before is not None and (current := self.contents.records.get(change.before.ref)) is not None:
            change = replace(change, before=replace(change.before, session=current.session))
        return original(self, change, now)

    def end_session(self: ModelDatabase, name: str) -> None:
        self.contents.sessions.pop(name, None)
        for record in list(self.contents.records.values()):
            if record.session == name:
                self.contents.records[record.ref] = replace(record, session=None)

    patch.setattr(ModelDatabase, "_write", write)
    patch.setattr(ModelDatabase, "end_session", end_session)


@bug(fault_mix="freezes", problem="which has ended")
def a_claim_by_a_session_that_has_ended_is_accepted(patch: Patch) -> None:
    """A3 (a): the claim would never be released."""
    original = ModelStore._host_of
    patch.setattr(
        ModelStore,
        "_host_of",
        lambda self, session: original(self, session) if session in self._contents.sessions else "host0",
    )


@bug(problem="before its time")
def a_session_is_reaped_at_half_its_ttl(patch: Patch) -> None:
    """A3: expiry is decided by the store's clock and the session's ttl alone."""

    def reap_sessions(self: ModelStore) -> list[str]:
        now = self.now()
        dead = [n for n, (info, ttl) in self._contents.sessions.items() if info.expires - ttl / 2 <= now]
        for name in dead:
            self.database.end_session(name)
        return dead

    patch.setattr(ModelStore, "reap_sessions", reap_sessions)


@bug("crates", fault_mix="none", problem="not quiet")
def open_children_are_counted_inside_the_commit(patch: Patch) -> None:
    """A5: of the last two children that close at once, neither sees that the other has closed."""

    def commit_whole(self: FaultInjectingStore, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        parents = [find_affected_parents(group) for group in groups]
        seen = {
            parent: self.checker.open_child_counts.get(parent, 0)
            for group_parents in parents
            for parent in group_parents
        }
        if self.simulation.scheduler.current is not None:
            self.simulation.reach_point("in the transaction")
        answers = self.store.commit(groups)
        self.simulation.note_commits(groups, answers)
        counted: list[CommitAnswer] = []
        for group, group_parents, answer in zip(groups, parents, answers, strict=True):
            if isinstance(answer, CommitResult):
                closed = [
                    c.before.parent
                    for c in group.changes
                    if c.before and c.before.open and not (c.after and c.after.open)
                ]
                idle = tuple(p for p in group_parents if seen[p] - closed.count(p) <= 0)
                answer = replace(answer, idle_parents=idle)
            counted.append(answer)
        return counted

    patch.setattr(FaultInjectingStore, "_commit_whole", commit_whole)
    patch.setattr(FaultInjectingStore, "_reread_idle_parents", lambda self, groups, answers: answers)


@bug("crates", fault_mix="none", problem="not quiet")
def a_wake_is_lost_while_the_parent_commits_its_wait(patch: Patch) -> None:
    """A5: the children were being checked when the last one closed."""
    original = ModelDatabase._update

    def update(self: ModelDatabase, change: Change, current: Record, after: Record, now: float) -> Record:
        assert change.before is not None
        return original(
            self, replace(change, before=replace(change.before, wake_count=current.wake_count)), current, after, now
        )

    patch.setattr(ModelDatabase, "_update", update)


@bug("transfers", problem="not quiet")
def the_next_waiter_for_a_lock_is_not_unblocked(patch: Patch) -> None:
    """A10: the commit that frees a lock unblocks its first waiter."""
    patch.setattr(ModelDatabase, "unblock_next_waiters", lambda self, locks: 0)


@bug("transfers", fault_mix="none", problem="not quiet")
def a_record_is_blocked_by_a_lock_that_was_freed_meanwhile(patch: Patch) -> None:
    """A10: the lock must be read again in the transaction that blocks the record."""

    def block(self: ModelDatabase, ref: Ref, blocked_by: str) -> None:
        for _ in range(10):
            get_current_world().reach_point("between reading and blocking")
        record = self.contents.records.get(ref)
        if record is not None and record.session is None and record.blocked_by is None:
            self.contents.records[ref] = replace(record, blocked_by=blocked_by)

    patch.setattr(ModelDatabase, "block", block)


@bug("transfers", problem="is owned by")
def two_records_get_the_same_lock(patch: Patch) -> None:
    """A9: a lock is owned by one record."""
    original = ModelDatabase.try_claim

    def try_claim(self: ModelDatabase, ref: Ref, session: str, claims_on_hold: bool) -> ClaimedRecord | str:
        for lock in self.contents.records[ref].locks:
            self.contents.locks.pop(lock, None)
        return original(self, ref, session, claims_on_hold)

    patch.setattr(ModelDatabase, "try_claim", try_claim)


@bug(problem="the submission")
def a_repeated_submission_creates_a_second_record(patch: Patch) -> None:
    """A11: the answer was lost, the submitter submits again."""
    patch.setattr(ModelDatabase, "_find_by_idempotency_key", lambda self, change: None)


@bug(problem="is weighed on")
def a_record_is_claimed_on_a_host_without_its_files(patch: Patch) -> None:
    original = ModelStore.claim

    def claim(self: ModelStore, queues: Sequence[WorkQueue], session: str, limit: int) -> list[ClaimedRecord]:
        hosts = {ref: record.host for ref, record in self._contents.records.items()}
        for ref, record in self._contents.records.items():
            self._contents.records[ref] = replace(record, host="")
        claimed = original(self, queues, session, limit)
        for ref, host in hosts.items():
            self._contents.records[ref] = replace(self._contents.records[ref], host=host)
        return [replace(c, record=self._contents.records[c.record.ref]) for c in claimed]

    patch.setattr(ModelStore, "claim", claim)


@bug(problem="though a hold is set")
def going_on_ignores_holds(patch: Patch) -> None:
    """B14."""
    original = ModelDatabase._update

    def update(self: ModelDatabase, change: Change, current: Record, after: Record, now: float) -> Record:
        holds, self.contents.holds = self.contents.holds, {}
        try:
            return original(self, change, current, after, now)
        finally:
            self.contents.holds = holds

    patch.setattr(ModelDatabase, "_update", update)


# --- the rules


@bug("transfers", problem="loses the lock")
def locks_are_dropped_while_waiting(patch: Patch) -> None:
    """A9 (a): another record takes the lock between two polls."""
    original = transitions._apply_wait

    def wait(machine: Machine, state: State, record: Record, outcome: Wait, who: str) -> Change:
        change = original(machine, state, record, outcome, who)
        assert change.after is not None
        return replace(change, after=replace(change.after, locks=()))

    patch.setattr(transitions, "_apply_wait", wait)


@bug(problem="leaves Gathering with an open child")
def a_join_trusts_one_check_of_its_children(patch: Patch) -> None:
    """Rule 6: whether the children have settled is decided in the parent's own commit."""
    original = transitions._apply_done
    patch.setattr(transitions, "_apply_done", lambda *args: replace(original(*args), requires_children_settled=False))
    handle_children_checked = ClaimHandler.handle_children_checked
    patch.setattr(
        ClaimHandler,
        "handle_children_checked",
        lambda self, message, now: handle_children_checked(self, m.ChildrenChecked(message.step_runs, set()), now),
    )


# --- the worker


@bug(fault_mix="freezes", problem="have the claim version")
def the_core_goes_on_with_a_lost_claim(patch: Patch) -> None:
    """A4: neither the refusal nor the age of its session stops it."""
    handle_refused, watch = CommitAnswerHandler._handle_refused, WorkerCore._watch_session

    def ignore(
        self: CommitAnswerHandler, entry: m.CommitEntry, step_run: m.StepRun, answer: StoreError, now: float
    ) -> None:
        if isinstance(answer, ClaimLost) and not entry.is_save:
            self.claims.run_state(step_run)
        else:
            handle_refused(self, entry, step_run, answer, now)

    def never_old(self: WorkerCore, now: float) -> None:
        self.lease.renewed_at = max(self.lease.renewed_at, now - 1)
        watch(self, now)

    patch.setattr(CommitAnswerHandler, "_handle_refused", ignore)
    patch.setattr(WorkerCore, "_watch_session", never_old)


@bug(fault_mix="lost-answers", problem="still busy")
def an_unknown_answer_does_not_end_the_session(patch: Patch) -> None:
    """A11: its claims are not known, and its heartbeat keeps them for ever."""

    def drain(self: WorkerCore, why: str) -> None:
        for step_run in list(self.step_runs.by_number.values()):
            step_run.is_claim_lost = True
            self.step_runs.signal_stop(step_run)
            self.step_runs.forget(step_run)
        self.step_runs.pending_starts.clear()
        self.step_runs.pending_child_checks.clear()
        self.step_runs.commands.append(m.RecallCommand())

    patch.setattr(WorkerCore, "_drain", drain)


@bug(fault_mix="stops", problem="is closed while its step")
def a_stopping_worker_closes_its_session_at_once(patch: Patch) -> None:
    """B14: a second step would begin beside the one that still runs."""
    original = WorkerCore._watch_session

    def watch(self: WorkerCore, now: float) -> None:
        if self.lease.is_stopping and self.lease.session is not None:
            self.step_runs.commands.append(m.CloseSessionCommand(self.lease.session))
            self._drop_claims("closed")
        original(self, now)

    patch.setattr(WorkerCore, "_watch_session", watch)


@bug(fault_mix="partitions", problem="has not told its own to stop")
def a_worker_does_not_count_the_age_of_its_session(patch: Patch) -> None:
    """A4: cut off from the store, it must tell its steps to stop before others begin."""
    original = WorkerCore._watch_session

    def watch(self: WorkerCore, now: float) -> None:
        self.lease.renewed_at = now
        original(self, now)

    patch.setattr(WorkerCore, "_watch_session", watch)


@bug(problem="have the claim version")
def going_on_keeps_the_claim_version(patch: Patch) -> None:
    """B14, A4: two runs would write under the same names."""
    original = CommitAnswerHandler._handle_committed

    def handle_committed(
        self: CommitAnswerHandler, entry: m.CommitEntry, step_run: m.StepRun, answer: CommitResult, now: float
    ) -> None:
        claim_version = step_run.claim_version
        original(self, entry, step_run, answer, now)
        step_run.claim_version = claim_version

    patch.setattr(CommitAnswerHandler, "_handle_committed", handle_committed)


@bug(fault_mix="stops", problem="met a transient error")
def a_stop_fails_running_records(patch: Patch) -> None:
    """SIGTERM: a deploy fails nothing."""
    original = OutcomeHandler.finish

    def finish(self: OutcomeHandler, step_run: m.StepRun, outcome: Any, now: float) -> None:
        if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
            step_run.is_stopping, outcome = False, OSError("stopped")
        original(self, step_run, outcome, now)

    patch.setattr(OutcomeHandler, "finish", finish)


@bug("crates", fault_mix="crashes", problem="children")
def children_are_created_in_a_commit_of_their_own(patch: Patch) -> None:
    """Rule 5: a state and the children that it announces are written in one commit."""

    def queue_change(
        self: StepRuns,
        step_run: m.StepRun,
        change: Change,
        children: tuple[Change, ...] = (),
        acts: tuple[Act, ...] = (),
        wakes: tuple[Ref, ...] = (),
        readers: tuple[Ref, ...] = (),
    ) -> None:
        self.pending_commits.append(m.CommitEntry(CommitGroup((change,), wakes), step_run, acts=acts, readers=readers))
        if children:
            self.pending_commits.append(m.CommitEntry(CommitGroup(children)))

    patch.setattr(StepRuns, "queue_change", queue_change)


@bug(scenario="admissions", fault_mix="crashes", problem="has given places to")
def acts_are_written_in_a_commit_of_their_own(patch: Patch) -> None:
    """A place is taken in the commit that admits, and given back in the commit that ends."""

    def commit_apart(store: Store, machines: Machines, commits: Sequence[SharedCommit]) -> list[SharedAnswer]:
        answers = commit_shared(store, machines, [replace(each, acts=()) for each in commits])
        apart = [replace(each, group=CommitGroup(())) for each in commits if each.acts]
        commit_shared(store, machines, apart)
        return answers

    patch.setattr(store_commands, "commit_shared", commit_apart)


@bug(scenario="admissions", fault_mix="none", problem="is closed and gets a child")
def a_child_is_created_below_a_closed_parent(patch: Patch) -> None:
    """A6: `if_parent_open` is decided by the commit."""
    patch.setattr(ModelDatabase, "_require_open_parent", lambda self, child: None)


@bug(scenario="admissions", fault_mix="none", problem="run run-")
def the_wakes_of_an_outcome_are_dropped(patch: Patch) -> None:
    """A5: whoever waits for two sources is woken by the commit of each."""
    original = StepRuns.queue_change

    def queue_change(self: StepRuns, *args: Any) -> None:
        original(self, *args[:4])

    patch.setattr(StepRuns, "queue_change", queue_change)


@bug(scenario="admissions", fault_mix="none", problem="never answered")
def requests_of_a_group_are_not_written(patch: Patch) -> None:
    """B11: what a commit requests of a worker is part of it."""
    patch.setattr(ModelDatabase, "add_request", lambda self, request: None)


@bug(fault_mix="none", problem="clients, or action requests")
def an_action_request_is_forgotten(patch: Patch) -> None:
    """B11."""
    original = CommitAnswerHandler._handle_committed

    def handle_session_renewed(self: WorkerCore, message: m.SessionRenewed, now: float) -> None:
        if message.renewal.alive:
            self.lease.renewed_at = message.sent_at
        else:
            self._drop_claims("the session has expired")

    patch.setattr(WorkerCore, "_handle_session_renewed", handle_session_renewed)
    patch.setattr(
        CommitAnswerHandler,
        "_handle_committed",
        lambda self, entry, step_run, answer, now: original(
            self, entry, step_run, replace(answer, action_requests=()), now
        ),
    )


@bug(fault_mix="crashes", problem="were created")
def children_are_created_without_a_cursor(patch: Patch) -> None:
    """B16: after a crash the pages that were written are written again."""

    def spawn_each(
        self: WorkerStepContext, children: Iterable[New], cursor: str = "spawned", page_size: int = 200
    ) -> int:
        news = list(children)
        for n in range(0, len(news), page_size):
            self.spawn(news[n : n + page_size])
        return len(news)

    patch.setattr(WorkerStepContext, "spawn_each", spawn_each)


@bug(problem="is deleted, and has items")
def claimed_children_are_not_counted(patch: Patch) -> None:
    """B16: a claimed child still exists."""
    original = WorkerStepContext.remove_children
    patch.setattr(WorkerStepContext, "remove_children", lambda self, kind: original(self, kind) and 0)
    patch.setattr(WorkerStepContext, "count_by_state", lambda self, kind, parent=None: {})


@bug("transfers", problem="met a transient error")
def an_unavailable_lock_is_a_transient_error(patch: Patch) -> None:
    """A9 (b): the record waits for the lock, and has not failed."""
    original = CommitAnswerHandler._handle_refused

    def handle_refused(
        self: CommitAnswerHandler, entry: m.CommitEntry, step_run: m.StepRun, answer: StoreError, now: float
    ) -> None:
        if isinstance(answer, LockUnavailable):
            self.step_runs.reply(step_run, OSError(str(answer)))
        else:
            original(self, entry, step_run, answer, now)

    patch.setattr(CommitAnswerHandler, "_handle_refused", handle_refused)


# --- the engine


@bug(fault_mix="freezes", problem="is done twice")
def an_action_request_is_applied_by_every_reader(patch: Patch) -> None:
    def apply_action_requests(self: Engine, limit: int = 100) -> int:
        for request in self.store.list_action_requests(limit):
            record = self.store.get(*request.ref)
            if record.session is None:
                change = rules.answer_action_request(self.machines[request.ref.kind], record, request, store=self.store)
                answer = self.store.commit([CommitGroup((change,))])[0]
                if isinstance(answer, CommitResult):
                    self._wake_after(answer)
        return 1

    patch.setattr(Engine, "apply_action_requests", apply_action_requests)


@bug(fault_mix="none", problem="not quiet")
def an_action_that_closes_a_child_does_not_wake_its_parent(patch: Patch) -> None:
    """A5."""
    patch.setattr(Engine, "_wake_after", lambda self, answer, readers=(): None)


# --- events


@bug(scenario="bulletins", fault_mix="crashes", problem="has noted an event twice")
def the_cursor_moves_after_what_the_handler_writes(patch: Patch) -> None:
    original = WorkerStepContext.save

    def save(self: WorkerStepContext, documents: Documents = (), **effects: Any) -> Record:
        if effects.get("acts"):
            original(self, **effects)
            effects = {}
        return original(self, documents, **effects)

    patch.setattr(WorkerStepContext, "save", save)


@bug(scenario="bulletins", fault_mix="none", problem="and has told of")
def an_event_is_left_out_of_the_commit_that_ends_the_record(patch: Patch) -> None:
    original = OutcomeHandler._settle

    def settle(self: OutcomeHandler, run: m.StepRun, machine: Machine, outcome: Any, *more: Any) -> None:
        if isinstance(outcome, Done):
            outcome = dataclasses.replace(outcome, events=())
        original(self, run, machine, outcome, *more)

    patch.setattr(OutcomeHandler, "_settle", settle)
