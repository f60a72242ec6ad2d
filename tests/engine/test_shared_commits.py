"""One commit that changes several records: acts of steps and of services, wakes, children of an open parent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from waybill import (
    STAY,
    Act,
    ActionRefused,
    Done,
    Engine,
    Fail,
    Machine,
    MachineError,
    New,
    Outcome,
    ParentClosed,
    Record,
    RecordNotFound,
    Ref,
    StepContext,
    Store,
    Wait,
    action,
    end,
    join,
    rest,
    work,
)
from waybill.machine import Document
from waybill.record import CommitGroup, RecordBusy, WorkQueue
from waybill.rules import ClaimedByWorker, apply_outcome
from waybill.shared_commits import SharedCommit, commit_shared
from waybill.testing import StepTester

LIMIT = 2


def read_used(quota: Record) -> int:
    return int(quota.documents["use"]["used"])


def has_room(quota: Record, store: Store) -> str | None:
    return None if read_used(quota) < LIMIT else f"{quota.ref} is used up."


QUOTA = Machine(
    name="quota", plural="quotas", description="Room for so many.",
    states=(rest("Open", description="There may be room.", settled=True), end("Closed", description="No more.")),
    actions=(
        action("take", "Open", STAY, "Take one.", guard=has_room, writes=lambda r, a: {"use": {"used": read_used(r) + 1}}),
        action("give", "Open", STAY, "Give one back.", writes=lambda r, a: {"use": {"used": read_used(r) - 1}}),
        action("close", "Open", "Closed", "No more.", confirm="Nobody gets any more."),
    ),
    documents=(Document("use", None, "service", "How many are taken."),),
)  # fmt: skip
BOOK = Ref("quota", "q")

# what the step of a ticket does; each test says
steps: dict[str, Any] = {}


def asking(ticket: Record, ctx: StepContext) -> Outcome:
    outcome: Outcome = steps["asking"](ticket, ctx)
    return outcome


def riding(ticket: Record, ctx: StepContext) -> Outcome:
    outcome: Outcome = steps["riding"](ticket, ctx)
    return outcome


TICKET = Machine(
    name="ticket", plural="tickets", prefix="tck", description="Wants one.", parent="ride tour", steps=__name__,
    states=(
        work("Asking", to="Riding", description="Takes one of the quota.", max_tries=2),
        work("Riding", to="Done", description="Uses it.", poll_interval=60.0),
        end("Done", description="It was good."),
        end("Stopped", description="Ended by another.", keep=0),
    ),
    actions=(
        action("stop", "Asking Riding Failed", "Stopped", "End it.", when_claimed="wait"),
        action("halt", "Asking Riding", "Stopped", "End it, unless it is worked on."),
        action(
            "refund", "Riding", "Stopped", "End it, and give back what it took.", when_claimed="wait",
            acts=lambda ticket, args: (Act(BOOK, "give"),),
        ),
    ),
)  # fmt: skip


def gathering(record: Record, ctx: StepContext) -> Outcome:
    return Done()


RIDE = Machine(
    name="ride", plural="rides", prefix="rid", description="Waits for tickets.", steps=__name__,
    states=(join("Gathering", to="Over", description="Until all tickets are settled."), end("Over", description="Over.")),
    actions=(action("cancel", "Gathering", "Over", "Close it."),),
)  # fmt: skip
TOUR = Machine(
    name="tour", plural="tours", prefix="tou", description="Waits for tickets too.", steps=__name__,
    states=(join("Gathering", to="Over", description="Until all tickets are settled."), end("Over", description="Over.")),
)  # fmt: skip
MACHINES = (QUOTA, TICKET, RIDE, TOUR)


@pytest.fixture
def tester(tmp_path: Path) -> Iterator[StepTester]:
    with StepTester(MACHINES, tmp_path) as tester:
        tester.submit(New("quota", {"use": {"used": 0}}, id="q"))
        yield tester


def get_quota(tester: StepTester) -> Record:
    return tester.get(BOOK)


def claim(tester: StepTester, record: Record) -> str:
    session = tester.store.open_session(host="elsewhere", ttl=1000.0, about={})
    tester.store.claim_one(*record.ref, session)
    return session


# --- a step acts


def test_an_act_is_written_with_the_outcome_of_the_step(tester: StepTester) -> None:
    steps["asking"] = lambda ticket, ctx: Done(acts=(Act(BOOK, "take", why="for fun"),))
    ticket = tester.submit("ticket")
    tester.step(ticket)
    assert tester.get(ticket).state == "Riding"
    assert read_used(get_quota(tester)) == 1
    entry = tester.store.history(*BOOK)[-1]
    assert (entry.cause, entry.who, entry.why) == ("take", f"step of {ticket.ref}", "for fun")


def test_nothing_is_written_of_an_outcome_whose_act_is_refused_and_the_step_is_tried_again(tester: StepTester) -> None:
    steps["asking"] = lambda ticket, ctx: Done(acts=(Act(BOOK, "take"),), spawn=(New("ride"),))
    for _ in range(LIMIT):
        tester.step(tester.submit("ticket"))
    late = tester.submit("ticket")
    tester.step(late)
    found = tester.get(late)
    assert (found.state, found.blocked_by, found.error_count, found.message) == (
        "Asking", "wait", 1, f"{BOOK} is used up.",
    )  # fmt: skip
    assert len(tester.find_all("ride")) == LIMIT
    tester.engine.act(BOOK, "give")
    tester.advance(60)
    tester.step(late)
    assert tester.get(late).state == "Riding"
    assert read_used(get_quota(tester)) == LIMIT


def test_the_last_try_fails_with_the_reason_of_the_act(tester: StepTester) -> None:
    steps["asking"] = lambda ticket, ctx: Done(acts=(Act(Ref("ticket", "nobody"), "stop"),))
    ticket = tester.submit("ticket")
    for _ in range(2):
        tester.step(ticket)
        tester.advance(60)
    assert (tester.get(ticket).state, tester.get(ticket).message) == (
        "Failed", "There is no ticket nobody; stop of it is not possible.",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("acts", "sentence"),
    [
        ((Act(Ref("train", "t"), "stop"),), "no application that is loaded has the kind train"),
        ((Act(BOOK, "burn"),), "A quota has no action 'burn'"),
        ((Act(BOOK, "give", {"n": 1}), Act(BOOK, "close"), Act(BOOK, "take")), "take needs it to be Open"),
    ],
)
def test_what_cannot_be_decided_is_a_sentence_and_writes_nothing(
    tester: StepTester, acts: tuple[Act, ...], sentence: str
) -> None:
    steps["asking"] = lambda ticket, ctx: Done(acts=acts)
    before = get_quota(tester)
    ticket = tester.submit("ticket")
    for _ in range(2):
        tester.step(ticket)
        tester.advance(60)
        if tester.get(ticket).state == "Failed":
            break
    assert tester.get(ticket).state == "Failed"
    assert sentence in tester.get(ticket).message
    assert get_quota(tester) == before


def test_a_step_does_not_act_on_its_own_record(tester: StepTester) -> None:
    steps["asking"] = lambda ticket, ctx: Done(acts=(Act(ticket.ref, "stop"),))
    ticket = tester.submit("ticket")
    tester.step(ticket)
    assert (tester.get(ticket).state, "own record" in tester.get(ticket).message) == ("Failed", True)


def test_a_wait_and_a_checkpoint_act_too(tester: StepTester) -> None:
    waiting = tester.submit("ticket")
    steps["riding"] = lambda ticket, ctx: Wait()

    def ask(ticket: Record, ctx: StepContext) -> Outcome:
        if ticket.error_count == 0:
            ctx.act(BOOK, "take")
            raise OSError("the cable is cut")
        return Wait(7, acts=(Act(BOOK, "take"),), wakes=(waiting.ref,))

    steps["asking"] = lambda ticket, ctx: Done()
    tester.step(waiting)
    tester.step(waiting)
    assert tester.get(waiting).blocked_by == "wait"
    steps["asking"] = ask
    ticket = tester.submit("ticket")
    tester.step(ticket)
    assert read_used(get_quota(tester)) == 1, "it was done when the call returned"
    tester.advance(60)
    tester.step(ticket)
    assert read_used(get_quota(tester)) == 2
    assert (tester.get(waiting).blocked_by, tester.get(waiting).wake_count) == (None, 1)


def test_a_refused_act_in_the_middle_is_an_error_that_the_step_can_catch(tester: StepTester) -> None:
    refused: list[str] = []

    def ask(ticket: Record, ctx: StepContext) -> Outcome:
        ctx.act(BOOK, "take")
        try:
            ctx.save(acts=[Act(BOOK, "take"), Act(BOOK, "take")])
        except ActionRefused as error:
            refused.append(str(error))
            return Wait(3)
        return Done()

    steps["asking"] = ask
    ticket = tester.submit("ticket")
    tester.step(ticket)
    assert refused == [f"{BOOK} is used up."]
    assert read_used(get_quota(tester)) == 1, "of the two acts in one checkpoint none was written"
    assert tester.get(ticket).blocked_by == "wait"


# --- several acts on one record


def test_acts_on_one_record_are_one_change_of_it_decided_in_order(tester: StepTester) -> None:
    before = get_quota(tester)
    tester.engine.submit_all([], acts=[Act(BOOK, "take"), Act(BOOK, "take"), Act(BOOK, "give"), Act(BOOK, "close")])
    after = get_quota(tester)
    assert (after.state, read_used(after), after.version) == ("Closed", 1, before.version + 1)
    assert tester.store.history(*BOOK)[-1].cause == "close"
    tester.submit(New("quota", {"use": {"used": 0}}, id="other"))
    with pytest.raises(ActionRefused, match="used up"):
        tester.engine.submit_all([], acts=[Act(Ref("quota", "other"), "take")] * (LIMIT + 1))


def test_one_commit_moves_a_record_once(tester: StepTester) -> None:
    toggle = Machine(
        name="toggle", plural="toggles", description="",
        states=(rest("Off", description=""), rest("On", description=""), end("Gone", description="")),
        actions=(action("on", "Off", "On", ""), action("off", "On", "Off", ""), action("remove", "On Off", "Gone", "")),
    )  # fmt: skip
    tester.environment.machines["toggle"] = toggle
    made = tester.submit(New("toggle", id="t"))
    with pytest.raises(ActionRefused, match="on and off would both move toggle t"):
        tester.engine.submit_all([], acts=[Act(made.ref, "on"), Act(made.ref, "off")])
    assert tester.get(made) == made


# --- targets that a worker holds


def test_an_act_on_a_claimed_record_is_requested_of_its_worker_in_the_same_commit(tester: StepTester) -> None:
    held = tester.submit("ticket")
    steps["asking"] = lambda ticket, ctx: Done(acts=(Act(held.ref, "stop", why="enough"), Act(BOOK, "take")))
    session = claim(tester, held)
    tester.step(tester.submit("ticket"))
    assert read_used(get_quota(tester)) == 1
    (request,) = tester.store.renew_session(session).action_requests
    assert (request.ref, request.action, request.why) == (held.ref, "stop", "enough")
    tester.store.close_session(session)
    tester.run_until(held, "Stopped")


def test_an_act_that_must_not_wait_for_a_worker_refuses_the_whole_commit(tester: StepTester) -> None:
    held = tester.submit("ticket")
    claim(tester, held)
    with pytest.raises(ClaimedByWorker):
        tester.engine.submit_all([New("ticket")], acts=[Act(BOOK, "take"), Act(held.ref, "halt")])
    assert (read_used(get_quota(tester)), len(tester.find_all("ticket"))) == (0, 1)


def test_another_action_that_is_pending_refuses_the_whole_commit(tester: StepTester) -> None:
    held = tester.submit("ticket")
    claim(tester, held)
    assert tester.engine.act(held.ref, "stop", who="ann").pending
    with pytest.raises(RecordBusy):
        tester.engine.submit_all([New("ticket")], acts=[Act(held.ref, "stop")], who="bob")
    assert len(tester.find_all("ticket")) == 1
    assert tester.engine.act(held.ref, "stop", who="ann").pending, "she may repeat it"


@pytest.mark.parametrize("stage", ["claimed", "waiting", "failed", "queued"])
def test_a_commit_ends_another_record_in_every_stage(tester: StepTester, stage: str) -> None:
    """As the request to delete a file set ends the one that uploads it."""
    steps["riding"] = lambda ticket, ctx: Wait(1000)
    steps["asking"] = lambda ticket, ctx: Done()
    put = tester.submit("ticket")
    session = ""
    if stage == "failed":

        def fail(ticket: Record, ctx: StepContext) -> Outcome:
            raise Fail("The disk is full.")

        steps["asking"] = fail
        tester.step(put)
        assert tester.get(put).state == "Failed"
    elif stage == "waiting":
        tester.step(put)
        tester.step(put)
        assert tester.get(put).blocked_by == "wait"
    elif stage == "claimed":
        session = claim(tester, put)
    (delete,) = tester.engine.submit_all([New("ride")], acts=[Act(put.ref, "stop")], who="ann")
    assert tester.get(delete).state == "Gathering"
    if stage == "claimed":
        assert [each.action for each in tester.store.renew_session(session).action_requests] == ["stop"]
        tester.store.close_session(session)
        tester.engine.apply_action_requests()
    assert tester.get(put).state == "Stopped"


# --- what an action brings along


def test_an_action_brings_acts_along_also_when_a_worker_answers_it(tester: StepTester) -> None:
    tester.engine.submit_all([], acts=[Act(BOOK, "take"), Act(BOOK, "take")])
    steps["asking"] = lambda ticket, ctx: Done()
    free, held = tester.submit("ticket"), tester.submit("ticket")
    for ticket in (free, held):
        tester.step(ticket)
    tester.engine.act(free.ref, "refund", who="ann")
    assert (tester.get(free).state, read_used(get_quota(tester))) == ("Stopped", 1)
    assert tester.store.history(*BOOK)[-1].why == f"with refund of {free.ref}"

    session = claim(tester, held)
    assert tester.engine.act(held.ref, "refund", who="bob").pending
    tester.store.close_session(session)
    tester.step(held)
    assert (tester.get(held).state, read_used(get_quota(tester))) == ("Stopped", 0)


def test_an_action_is_refused_with_what_it_would_bring_along(tester: StepTester) -> None:
    steps["asking"] = lambda ticket, ctx: Done()
    ticket = tester.submit("ticket")
    tester.step(ticket)
    tester.act(BOOK, "close")
    with pytest.raises(ActionRefused, match="give needs it to be Open"):
        tester.act(ticket, "refund")
    assert tester.get(ticket).state == "Riding"
    session = claim(tester, ticket)
    assert tester.act(ticket, "refund").pending
    tester.store.close_session(session)
    tester.engine.apply_action_requests()
    assert tester.get(ticket).state == "Riding"
    assert tester.store.history(*ticket.ref)[-1].cause == "refund refused"


# --- services


def test_a_person_confirms_what_she_asks_for_and_not_what_it_brings_along(tester: StepTester) -> None:
    with pytest.raises(ActionRefused, match="Confirm"):
        tester.engine.act(BOOK, "close")
    ticket = tester.submit("ticket")
    tester.engine.act(ticket.ref, "stop", acts=[Act(BOOK, "close")])
    assert (tester.get(ticket).state, get_quota(tester).state) == ("Stopped", "Closed")


def test_a_submission_with_acts_is_done_once_however_often_it_is_repeated(tester: StepTester) -> None:
    new = New("ticket", idempotency_key="k")
    first = tester.engine.submit_all([new], acts=[Act(BOOK, "take")])
    assert tester.engine.submit_all([new], acts=[Act(BOOK, "take")]) == first
    assert read_used(get_quota(tester)) == 1
    tester.engine.act(BOOK, "close", confirmed=True)
    assert tester.engine.submit_all([new], acts=[Act(BOOK, "take")]) == first, "though it is no longer possible"
    with pytest.raises(ActionRefused):
        tester.engine.submit_all([New("ticket", idempotency_key="other")], acts=[Act(BOOK, "take")])
    with pytest.raises(RecordNotFound):
        tester.engine.submit_all([New("ticket")], acts=[Act(Ref("ticket", "gone"), "stop")])
    with pytest.raises(MachineError, match="no application that is loaded"):
        tester.engine.submit_all([New("ticket")], acts=[Act(Ref("train", "t"), "stop")])
    assert len(tester.find_all("ticket")) == 1


def test_an_act_is_decided_again_when_its_record_has_changed(
    tester: StepTester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another connection takes one between the read and the commit, each time but the last."""
    commit, others = tester.store.commit, Engine(tester._open_store(), tester.environment.machines)
    left = [1]

    def commit_late(groups: Any) -> Any:
        if left[0] and any(isinstance(g, CommitGroup) and g.changes for g in groups):
            left[0] -= 1
            others.act(BOOK, "take")
        return commit(groups)

    monkeypatch.setattr(tester.store, "commit", commit_late)
    tester.engine.submit_all([New("ticket")], acts=[Act(BOOK, "take")])
    assert read_used(get_quota(tester)) == 2
    left[0] = 1
    others.act(BOOK, "give")
    with pytest.raises(ActionRefused, match="used up"):
        tester.engine.submit_all([New("ticket")], acts=[Act(BOOK, "take")])
    assert (read_used(get_quota(tester)), len(tester.find_all("ticket"))) == (2, 1)


def test_a_record_that_keeps_changing_is_given_up_with_a_sentence(
    tester: StepTester, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, others = tester.store.commit, Engine(tester._open_store(), tester.environment.machines)

    def commit_late(groups: Any) -> Any:
        others.act(BOOK, "give")
        return commit(groups)

    monkeypatch.setattr(tester.store, "commit", commit_late)
    with pytest.raises(RecordBusy, match="keep changing quota q"):
        tester.engine.submit_all([New("ticket")], acts=[Act(BOOK, "take")])
    assert tester.find_all("ticket") == []


# --- children


def test_children_have_parents_of_several_kinds(tester: StepTester) -> None:
    ride, tour = tester.submit("ride"), tester.submit("tour")
    for parent in (ride, tour):
        assert tester.submit("ticket", parent=parent.ref).parent == parent.ref
    with pytest.raises(ActionRefused, match="ride or tour waits for it"):
        tester.submit("ticket", parent=BOOK)
    assert tester.store.parents_with_open_children([ride.ref, tour.ref]) == {ride.ref, tour.ref}


def test_a_child_of_a_closed_parent_is_refused_with_all_that_comes_with_it(tester: StepTester) -> None:
    ride = tester.submit("ride")
    child = New("ticket", parent=ride.ref, if_parent_open=True)
    tester.engine.submit_all([child], acts=[Act(BOOK, "take")])
    tester.act(ride, "cancel")
    with pytest.raises(ParentClosed, match="takes no more children"):
        tester.engine.submit_all([child], acts=[Act(BOOK, "take")])
    assert read_used(get_quota(tester)) == 1
    steps["asking"] = lambda ticket, ctx: Done(spawn=(child,))
    ticket = tester.submit("ticket")
    tester.step(ticket)
    assert (tester.get(ticket).state, "takes no more children" in tester.get(ticket).message) == ("Failed", True)
    with pytest.raises(ActionRefused, match="has no parent"):
        tester.submit("ticket", if_parent_open=True)


def test_many_steps_of_one_worker_act_on_the_same_record(tester: StepTester) -> None:
    """Their commits are one batch: each is decided on what the one before has left."""
    engine = tester.engine
    session = tester.store.open_session(host="testhost", ttl=1000.0, about={})
    tickets = [tester.submit("ticket") for _ in range(5)]
    claimed = tester.store.claim([WorkQueue("ticket", "Asking")], session, 5)
    commits = [
        SharedCommit(
            CommitGroup((apply_outcome(TICKET, each.record, Done()),)), (Act(BOOK, "take"),), "w", each.record.ref
        )
        for each in claimed
    ]
    answers = [each.answer for each in commit_shared(engine.store, engine.machines, commits)]
    assert [isinstance(answer, ActionRefused) for answer in answers] == [False] * LIMIT + [True] * (5 - LIMIT)
    assert sorted(tester.get(ticket).state for ticket in tickets) == ["Asking"] * 3 + ["Riding"] * 2
    assert read_used(get_quota(tester)) == LIMIT


def test_a_crash_at_any_call_takes_one_and_no_more(tester: StepTester) -> None:
    steps["asking"] = lambda ticket, ctx: Done(acts=(Act(BOOK, "take"),), wakes=(BOOK,))
    ticket = tester.submit("ticket")
    crashes = 0
    for point in tester.crash_at_every_call(ticket):
        crashes += 1
        assert (tester.get(ticket).state, read_used(get_quota(tester))) == ("Riding", 1), point
    assert crashes > 3
