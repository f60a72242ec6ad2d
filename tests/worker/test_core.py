"""The worker's pure core: which commands follow which events.

No store, no threads, no clock but the numbers given here.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.worker.yard import tables
from waybill import rules
from waybill.machine import RESUME, Machine, action, end, rest, retired, work
from waybill.record import (
    Ask,
    Change,
    Claimed,
    ClaimLost,
    Committed,
    Conflict,
    Record,
    Ref,
    Renewed,
    Role,
    StoreError,
    Taken,
    TooLarge,
    Unavailable,
    Unknown,
)
from waybill.rules import Machines
from waybill.step import Done, Fail, New, Stopped, Wait
from waybill.worker import messages as m
from waybill.worker.core import KEEP_SECONDS, KEEP_STATES, LOOK_AGAIN, LOOK_SLOWLY, Core
from waybill.worker.roles import roles_of

TTL = 15.0


def answer(machine: Machine, record: Record, ask: Ask) -> Change:
    return rules.answer(machine, record, ask, store=None)  # type: ignore[arg-type]


class Driver:
    """Feeds events, collects commands, and plays the store."""

    def __init__(self, *machines: Machine, threads: int = 2, **options: Any) -> None:
        machines = machines or tables()
        for machine in machines:
            for state in machine.states:
                if state.sort == "work":
                    machine.steps.setdefault(state.name, lambda record, ctx: Done())
        self.machines = Machines.of(machines)
        self.core = Core(
            self.machines, roles_of(self.machines), who="w", answer=answer, threads=threads, ttl=TTL, **options
        )
        self.now = 100.0
        self.seen: list[m.Command] = []

    def tick(self) -> list[m.Command]:
        commands = self.core.tick(self.now)
        self.seen += commands
        return commands

    def on(self, event: m.Event) -> None:
        self.core.on(event, self.now)

    def opened(self) -> Driver:
        assert [type(c) for c in self.tick()] == [m.OpenSession]
        self.on(m.Opened("s1", self.now))
        return self

    def next(self, kind: type) -> Any:
        """Tick until that command comes; what the core needs on the way is answered."""
        for _ in range(10):
            for command in self.tick():
                if type(command) is kind:
                    return command
                if isinstance(command, m.ReadMarks):
                    self.on(m.Marked(self.core.lookout.marks))
                elif isinstance(command, m.Wake):
                    self.on(m.Woken(0, None))
        raise AssertionError(f"no {kind.__name__}; the core said {self.seen}")

    def take(self, *records: Record, **fields: Any) -> list[m.Task]:
        """Claim these and start them."""
        self.next(m.Claim)
        self.on(m.Took([Claimed(r, **fields) for r in records], 10))
        return list(self.core.bench.tasks.values())

    def committed(self, command: m.Commit, *answers: Any) -> None:
        self.on(
            m.Answered(
                command.batch,
                [a if a is not None else committed(e) for e, a in zip(command.batch, answers, strict=True)],
            )
        )


def committed(entry: m.Entry, **fields: Any) -> Committed:
    after = entry.group.changes[0].after
    assert after is not None
    return Committed((replace(after, version=after.version + 1, **fields),))


def parcel(id: str = "pcl1", state: str = "Packing", **fields: Any) -> Record:
    return Record("parcel", id, state, **{"session": "s1", "version": 10, **fields})


def started(driver: Driver) -> list[m.Task]:
    return list(driver.next(m.Start).tasks)


def done(driver: Driver, task: m.Task, outcome: Any = None) -> m.Commit:
    driver.on(m.Ended(task, outcome or Done(), 0.001))
    commit = driver.next(m.Commit)
    assert isinstance(commit, m.Commit)
    return commit


def test_marks_are_read_before_every_claim_and_a_paused_role_is_left_out() -> None:
    driver = Driver().opened()
    commands = driver.tick()
    assert not any(isinstance(c, m.Claim) for c in commands)
    driver.on(m.Marked(frozenset({"queue/parcel", "queue/crate.Filling"})))
    claim = driver.next(m.Claim)
    assert {(r.kind, r.state) for r in claim.roles} == {("crate", "Waiting"), ("crate", "Deleting")}


def test_a_role_of_a_state_that_can_be_held_says_so() -> None:
    claim = Driver().opened().next(m.Claim)
    assert Role("parcel", "Packing", True) in claim.roles
    assert Role("parcel", "Sending", False) in claim.roles


def test_B3_an_empty_claim_is_looked_at_again_once_and_then_slowly() -> None:
    driver = Driver().opened()
    driver.on(m.Woke())
    driver.next(m.Claim)
    driver.on(m.Took([], 2))
    sleep = driver.next(m.Sleep)
    assert sleep.until == pytest.approx(driver.now + LOOK_AGAIN)
    assert sleep.watch
    driver.now = sleep.until
    driver.next(m.Claim)
    driver.on(m.Took([], 2))
    assert driver.next(m.Sleep).until > driver.now + 1
    driver.now += LOOK_SLOWLY + 0.1
    driver.next(m.Claim)  # hints are lossy


def test_what_has_ended_is_committed_together() -> None:
    driver = Driver().opened()
    driver.take(parcel("a"), parcel("b"))
    a, b = started(driver)
    driver.on(m.Ended(a, Done(), 0.001))
    driver.on(m.Ended(b, Done(), 0.001))
    assert len(driver.next(m.Commit).batch) == 2


def test_B14_a_claim_goes_on_to_the_next_state_with_a_new_attempt() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    assert task.attempt == 10
    commit = done(driver, task)
    change = commit.batch[0].group.changes[0]
    assert change.goes_on
    driver.committed(commit, None)
    (again,) = started(driver)
    assert (again.record.state, again.attempt) == ("Sending", 11)


def test_B14_a_claim_answered_without_the_claim_is_let_go() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    commit = done(driver, started(driver)[0])
    driver.committed(commit, committed(commit.batch[0], session=None))
    assert not driver.core.bench.tasks


def long_table() -> Machine:
    names = [f"S{n}" for n in range(20)]
    states = (
        *(work(a, b, "") for a, b in zip(names, (*names[1:], "E"), strict=True)),
        rest("Failed", "", settled=True),
        end("E", ""),
    )
    return Machine(
        name="long",
        plural="longs",
        prefix="l",
        doc="",
        states=states,
        actions=(action("resume", "Failed", RESUME, ""),),
    )


def test_B14_a_claim_is_kept_for_so_many_states_only() -> None:
    driver = Driver(long_table()).opened()
    driver.take(Record("long", "l1", "S0", session="s1", version=1))
    kept = 0
    while True:
        commit = done(driver, started(driver)[0])
        if not commit.batch[0].group.changes[0].goes_on:
            break
        kept += 1
        driver.committed(commit, None)
    assert kept == KEEP_STATES


def test_B14_a_claim_is_kept_for_so_long_only() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.now += KEEP_SECONDS - 1
    driver.on(m.Heard(Renewed(True), driver.now))
    driver.now += 2
    assert not done(driver, task).batch[0].group.changes[0].goes_on


def test_A4_steps_are_told_to_stop_at_two_thirds_and_dropped_at_the_whole_ttl() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.now += TTL / 2
    driver.on(m.Away())  # renewals do not get through
    assert not any(isinstance(c, m.Signal) for c in driver.tick())
    driver.now += TTL / 6 + 0.1
    assert any(isinstance(c, m.Signal) and c.task is task for c in driver.tick())
    driver.now += TTL / 3
    driver.tick()
    assert driver.core.lease.session is None
    driver.on(m.Ended(task, Done(), 1.0))  # a late step's answer is worth nothing
    assert not driver.core.bench.out


def test_A4_a_sessions_life_counts_from_before_the_renewal_was_sent() -> None:
    driver = Driver().opened()
    sent = driver.now + 5
    driver.now += 10
    driver.on(m.Heard(Renewed(True), sent))
    assert driver.core.lease.renewed == sent


def test_an_expired_session_is_replaced_and_its_tasks_are_dead() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.on(m.Heard(Renewed(False), driver.now))
    assert task.dead
    commands = [*driver.tick(), *driver.tick()]
    assert any(isinstance(c, m.OpenSession) for c in commands)
    assert any(isinstance(c, m.Signal) for c in commands)
    driver.on(m.Opened("s2", driver.now))
    driver.on(m.Took([Claimed(parcel(session="s1"))], 1))  # claimed by the session that is gone
    assert not [t for t in driver.core.bench.tasks.values() if not t.dead]


def test_A11_an_unknown_outcome_commits_nothing_more_and_closes_when_the_steps_have_ended() -> None:
    driver = Driver().opened()
    driver.take(parcel("a"), parcel("b"))
    a, b = started(driver)
    driver.committed(done(driver, a), Unknown())
    assert any(isinstance(c, m.Signal) and c.task is b for c in driver.tick())
    assert not any(isinstance(c, (m.Close, m.Commit, m.Claim, m.Renew)) for c in driver.tick())
    driver.on(m.Ended(b, Done(), 0.1))
    commands = driver.tick()
    assert any(isinstance(c, m.Close) and c.session == "s1" for c in commands)
    assert not any(isinstance(c, m.Commit) for c in commands)
    driver.next(m.OpenSession)


def test_a_step_that_waits_for_its_save_is_told_when_the_session_is_lost() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.on(m.Saving(task, {"a": {}}))
    driver.on(m.Lost("gone"))
    (reply,) = [c for c in driver.tick() if isinstance(c, m.Reply)]
    assert isinstance(reply.result, Stopped)


def test_a_save_that_is_refused_is_told_to_the_step() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.on(m.Saving(task, {"a": {}}, (), (New("boat"),)))
    (reply,) = [c for c in driver.tick() if isinstance(c, m.Reply)]
    assert isinstance(reply.result, rules.UnknownKind)
    driver.on(m.Saving(task, {"a": {}}))
    driver.committed(driver.next(m.Commit), TooLarge())
    assert isinstance(driver.next(m.Reply).result, TooLarge)


def test_A9_a_taken_key_ends_the_step_and_parks_the_record_on_it() -> None:
    driver = Driver().opened()
    driver.take(parcel(state="Sending"))
    (task,) = started(driver)
    driver.on(m.Saving(task, {}, ("van/1",)))
    driver.committed(driver.next(m.Commit), Taken("held", "van/1"))
    assert isinstance(driver.next(m.Reply).result, Stopped)
    change = done(driver, task, Stopped()).batch[0].group.changes[0]
    assert change.after is not None
    assert (change.after.parked, change.after.keys, change.after.session, change.event) == (
        "key van/1",
        ("van/1",),
        None,
        "",
    )


def test_A5_parents_left_without_open_children_are_called_and_the_call_is_repeated_until_heard() -> None:
    driver = Driver().opened()
    driver.take(parcel(state="Sending", parent=Ref("crate", "c1")))
    commit = done(driver, started(driver)[0])
    driver.committed(commit, replace(committed(commit.batch[0]), idle=(Ref("crate", "c1"),)))
    nudge = driver.next(m.Commit)
    assert nudge.batch[0].group.nudges == (Ref("crate", "c1"),)
    driver.committed(nudge, Unknown())
    assert driver.core.lease.session == "s1"
    driver.now += 1
    assert driver.next(m.Commit).batch[0].group.nudges == (Ref("crate", "c1"),)


def test_D1_a_join_is_looked_at_before_anything_runs() -> None:
    driver = Driver().opened()
    crate = Record("crate", "c1", "Waiting", session="s1", version=3)
    driver.take(crate)
    look = driver.next(m.Look)
    driver.on(m.Looked(look.tasks, {crate.ref}))
    change = driver.next(m.Commit).batch[0].group.changes[0]
    assert change.after is not None
    assert (change.after.parked, change.event) == ("children", "")


def test_D1_a_join_whose_child_came_while_it_looked_goes_on_waiting() -> None:
    driver = Driver().opened()
    crate = Record("crate", "c1", "Waiting", session="s1", version=3)
    driver.take(crate)
    driver.on(m.Looked(driver.next(m.Look).tasks, set()))
    commit = driver.next(m.Commit)
    assert commit.batch[0].group.changes[0].closes
    driver.committed(commit, Conflict())
    after = driver.next(m.Commit).batch[0].group.changes[0].after
    assert after is not None
    assert after.parked == "children"


def test_an_unavailable_store_gets_the_same_commit_again() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    commit = done(driver, started(driver)[0])
    driver.committed(commit, Unavailable())
    assert isinstance(driver.tick()[-1], m.Sleep)
    driver.now += 1
    again = driver.next(m.Commit)
    assert again.batch[0].group == commit.batch[0].group


def test_a_lost_claim_is_dropped_and_its_neighbours_live() -> None:
    driver = Driver().opened()
    driver.take(parcel("a"), parcel("b"))
    a, b = started(driver)
    driver.on(m.Ended(a, Done(), 0.001))
    driver.on(m.Ended(b, Done(), 0.001))
    driver.committed(driver.next(m.Commit), ClaimLost(), None)
    assert [t.record.id for t in started(driver)] == ["b"]
    assert a.number not in driver.core.bench.tasks


@pytest.mark.parametrize("refusal", [TooLarge(), StoreError("odd")])
def test_what_cannot_be_stored_fails_with_the_reason(refusal: StoreError) -> None:
    driver = Driver().opened()
    driver.take(parcel())
    commit = done(driver, started(driver)[0], Done({"big": {}}))
    driver.committed(commit, refusal)
    change = driver.next(m.Commit).batch[0].group.changes[0]
    assert change.after is not None
    assert (change.after.state, change.after.message) == ("Failed", str(refusal))


def refused_in_any_form(driver: Driver, commit: m.Commit) -> m.Warn:
    """Until nothing more is tried now; what the core says then."""
    for _ in range(3):
        driver.committed(commit, StoreError("odd"))
        commands = driver.tick()
        if warnings := [c for c in commands if isinstance(c, m.Warn)]:
            assert len(warnings) == 1
            assert not any(isinstance(c, m.Commit) for c in commands)
            return warnings[0]
        commit = next(c for c in commands if isinstance(c, m.Commit))
    raise AssertionError(driver.seen)


def test_what_can_neither_be_stored_nor_given_back_is_tried_again_ever_more_seldom() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    said = refused_in_any_form(driver, done(driver, started(driver)[0], Done({"big": {}})))
    assert said.words == "parcel pcl1 can be neither stored nor given back, and is tried again in 1 s: odd"
    delays = []
    for _ in range(12):
        delay = float(said.words.partition("again in ")[2].partition(" s")[0])
        delays.append(delay)
        driver.core.lease.renewed = driver.now + delay  # the session lives on
        driver.now += delay - 0.01
        assert not any(isinstance(c, m.Commit) for c in driver.tick()), "not before its time"
        driver.now += 0.01
        commit = driver.next(m.Commit)
        assert [change.event for entry in commit.batch for change in entry.group.changes] == [""], (
            "given back as it was"
        )
        said = refused_in_any_form(driver, commit)
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    driver.core.lease.renewed = driver.now
    driver.take(parcel("pcl2"))
    assert [task.record.id for task in started(driver)] == ["pcl2"], "others are worked on meanwhile"


def test_what_cannot_be_given_back_is_given_back_later_or_goes_with_the_session() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    refused_in_any_form(driver, done(driver, started(driver)[0], Done({"big": {}})))
    driver.now += 1
    driver.committed(driver.next(m.Commit), None)
    assert (driver.core.bench.tasks, driver.core.bench.by_ref, driver.core.stuck.next) == ({}, {}, float("inf"))
    driver.take(parcel())
    refused_in_any_form(driver, done(driver, started(driver)[0], Done({"big": {}})))
    driver.on(m.Stop())
    assert isinstance(driver.next(m.Close), m.Close)
    assert driver.core.bench.by_ref == {}


def test_B11_what_was_asked_stops_the_step_and_is_applied_in_its_commit() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.on(m.Heard(Renewed(True, (Ask(task.record.ref, "drop", "ann", "unwanted"),)), driver.now))
    assert any(isinstance(c, m.Signal) and c.task is task for c in driver.tick())
    change = done(driver, task, Stopped()).batch[0].group.changes[0]
    assert change.after is not None
    assert (change.after.state, change.event, change.who, change.answers) == ("Dropped", "drop", "ann", True)


def test_B11_what_a_step_has_done_is_not_done_again_for_a_request_that_leaves_the_record_where_it_is() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.on(m.Heard(Renewed(True, (Ask(task.record.ref, "shake", "ann", "it rattles"),)), driver.now))
    (change, child) = done(driver, task, Done({"box": {"n": 1}}, spawn=(New("parcel"),))).batch[0].group.changes
    assert change.before is task.record
    assert change.after is not None
    assert (change.after.state, change.after.session, change.event, change.answers) == ("Sending", None, "done", True)
    assert (change.why, change.docs) == ("shake, asked by ann: it rattles", {"box": b'{"n":1}'})
    assert child.before is None


@pytest.mark.parametrize(
    ("outcome", "state", "event", "why"),
    [(Done(), "Sending", "done", ""), (Fail("no box"), "Failed", "fail", "no box")],
)
def test_B11_a_request_that_comes_too_late_is_refused_and_the_step_counts(
    outcome: Any, state: str, event: str, why: str
) -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.on(m.Heard(Renewed(True, (Ask(task.record.ref, "resume", "ann", ""),)), driver.now))
    change = done(driver, task, outcome).batch[0].group.changes[0]
    assert change.after is not None
    assert (change.after.state, change.event, change.answers) == (state, event, True)
    said = (
        "resume refused, asked by ann: parcel pcl1 is Packing; resume needs it to be Failed. Possible now: drop, shake."
    )
    assert change.why == (f"{why} ({said})" if why else said)


def test_B11_what_a_waiting_step_has_found_out_is_kept() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.on(m.Heard(Renewed(True, (Ask(task.record.ref, "shake", "ann", ""),)), driver.now))
    change = done(driver, task, Wait(60, docs={"order": {"number": 7}})).batch[0].group.changes[0]
    assert change.after is not None
    assert (change.event, change.after.parked, change.docs) == ("shake", None, {"order": b'{"number":7}'})


def test_B11_a_request_that_came_with_the_claim_is_applied_before_any_step() -> None:
    driver = Driver().opened()
    record = parcel()
    driver.take(record, ask=Ask(record.ref, "drop", "ann", ""))
    change = driver.next(m.Commit).batch[0].group.changes[0]
    assert (change.event, change.answers) == ("drop", True)
    assert not any(isinstance(c, m.Start) for c in driver.seen)


def test_requests_for_what_was_released_meanwhile_are_applied() -> None:
    driver = Driver().opened()
    driver.take(parcel(state="Sending"))
    commit = done(driver, started(driver)[0])
    ask = Ask(Ref("parcel", "pcl1"), "drop", "ann", "")
    driver.committed(commit, replace(committed(commit.batch[0]), asked=(ask,)))
    assert driver.next(m.Apply).asks == (ask,)


def test_a_mark_in_force_sends_to_rest_without_a_step() -> None:
    driver = Driver().opened()
    driver.take(parcel(), mark="collections/a")
    change = driver.next(m.Commit).batch[0].group.changes[0]
    assert change.after is not None
    assert (change.after.state, change.event) == ("Held", "hold")


def test_stop_recalls_signals_waits_for_the_steps_and_closes() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.on(m.Stop())
    kinds = [type(c) for c in driver.tick()]
    assert m.Signal in kinds
    assert m.Recall in kinds
    assert not any(isinstance(c, (m.Claim, m.Close, m.Exit)) for c in driver.tick())
    commit = done(driver, task, OSError("interrupted"))
    change = commit.batch[0].group.changes[0]
    assert change.after is not None
    # a deploy fails nothing
    assert (change.after.state, change.after.tries, change.after.session) == ("Packing", 0, None)
    driver.committed(commit, None)
    assert isinstance(driver.next(m.Close), m.Close)
    assert isinstance(driver.next(m.Exit), m.Exit)


def test_a_users_mistake_is_one_also_while_stopping() -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.on(m.Stop())
    change = done(driver, task, Fail("no")).batch[0].group.changes[0]
    assert change.after is not None
    assert change.after.state == "Failed"


def test_what_is_claimed_while_stopping_is_given_back() -> None:
    driver = Driver().opened()
    driver.next(m.Claim)
    driver.on(m.Stop())
    driver.on(m.Took([Claimed(parcel())], 1))
    change = driver.next(m.Commit).batch[0].group.changes[0]
    assert change.after is not None
    assert (change.after.session, change.event) == (None, "")


def test_a_slow_step_gives_back_what_was_claimed_ahead() -> None:
    driver = Driver(threads=1, portion=50).opened()
    driver.core.pace.seconds = 0.001
    driver.take(*(parcel(str(n)) for n in range(20)))
    driver.next(m.Start)
    driver.now += 2
    driver.on(m.Heard(Renewed(True), driver.now))
    assert any(isinstance(c, m.Recall) for c in driver.tick())
    assert driver.core.pace.seconds >= 1


def test_what_is_claimed_behind_a_slow_step_is_given_back_once_it_is_there_and_the_core_sleeps() -> None:
    driver = Driver(threads=1, portion=50).opened()
    driver.core.pace.seconds = 0.001
    driver.take(parcel("slow"))
    driver.next(m.Start)
    driver.now += 2
    driver.on(m.Heard(Renewed(True), driver.now))
    driver.on(m.Took([Claimed(parcel("behind"))], 10))
    kinds = [type(c) for c in driver.tick()]
    assert kinds.index(m.Recall) > kinds.index(m.Start), (
        "recalled before it was there, it would lie behind the slow step"
    )
    driver.now += 1.5
    driver.on(m.Heard(Renewed(True), driver.now))
    assert driver.next(m.Sleep).until > driver.now, "a worker that looks at its clock again and again"


def test_a_fast_step_is_claimed_in_portions_and_a_slow_one_by_the_thread() -> None:
    driver = Driver(threads=2, portion=256).opened()
    driver.core.pace.seconds = 0.00001
    assert driver.next(m.Claim).limit == 256
    slow = Driver(threads=2, portion=256).opened()
    slow.core.pace.seconds = 5.0
    assert slow.next(m.Claim).limit == 2


def test_a_retired_state_is_left_without_a_step() -> None:
    crate, parcels = tables()
    old = Machine(
        name="old",
        plural="olds",
        prefix="o",
        doc="",
        states=(work("New", "End", "", fails=None), retired("Old", "New"), end("End", "")),
    )
    driver = Driver(crate, parcels, old).opened()
    driver.take(Record("old", "o1", "Old", session="s1", version=1))
    after = driver.next(m.Commit).batch[0].group.changes[0].after
    assert after is not None
    assert (after.state, after.last_done) == ("New", "Old")


def test_an_idle_worker_sleeps() -> None:
    driver = Driver().opened()
    driver.on(m.Woke())
    driver.next(m.Claim)
    driver.on(m.Took([], 2))
    ticks = 0
    begun = driver.now
    while driver.now < begun + 60:
        for command in driver.tick():
            ticks += 1
            if isinstance(command, m.Sleep):
                assert command.until > driver.now
                driver.now = command.until
            elif isinstance(command, m.Claim):
                driver.on(m.Took([], 2))
            elif isinstance(command, m.ReadMarks):
                driver.on(m.Marked(frozenset()))
            elif isinstance(command, m.Renew):
                driver.on(m.Heard(Renewed(True), driver.now))
            elif isinstance(command, m.Wake):
                driver.on(m.Woken(0, None))
    assert ticks < 120  # two commands a second, heartbeats included
