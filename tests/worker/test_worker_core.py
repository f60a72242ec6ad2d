"""The worker's pure core: which commands follow which messages.

No store, no threads, no clock but the numbers given here.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.worker.worker_fixture import build_machines
from waybill import rules
from waybill.errors import NotFound
from waybill.machine import RESUME, Machine, action, end, rest, retired, work
from waybill.record import (
    ActionRequest,
    Change,
    ClaimedRecord,
    ClaimLost,
    CommitOutcomeUnknown,
    CommitResult,
    CommitTooLarge,
    Conflict,
    LockUnavailable,
    Record,
    Ref,
    SessionRenewal,
    StoreError,
    StoreUnavailable,
    WorkQueue,
)
from waybill.rules import Machines
from waybill.step import Done, Fail, New, StepStopped, Wait
from waybill.worker import messages as m
from waybill.worker.core import MAX_CLAIM_SECONDS, MAX_STATES_PER_CLAIM, POLL_SECONDS, RECHECK_SECONDS, WorkerCore
from waybill.worker.core.worker_settings import queues_of

TTL = 15.0


def answer(machine: Machine, record: Record, request: ActionRequest) -> Change:
    return rules.answer_action_request(machine, record, request, store=None)  # type: ignore[arg-type]


class Driver:
    """Sends messages, collects commands, and answers as the store would."""

    def __init__(self, *machines: Machine, threads: int = 2, **options: Any) -> None:
        machines = machines or build_machines()
        for machine in machines:
            for state in machine.states:
                if state.type == "work":
                    machine.bound_steps.setdefault(state.name, lambda record, ctx: Done())
        self.machines = Machines.from_machines(machines)
        self.core = WorkerCore(
            self.machines, queues_of(self.machines), who="w", answer_request=answer, threads=threads, ttl=TTL, **options
        )
        self.now = 100.0
        self.seen: list[m.CoreCommand] = []

    def tick(self) -> list[m.CoreCommand]:
        commands = self.core.tick(self.now)
        self.seen += commands
        return commands

    def on(self, event: m.CoreMessage) -> None:
        self.core.receive(event, self.now)

    def opened(self) -> Driver:
        assert [type(c) for c in self.tick()] == [m.OpenSessionCommand]
        self.on(m.SessionOpened("s1", self.now))
        return self

    def next(self, kind: type) -> Any:
        """Tick until that command comes; what the core needs on the way is answered."""
        for _ in range(10):
            for command in self.tick():
                if type(command) is kind:
                    return command
                if isinstance(command, m.ReadHoldsCommand):
                    self.on(m.HoldsRead(self.core.polling.holds))
                elif isinstance(command, m.ReleaseWaitsCommand):
                    self.on(m.WaitsReleased(0, None))
        raise AssertionError(f"no {kind.__name__}; the core returned {self.seen}")

    def take(self, *records: Record, **fields: Any) -> list[m.StepRun]:
        """Claim these and start them."""
        self.next(m.ClaimCommand)
        self.on(m.RecordsClaimed([ClaimedRecord(r, **fields) for r in records], 10))
        return list(self.core.step_runs.by_number.values())

    def committed(self, command: m.CommitCommand, *answers: Any) -> None:
        self.on(
            m.CommitAnswered(
                command.entries,
                [a if a is not None else committed(e) for e, a in zip(command.entries, answers, strict=True)],
            )
        )


def committed(entry: m.CommitEntry, **fields: Any) -> CommitResult:
    after = entry.group.changes[0].after
    assert after is not None
    return CommitResult((replace(after, version=after.version + 1, **fields),))


def parcel(id: str = "pcl1", state: str = "Packing", **fields: Any) -> Record:
    return Record("parcel", id, state, **{"session": "s1", "version": 10, **fields})


def started(driver: Driver) -> list[m.StepRun]:
    return list(driver.next(m.StartStepsCommand).step_runs)


def done(driver: Driver, step_run: m.StepRun, outcome: Any = None) -> m.CommitCommand:
    driver.on(m.StepEnded(step_run, outcome or Done(), 0.001))
    commit = driver.next(m.CommitCommand)
    assert isinstance(commit, m.CommitCommand)
    return commit


def test_holds_are_read_before_every_claim_and_a_paused_queue_is_left_out() -> None:
    driver = Driver().opened()
    commands = driver.tick()
    assert not any(isinstance(c, m.ClaimCommand) for c in commands)
    driver.on(m.HoldsRead(frozenset({"queue/parcel", "queue/crate.Filling"})))
    claim = driver.next(m.ClaimCommand)
    assert {(r.kind, r.state) for r in claim.queues} == {("crate", "Waiting"), ("crate", "Deleting")}


def test_a_queue_of_a_state_with_on_hold_says_so() -> None:
    claim = Driver().opened().next(m.ClaimCommand)
    assert WorkQueue("parcel", "Packing", True) in claim.queues
    assert WorkQueue("parcel", "Sending", False) in claim.queues


def test_B3_an_empty_claim_is_repeated_once_soon_and_then_slowly() -> None:
    driver = Driver().opened()
    driver.on(m.WorkHinted())
    driver.next(m.ClaimCommand)
    driver.on(m.RecordsClaimed([], 2))
    sleep = driver.next(m.SleepCommand)
    assert sleep.until == pytest.approx(driver.now + RECHECK_SECONDS)
    assert sleep.watches_store
    driver.now = sleep.until
    driver.next(m.ClaimCommand)
    driver.on(m.RecordsClaimed([], 2))
    assert driver.next(m.SleepCommand).until > driver.now + 1
    driver.now += POLL_SECONDS + 0.1
    driver.next(m.ClaimCommand)  # hints are lossy


def test_steps_that_have_ended_are_committed_together() -> None:
    driver = Driver().opened()
    driver.take(parcel("a"), parcel("b"))
    a, b = started(driver)
    driver.on(m.StepEnded(a, Done(), 0.001))
    driver.on(m.StepEnded(b, Done(), 0.001))
    assert len(driver.next(m.CommitCommand).entries) == 2


def test_B14_a_claim_goes_on_to_the_next_state_with_a_new_claim_version() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    assert step_run.claim_version == 10
    commit = done(driver, step_run)
    change = commit.entries[0].group.changes[0]
    assert change.is_continuation
    driver.committed(commit, None)
    (again,) = started(driver)
    assert (again.record.state, again.claim_version) == ("Sending", 11)


def test_B14_a_record_answered_without_its_claim_is_forgotten() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    commit = done(driver, started(driver)[0])
    driver.committed(commit, committed(commit.entries[0], session=None))
    assert not driver.core.step_runs.by_number


def long_table() -> Machine:
    names = [f"S{n}" for n in range(20)]
    states = (
        *(work(a, to=b, description="") for a, b in zip(names, (*names[1:], "E"), strict=True)),
        rest("Failed", description="", settled=True),
        end("E", description=""),
    )
    return Machine(
        name="long",
        plural="longs",
        prefix="l",
        description="",
        states=states,
        actions=(action("resume", "Failed", RESUME, ""),),
    )


def test_B14_a_claim_lasts_a_limited_number_of_states() -> None:
    driver = Driver(long_table()).opened()
    driver.take(Record("long", "l1", "S0", session="s1", version=1))
    passed = 0
    while True:
        commit = done(driver, started(driver)[0])
        if not commit.entries[0].group.changes[0].is_continuation:
            break
        passed += 1
        driver.committed(commit, None)
    assert passed == MAX_STATES_PER_CLAIM


def test_B14_a_claim_lasts_a_limited_time() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    driver.now += MAX_CLAIM_SECONDS - 1
    driver.on(m.SessionRenewed(SessionRenewal(True), driver.now))
    driver.now += 2
    assert not done(driver, step_run).entries[0].group.changes[0].is_continuation


def test_A4_steps_are_told_to_stop_at_two_thirds_and_dropped_at_the_whole_ttl() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    driver.now += TTL / 2
    driver.on(m.StoreUnreachable())  # renewals do not get through
    assert not any(isinstance(c, m.SignalStopCommand) for c in driver.tick())
    driver.now += TTL / 6 + 0.1
    assert any(isinstance(c, m.SignalStopCommand) and c.step_run is step_run for c in driver.tick())
    driver.now += TTL / 3
    driver.tick()
    assert driver.core.lease.session is None
    driver.on(m.StepEnded(step_run, Done(), 1.0))  # a late step's outcome is ignored
    assert not driver.core.step_runs.pending_commits


def test_A4_a_sessions_life_counts_from_before_the_renewal_was_sent() -> None:
    driver = Driver().opened()
    sent = driver.now + 5
    driver.now += 10
    driver.on(m.SessionRenewed(SessionRenewal(True), sent))
    assert driver.core.lease.renewed_at == sent


def test_an_expired_session_is_replaced_and_its_claims_are_lost() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    driver.on(m.SessionRenewed(SessionRenewal(False), driver.now))
    assert step_run.is_claim_lost
    commands = [*driver.tick(), *driver.tick()]
    assert any(isinstance(c, m.OpenSessionCommand) for c in commands)
    assert any(isinstance(c, m.SignalStopCommand) for c in commands)
    driver.on(m.SessionOpened("s2", driver.now))
    driver.on(m.RecordsClaimed([ClaimedRecord(parcel(session="s1"))], 1))  # claimed by the session that is gone
    assert not [t for t in driver.core.step_runs.by_number.values() if not t.is_claim_lost]


def test_A11_an_unknown_outcome_commits_nothing_more_and_closes_when_the_steps_have_ended() -> None:
    driver = Driver().opened()
    driver.take(parcel("a"), parcel("b"))
    a, b = started(driver)
    driver.committed(done(driver, a), CommitOutcomeUnknown())
    assert any(isinstance(c, m.SignalStopCommand) and c.step_run is b for c in driver.tick())
    assert not any(
        isinstance(c, (m.CloseSessionCommand, m.CommitCommand, m.ClaimCommand, m.RenewSessionCommand))
        for c in driver.tick()
    )
    driver.on(m.StepEnded(b, Done(), 0.1))
    commands = driver.tick()
    assert any(isinstance(c, m.CloseSessionCommand) and c.session == "s1" for c in commands)
    assert not any(isinstance(c, m.CommitCommand) for c in commands)
    driver.next(m.OpenSessionCommand)


def test_a_step_that_waits_for_its_save_is_stopped_when_the_session_is_lost() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    driver.on(m.SaveRequested(step_run, {"a": {}}))
    driver.on(m.SessionFailed("gone"))
    (reply,) = [c for c in driver.tick() if isinstance(c, m.ReplyCommand)]
    assert isinstance(reply.result, StepStopped)


def test_a_refused_save_is_answered_to_the_step() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    driver.on(m.SaveRequested(step_run, {"a": {}}, children=(New("boat"),)))
    (reply,) = [c for c in driver.tick() if isinstance(c, m.ReplyCommand)]
    assert isinstance(reply.result, NotFound)
    driver.on(m.SaveRequested(step_run, {"a": {}}))
    driver.committed(driver.next(m.CommitCommand), CommitTooLarge())
    assert isinstance(driver.next(m.ReplyCommand).result, CommitTooLarge)


def test_A9_an_unavailable_lock_ends_the_step_and_blocks_the_record() -> None:
    driver = Driver().opened()
    driver.take(parcel(state="Sending"))
    (step_run,) = started(driver)
    driver.on(m.SaveRequested(step_run, locks=("van/1",)))
    driver.committed(driver.next(m.CommitCommand), LockUnavailable("held", "van/1"))
    assert isinstance(driver.next(m.ReplyCommand).result, StepStopped)
    change = done(driver, step_run, StepStopped()).entries[0].group.changes[0]
    assert change.after is not None
    assert (change.after.blocked_by, change.after.locks, change.after.session, change.cause) == (
        "lock van/1",
        ("van/1",),
        None,
        "",
    )


def test_A5_parents_without_open_children_are_woken_and_the_wake_is_repeated_until_committed() -> None:
    driver = Driver().opened()
    driver.take(parcel(state="Sending", parent=Ref("crate", "c1")))
    commit = done(driver, started(driver)[0])
    driver.committed(commit, replace(committed(commit.entries[0]), idle_parents=(Ref("crate", "c1"),)))
    wake = driver.next(m.CommitCommand)
    assert wake.entries[0].group.wake == (Ref("crate", "c1"),)
    driver.committed(wake, CommitOutcomeUnknown())
    assert driver.core.lease.session == "s1"
    driver.now += 1
    assert driver.next(m.CommitCommand).entries[0].group.wake == (Ref("crate", "c1"),)


def test_D1_the_children_of_a_join_are_checked_before_anything_runs() -> None:
    driver = Driver().opened()
    crate = Record("crate", "c1", "Waiting", session="s1", version=3)
    driver.take(crate)
    look = driver.next(m.CheckChildrenCommand)
    driver.on(m.ChildrenChecked(look.step_runs, {crate.ref}))
    change = driver.next(m.CommitCommand).entries[0].group.changes[0]
    assert change.after is not None
    assert (change.after.blocked_by, change.cause) == ("children", "")


def test_D1_a_join_with_a_child_created_meanwhile_goes_on_waiting() -> None:
    driver = Driver().opened()
    crate = Record("crate", "c1", "Waiting", session="s1", version=3)
    driver.take(crate)
    driver.on(m.ChildrenChecked(driver.next(m.CheckChildrenCommand).step_runs, set()))
    commit = driver.next(m.CommitCommand)
    assert commit.entries[0].group.changes[0].requires_children_settled
    driver.committed(commit, Conflict())
    after = driver.next(m.CommitCommand).entries[0].group.changes[0].after
    assert after is not None
    assert after.blocked_by == "children"


def test_an_unavailable_store_gets_the_same_commit_again() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    commit = done(driver, started(driver)[0])
    driver.committed(commit, StoreUnavailable())
    assert isinstance(driver.tick()[-1], m.SleepCommand)
    driver.now += 1
    again = driver.next(m.CommitCommand)
    assert again.entries[0].group == commit.entries[0].group


def test_a_lost_claim_is_dropped_and_the_others_go_on() -> None:
    driver = Driver().opened()
    driver.take(parcel("a"), parcel("b"))
    a, b = started(driver)
    driver.on(m.StepEnded(a, Done(), 0.001))
    driver.on(m.StepEnded(b, Done(), 0.001))
    driver.committed(driver.next(m.CommitCommand), ClaimLost(), None)
    assert [t.record.id for t in started(driver)] == ["b"]
    assert a.number not in driver.core.step_runs.by_number


@pytest.mark.parametrize("refusal", [CommitTooLarge(), StoreError("odd")])
def test_a_change_that_cannot_be_stored_fails_with_the_reason(refusal: StoreError) -> None:
    driver = Driver().opened()
    driver.take(parcel())
    commit = done(driver, started(driver)[0], Done({"big": {}}))
    driver.committed(commit, refusal)
    change = driver.next(m.CommitCommand).entries[0].group.changes[0]
    assert change.after is not None
    assert (change.after.state, change.after.message) == ("Failed", str(refusal))


def refused_in_any_form(driver: Driver, commit: m.CommitCommand) -> m.WarnCommand:
    """Until nothing more is tried now; what the core says then."""
    for _ in range(3):
        driver.committed(commit, StoreError("odd"))
        commands = driver.tick()
        if warnings := [c for c in commands if isinstance(c, m.WarnCommand)]:
            assert len(warnings) == 1
            assert not any(isinstance(c, m.CommitCommand) for c in commands)
            return warnings[0]
        commit = next(c for c in commands if isinstance(c, m.CommitCommand))
    raise AssertionError(driver.seen)


def test_a_record_that_can_be_neither_stored_nor_released_is_retried_ever_more_seldom() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    warning = refused_in_any_form(driver, done(driver, started(driver)[0], Done({"big": {}})))
    assert warning.text == "parcel pcl1 can be neither stored nor released, and is tried again in 1 s: odd"
    delays = []
    for _ in range(12):
        delay = float(warning.text.partition("again in ")[2].partition(" s")[0])
        delays.append(delay)
        driver.core.lease.renewed_at = driver.now + delay  # the session lives on
        driver.now += delay - 0.01
        assert not any(isinstance(c, m.CommitCommand) for c in driver.tick()), "not before its time"
        driver.now += 0.01
        commit = driver.next(m.CommitCommand)
        assert [change.cause for entry in commit.entries for change in entry.group.changes] == [""], (
            "released as it was"
        )
        warning = refused_in_any_form(driver, commit)
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    driver.core.lease.renewed_at = driver.now
    driver.take(parcel("pcl2"))
    assert [step_run.record.id for step_run in started(driver)] == ["pcl2"], "others are worked on meanwhile"


def test_a_stuck_record_is_released_later_or_with_the_session() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    refused_in_any_form(driver, done(driver, started(driver)[0], Done({"big": {}})))
    driver.now += 1
    driver.committed(driver.next(m.CommitCommand), None)
    assert (driver.core.step_runs.by_number, driver.core.step_runs.by_ref, driver.core.stuck_runs.next_retry_at) == (
        {},
        {},
        float("inf"),
    )
    driver.take(parcel())
    refused_in_any_form(driver, done(driver, started(driver)[0], Done({"big": {}})))
    driver.on(m.StopRequested())
    assert isinstance(driver.next(m.CloseSessionCommand), m.CloseSessionCommand)
    assert driver.core.step_runs.by_ref == {}


def test_B11_an_action_request_stops_the_step_and_is_applied_in_its_commit() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    driver.on(
        m.SessionRenewed(
            SessionRenewal(True, (ActionRequest(step_run.record.ref, "drop", "ann", "unwanted"),)), driver.now
        )
    )
    assert any(isinstance(c, m.SignalStopCommand) and c.step_run is step_run for c in driver.tick())
    change = done(driver, step_run, StepStopped()).entries[0].group.changes[0]
    assert change.after is not None
    assert (change.after.state, change.cause, change.who, change.answers_request) == ("Dropped", "drop", "ann", True)


def test_B11_a_request_that_leaves_the_record_in_its_state_is_committed_with_the_outcome() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    driver.on(
        m.SessionRenewed(
            SessionRenewal(True, (ActionRequest(step_run.record.ref, "shake", "ann", "it rattles"),)), driver.now
        )
    )
    (change, child) = done(driver, step_run, Done({"box": {"n": 1}}, spawn=(New("parcel"),))).entries[0].group.changes
    assert change.before is step_run.record
    assert change.after is not None
    assert (change.after.state, change.after.session, change.cause, change.answers_request) == (
        "Sending",
        None,
        "done",
        True,
    )
    assert (change.why, change.documents) == ("shake, requested by ann: it rattles", {"box": b'{"n":1}'})
    assert child.before is None


@pytest.mark.parametrize(
    ("outcome", "state", "event", "why"),
    [(Done(), "Sending", "done", ""), (Fail("no box"), "Failed", "fail", "no box")],
)
def test_B11_a_request_that_is_too_late_is_refused_with_the_outcome(
    outcome: Any, state: str, event: str, why: str
) -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    driver.on(
        m.SessionRenewed(SessionRenewal(True, (ActionRequest(step_run.record.ref, "resume", "ann", ""),)), driver.now)
    )
    change = done(driver, step_run, outcome).entries[0].group.changes[0]
    assert change.after is not None
    assert (change.after.state, change.cause, change.answers_request) == (state, event, True)
    warning = "resume refused, requested by ann: parcel pcl1 is Packing; resume needs it to be Failed. Possible now: drop, shake."
    assert change.why == (f"{why} ({warning})" if why else warning)


def test_B11_the_documents_of_a_waiting_step_are_kept() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    driver.on(
        m.SessionRenewed(SessionRenewal(True, (ActionRequest(step_run.record.ref, "shake", "ann", ""),)), driver.now)
    )
    change = done(driver, step_run, Wait(60, documents={"order": {"number": 7}})).entries[0].group.changes[0]
    assert change.after is not None
    assert (change.cause, change.after.blocked_by, change.documents) == ("shake", None, {"order": b'{"number":7}'})


def test_B11_a_request_that_came_with_the_claim_is_applied_before_any_step() -> None:
    driver = Driver().opened()
    record = parcel()
    driver.take(record, action_request=ActionRequest(record.ref, "drop", "ann", ""))
    change = driver.next(m.CommitCommand).entries[0].group.changes[0]
    assert (change.cause, change.answers_request) == ("drop", True)
    assert not any(isinstance(c, m.StartStepsCommand) for c in driver.seen)


def test_requests_for_released_records_are_applied() -> None:
    driver = Driver().opened()
    driver.take(parcel(state="Sending"))
    commit = done(driver, started(driver)[0])
    request = ActionRequest(Ref("parcel", "pcl1"), "drop", "ann", "")
    driver.committed(commit, replace(committed(commit.entries[0]), action_requests=(request,)))
    assert driver.next(m.ApplyRequestsCommand).requests == (request,)


def test_a_hold_sends_to_rest_without_a_step() -> None:
    driver = Driver().opened()
    driver.take(parcel(), hold="collections/a")
    change = driver.next(m.CommitCommand).entries[0].group.changes[0]
    assert change.after is not None
    assert (change.after.state, change.cause) == ("Held", "hold")


def test_stop_recalls_signals_waits_for_the_steps_and_closes() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    driver.on(m.StopRequested())
    kinds = [type(c) for c in driver.tick()]
    assert m.SignalStopCommand in kinds
    assert m.RecallCommand in kinds
    assert not any(isinstance(c, (m.ClaimCommand, m.CloseSessionCommand, m.ExitCommand)) for c in driver.tick())
    commit = done(driver, step_run, OSError("interrupted"))
    change = commit.entries[0].group.changes[0]
    assert change.after is not None
    # a deploy fails nothing
    assert (change.after.state, change.after.error_count, change.after.session) == ("Packing", 0, None)
    driver.committed(commit, None)
    assert isinstance(driver.next(m.CloseSessionCommand), m.CloseSessionCommand)
    assert isinstance(driver.next(m.ExitCommand), m.ExitCommand)


def test_a_permanent_error_fails_also_while_stopping() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    driver.on(m.StopRequested())
    change = done(driver, step_run, Fail("no")).entries[0].group.changes[0]
    assert change.after is not None
    assert change.after.state == "Failed"


def test_a_record_claimed_while_stopping_is_released() -> None:
    driver = Driver().opened()
    driver.next(m.ClaimCommand)
    driver.on(m.StopRequested())
    driver.on(m.RecordsClaimed([ClaimedRecord(parcel())], 1))
    change = driver.next(m.CommitCommand).entries[0].group.changes[0]
    assert change.after is not None
    assert (change.after.session, change.cause) == (None, "")


def test_records_claimed_ahead_of_a_slow_step_are_recalled() -> None:
    driver = Driver(threads=1, max_claims=50).opened()
    driver.core.claim_sizing.step_seconds = 0.001
    driver.take(*(parcel(str(n)) for n in range(20)))
    driver.next(m.StartStepsCommand)
    driver.now += 2
    driver.on(m.SessionRenewed(SessionRenewal(True), driver.now))
    assert any(isinstance(c, m.RecallCommand) for c in driver.tick())
    assert driver.core.claim_sizing.step_seconds >= 1


def test_records_behind_a_slow_step_are_recalled_after_they_were_started_and_the_core_sleeps() -> None:
    driver = Driver(threads=1, max_claims=50).opened()
    driver.core.claim_sizing.step_seconds = 0.001
    driver.take(parcel("slow"))
    driver.next(m.StartStepsCommand)
    driver.now += 2
    driver.on(m.SessionRenewed(SessionRenewal(True), driver.now))
    driver.on(m.RecordsClaimed([ClaimedRecord(parcel("behind"))], 10))
    kinds = [type(c) for c in driver.tick()]
    assert kinds.index(m.RecallCommand) > kinds.index(m.StartStepsCommand), (
        "recalled before it was started, it would wait behind the slow step"
    )
    driver.now += 1.5
    driver.on(m.SessionRenewed(SessionRenewal(True), driver.now))
    assert driver.next(m.SleepCommand).until > driver.now, "otherwise the worker only reads its clock"


def test_many_records_of_a_fast_step_are_claimed_at_once_and_one_per_thread_of_a_slow_one() -> None:
    driver = Driver(threads=2, max_claims=256).opened()
    driver.core.claim_sizing.step_seconds = 0.00001
    assert driver.next(m.ClaimCommand).limit == 256
    slow = Driver(threads=2, max_claims=256).opened()
    slow.core.claim_sizing.step_seconds = 5.0
    assert slow.next(m.ClaimCommand).limit == 2


def test_a_retired_state_is_left_without_a_step() -> None:
    crate, parcels = build_machines()
    old = Machine(
        name="old",
        plural="olds",
        prefix="o",
        description="",
        states=(
            work("New", to="End", description="", on_fail=None),
            retired("Old", to="New"),
            end("End", description=""),
        ),
    )
    driver = Driver(crate, parcels, old).opened()
    driver.take(Record("old", "o1", "Old", session="s1", version=1))
    after = driver.next(m.CommitCommand).entries[0].group.changes[0].after
    assert after is not None
    assert (after.state, after.last_done) == ("New", "Old")


def test_an_idle_worker_sleeps() -> None:
    driver = Driver().opened()
    driver.on(m.WorkHinted())
    driver.next(m.ClaimCommand)
    driver.on(m.RecordsClaimed([], 2))
    ticks = 0
    begun = driver.now
    while driver.now < begun + 60:
        for command in driver.tick():
            ticks += 1
            if isinstance(command, m.SleepCommand):
                assert command.until > driver.now
                driver.now = command.until
            elif isinstance(command, m.ClaimCommand):
                driver.on(m.RecordsClaimed([], 2))
            elif isinstance(command, m.ReadHoldsCommand):
                driver.on(m.HoldsRead(frozenset()))
            elif isinstance(command, m.RenewSessionCommand):
                driver.on(m.SessionRenewed(SessionRenewal(True), driver.now))
            elif isinstance(command, m.ReleaseWaitsCommand):
                driver.on(m.WaitsReleased(0, None))
    assert ticks < 120  # two commands a second, heartbeats included
