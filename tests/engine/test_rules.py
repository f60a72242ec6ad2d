"""The rules: from a record and an event to the change that it causes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import pytest
from msgspec.structs import replace

from waybill import rules
from waybill.errors import NotFound
from waybill.machine import (
    RESUME,
    STAY,
    Backoff,
    Document,
    LockFamily,
    Machine,
    MachineError,
    action,
    end,
    join,
    rest,
    retired,
    work,
)
from waybill.record import ActionRequest, Record, RecordDocuments, Store, encode_document
from waybill.rules import ActionRefused, Machines
from waybill.step import Done, Fail, New, Wait


def find_hold_problem(record: Record, store: Store) -> str | None:
    return "the collection is still held" if "collections/a" in store.list_holds() else None


PARCEL = Machine(
    name="parcel",
    plural="parcels",
    prefix="pcl",
    description="One parcel.",
    parent="crate",
    states=(
        work("Packing", to="Weighing", description="Box it.", on_hold="Held", leaves_files=True),
        rest("Held", description="Stopped."),
        work(
            "Weighing",
            to="Sending",
            description="Weigh it.",
            max_tries=2,
            backoff=Backoff(10, 2, 100),
            on_host_lost="Packing",
            locks=("scale",),
        ),
        work(
            "Sending",
            to="Sent",
            description="Send it.",
            or_to=("Lost",),
            on_fail=None,
            poll_interval=30,
            locks=("scale", "van"),
        ),
        rest("Failed", description="Gave up.", settled=True),
        retired("Wrapping", to="Weighing"),
        end("Lost", description="Nobody knows."),
        end("Sent", description="Gone."),
    ),
    actions=(
        action("release", "Held", "Packing", "Go on.", guard=find_hold_problem),
        action("resume", "Failed", RESUME, "Again."),
        action("drop", "Failed Held", "Lost", "Give up.", confirm="Nobody will hear of it."),
        action(
            "label",
            "Failed Sending",
            STAY,
            "Put a label on.",
            writes=lambda record, args: {"label": {"text": args["text"]}},
        ),
    ),
    documents=(
        Document("label", None, "service", ""),
        Document("weight", None, "step", ""),
        Document("raw", None, "foreign", "", v=None),
    ),
    locks=(
        LockFamily(
            "scale",
            "",
            names_of=lambda record: [record.documents["label"]["text"]] if "label" in record.documents else [],
        ),
        LockFamily("van", ""),
    ),
    hold_names=lambda record: ("collections/a",),
)
CRATE = Machine(
    name="crate",
    plural="crates",
    prefix="crt",
    description="",
    states=(join("Filling", to="Full", description=""), end("Full", description="")),
    documents=(),
)
MACHINES = Machines.from_machines((PARCEL, CRATE))


class HoldsOnlyStore:
    """A store that can only list holds, for guards."""

    def __init__(self, *names: str) -> None:
        self.names = dict.fromkeys(names, "")

    def list_holds(self) -> Mapping[str, str]:
        return self.names


WITHOUT_HOLDS = cast(Store, HoldsOnlyStore())
WITH_HOLD = cast(Store, HoldsOnlyStore("collections/a"))


def parcel(state: str = "Packing", **fields: Any) -> Record:
    return Record("parcel", "pcl1", state, **{"session": "s", "version": 7, **fields})


def test_submit_begins_where_the_machine_begins_with_versioned_documents() -> None:
    change = rules.create(
        MACHINES,
        New("parcel", {"label": {"text": "x"}, "raw": {"a": 1}}, priority=3, idempotency_key="r"),
        who="ann",
        why="new",
    )
    assert change.before is None
    assert change.after is not None
    assert (change.after.id, change.after.state, change.after.priority, change.after.hold_names) == (
        "pcl*",
        "Packing",
        3,
        ("collections/a",),
    )
    assert change.documents == {"label": b'{"v":1,"text":"x"}', "raw": b'{"a":1}'}
    assert (change.cause, change.who, change.why) == ("submit", "ann", "new")


def test_a_record_that_its_caller_names_needs_an_id() -> None:
    states = (rest("Free", description=""), end("Gone", description=""))
    shelf = Machine(
        name="shelf", plural="shelves", description="", states=states, actions=(action("burn", "Free", "Gone", ""),)
    )
    with pytest.raises(ActionRefused, match="A shelf needs an id from its caller"):
        rules.create(Machines.from_machines((shelf,)), New("shelf"))


def test_a_child_belongs_to_its_maker_and_inherits_owner_and_priority() -> None:
    crate = Record("crate", "crt1", "Filling", owner="ann", priority=9)
    after = rules.create(MACHINES, New("parcel"), maker=crate).after
    assert after is not None
    assert (after.parent, after.owner, after.priority) == (crate.ref, "ann", 9)
    loose = rules.create(MACHINES, New("parcel", is_child=False), maker=crate).after
    assert loose is not None
    assert loose.parent is None


@pytest.mark.parametrize(
    ("new", "sentence"),
    [
        (New("parcel", state="Sending"), "cannot begin in Sending"),
        (New("parcel", priority=100), "from 0 to 99"),
        (New("parcel", id="a/b"), "is no id"),
        (New("parcel", id=".."), "is no id"),
        (New("parcel", id="x*"), "is no id"),
        (New("parcel", id=""), "1 to 200"),
        (New("parcel", id="Ω" * 101), "200 bytes"),
    ],
)
def test_what_cannot_be_made_is_refused_with_a_sentence(new: New, sentence: str) -> None:
    with pytest.raises(ActionRefused, match=sentence):
        rules.create(MACHINES, new)


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"no kind 'boat'; there are crate, parcel"):
        rules.create(MACHINES, New("boat"))


def test_done_enters_the_next_state_and_unclaims() -> None:
    before = parcel(error_count=1, message="old", documents=RecordDocuments({"label": encode_document({"text": "k"})}))
    change = rules.apply_outcome(PARCEL, before, Done({"weight": {"kg": 2}}, priority=20), host="h1", who="w")
    after = change.after
    assert after is not None
    assert (after.state, after.session, after.last_done, after.error_count, after.message) == (
        "Weighing",
        None,
        "Packing",
        0,
        "",
    )
    assert (after.priority, after.host, after.hold_names) == (20, "h1", ())
    assert after.locks == ("scale/k",)  # the next state needs it, and the label names it
    assert (change.cause, change.documents) == ("done", {"weight": b'{"v":1,"kg":2}'})


def test_done_can_keep_the_claim() -> None:
    after = rules.apply_outcome(PARCEL, parcel(), Done(), keep_claim=True).after
    assert after is not None
    assert after.session == "s"


def test_done_may_choose_a_declared_target_and_no_other() -> None:
    lost = rules.apply_outcome(PARCEL, parcel("Sending", locks=("scale/k",)), Done(to="Lost")).after
    assert lost is not None
    assert (lost.state, lost.open, lost.locks) == ("Lost", False, ())
    wrong = rules.apply_outcome(PARCEL, parcel("Weighing"), Done(to="Lost")).after
    assert wrong is not None
    assert wrong.state == "Failed"
    assert "Weighing leads to Sending" in wrong.message


def test_a_step_may_write_only_its_own_documents() -> None:
    after = rules.apply_outcome(PARCEL, parcel(), Done({"label": {}})).after
    assert after is not None
    assert (after.state, after.message) == (
        "Failed",
        "The document label of parcel is written by its service, not by a step.",
    )
    unknown = rules.apply_outcome(PARCEL, parcel(), Done({"colour": {}})).after
    assert unknown is not None
    assert "declares no document colour" in unknown.message


def test_wait_unclaims_for_a_while_and_is_no_error() -> None:
    change = rules.apply_outcome(PARCEL, parcel("Sending", error_count=1), Wait(message="no van"))
    assert change.after is not None
    assert (change.after.state, change.after.blocked_by, change.after.session, change.after.error_count) == (
        "Sending",
        "wait",
        None,
        0,
    )
    assert (change.delay, change.cause, change.after.message) == (30, "", "no van")
    assert rules.apply_outcome(PARCEL, parcel("Sending"), Wait(5)).delay == 5
    assert rules.apply_outcome(PARCEL, parcel("Sending"), Wait(0)).delay == 0
    assert rules.apply_outcome(PARCEL, parcel("Packing"), Wait()).delay == 1, (
        "a state that says nothing must not be looked at without a pause"
    )


def test_wait_with_a_document_that_names_a_hold_is_stopped_by_it() -> None:
    machine = dataclasses.replace(
        PARCEL, hold_names=lambda record: ["collections/heavy"] if "weight" in record.documents else []
    )
    weighed = rules.apply_outcome(machine, parcel("Packing"), Wait(0, documents={"weight": {"grams": 1}})).after
    plain = rules.apply_outcome(machine, parcel("Packing"), Wait(0)).after
    assert weighed is not None
    assert plain is not None
    assert (weighed.hold_names, plain.hold_names) == (("collections/heavy",), ()), "so that the next claim respects it"


def test_a_transient_error_is_retried_with_backoff_and_then_fails_with_the_last_reason() -> None:
    first = rules.apply_outcome(PARCEL, parcel("Weighing", last_done="Packing"), OSError("scale broken"))
    assert first.after is not None
    assert (first.after.state, first.after.error_count, first.after.blocked_by, first.delay, first.cause) == (
        "Weighing",
        1,
        "wait",
        10,
        "retry",
    )
    assert first.after.message == "OSError: scale broken"
    second = rules.apply_outcome(PARCEL, replace(first.after, session="s"), OSError("scale gone"))
    assert second.after is not None
    assert (second.after.state, second.after.last_done, second.after.session, second.cause) == (
        "Failed",
        "Packing",
        None,
        "fail",
    )
    assert second.after.message == "OSError: scale gone"
    assert not second.after.open


def test_a_permanent_error_fails_at_once() -> None:
    change = rules.apply_outcome(PARCEL, parcel("Weighing"), Fail("The label is missing; submit again with one."))
    assert change.after is not None
    assert (change.after.state, change.after.message) == ("Failed", "The label is missing; submit again with one.")


def test_a_state_that_never_fails_is_retried_for_ever_and_its_history_stays_short() -> None:
    change = rules.apply_outcome(PARCEL, parcel("Sending", error_count=5000), Fail("no"))
    assert change.after is not None
    assert (change.after.state, change.cause) == ("Sending", "")


def test_a_wrong_return_value_of_a_step_is_refused_with_the_right_ones() -> None:
    after = rules.apply_outcome(PARCEL, parcel("Weighing"), cast(Any, 17)).after
    assert after is not None
    assert "returned 17; a step returns Done or Wait, or raises" in after.message


def test_a_join_closes_in_its_own_commit() -> None:
    crate = Record("crate", "crt1", "Filling", session="s")
    assert rules.apply_outcome(CRATE, crate, Done()).requires_children_settled
    waits = rules.wait_for_children(crate).after
    assert waits is not None
    assert (waits.blocked_by, waits.session) == ("children", None)


def test_a_hold_sends_to_rest_and_the_release_is_guarded() -> None:
    held = rules.enter_hold(PARCEL, parcel(), "collections/a")
    assert held.after is not None
    assert (held.after.state, held.after.message, held.cause) == ("Held", "held by collections/a", "hold")
    assert held.after.hold_names == ("collections/a",)
    free = replace(held.after, session=None)
    with pytest.raises(ActionRefused, match="still held"):
        rules.act(PARCEL, free, "release", store=WITH_HOLD)
    released = rules.act(PARCEL, free, "release", store=WITHOUT_HOLDS, who="bob").after
    assert released is not None
    assert (released.state, released.hold_names) == ("Packing", ("collections/a",))


def test_resume_goes_on_after_the_last_success_and_counts() -> None:
    failed = parcel("Failed", session=None, last_done="Packing", resume_count=1, message="x")
    after = rules.act(PARCEL, failed, "resume", store=WITHOUT_HOLDS).after
    assert after is not None
    assert (after.state, after.resume_count, after.last_done, after.message, after.open) == (
        "Weighing",
        2,
        "Packing",
        "",
        True,
    )


def test_an_action_that_is_not_possible_says_what_is() -> None:
    with pytest.raises(ActionRefused, match=r"is Packing; release needs it to be Held\. Possible now: none\."):
        rules.act(PARCEL, parcel(session=None), "release", store=WITHOUT_HOLDS)
    with pytest.raises(ActionRefused, match="has no action 'fly'; it has release, resume, drop, label"):
        rules.act(PARCEL, parcel(session=None), "fly", store=WITHOUT_HOLDS)


@pytest.mark.parametrize(
    ("who", "why", "message"),
    [("bob", "it is wet", "drop by bob: it is wet"), ("bob", "", "drop by bob"), ("", "wet", "drop: wet")],
)
def test_a_record_that_an_action_sends_to_rest_says_who_did_it_and_why(who: str, why: str, message: str) -> None:
    after = rules.act(
        PARCEL,
        parcel("Failed", session=None, message="x"),
        "drop",
        store=WITHOUT_HOLDS,
        who=who,
        why=why,
        confirmed=True,
    ).after
    assert after is not None
    assert (after.state, after.message) == ("Lost", message)


def test_an_action_with_a_warning_needs_confirmation() -> None:
    failed = parcel("Failed", session=None)
    with pytest.raises(ActionRefused, match="Nobody will hear of it"):
        rules.act(PARCEL, failed, "drop", store=WITHOUT_HOLDS)
    assert rules.act(PARCEL, failed, "drop", store=WITHOUT_HOLDS, confirmed=True).after is not None


def test_an_action_may_write_documents_and_stay() -> None:
    waiting = parcel("Sending", session=None, blocked_by="wait")
    change = rules.act(PARCEL, waiting, "label", store=WITHOUT_HOLDS, args={"text": "z"})
    assert change.after is not None
    assert (change.after.state, change.after.blocked_by) == ("Sending", None)
    assert change.documents == {"label": b'{"v":1,"text":"z"}'}
    with pytest.raises(ActionRefused, match="takes no arguments"):
        rules.act(PARCEL, parcel("Failed", session=None), "resume", store=WITHOUT_HOLDS, args={"a": 1})


def test_an_action_request_is_applied_or_refused_in_the_commit_of_the_worker() -> None:
    sending = parcel("Sending")
    done = rules.answer_action_request(
        PARCEL, sending, ActionRequest(sending.ref, "label", "ann", "", b'{"text":"q"}'), store=WITHOUT_HOLDS
    )
    assert done.answers_request
    assert (done.cause, done.who) == ("label", "ann")
    refused = rules.answer_action_request(
        PARCEL, sending, ActionRequest(sending.ref, "release", "ann", ""), store=WITHOUT_HOLDS
    )
    assert refused.after is not None
    assert (refused.cause, refused.after.state, refused.after.session, refused.answers_request) == (
        "release refused",
        "Sending",
        None,
        True,
    )
    urgent = rules.answer_action_request(
        PARCEL, sending, ActionRequest(sending.ref, "priority", "ann", "", b'{"priority":1}'), store=WITHOUT_HOLDS
    ).after
    assert urgent is not None
    assert urgent.priority == 1


def test_the_files_of_a_lost_host_are_made_again() -> None:
    after = rules.rebuild_files(PARCEL, parcel("Weighing", session=None, host="h1", locks=("scale/k",))).after
    assert after is not None
    assert (after.state, after.host, after.locks) == ("Packing", "", ())


def test_a_step_acquires_only_locks_of_later_families_than_it_owns() -> None:
    with_scale = parcel("Sending", locks=("scale/k",))
    assert rules.extend_locks(PARCEL, with_scale, ["van/1", "scale/k"]) == ("scale/k", "van/1")
    with pytest.raises(MachineError, match="can no longer acquire scale/k"):
        rules.extend_locks(PARCEL, parcel("Sending", locks=("van/1",)), ["scale/k"])
    with pytest.raises(MachineError, match="does not declare that it needs locks of the family van"):
        rules.extend_locks(PARCEL, parcel("Weighing"), ["van/1"])


def test_a_record_in_an_undeclared_state_is_moved_by_hand_only() -> None:
    strange = parcel("Folding", session=None)
    moved = rules.move(PARCEL, strange, "Packing", who="op").after
    assert moved is not None
    assert moved.state == "Packing"
    with pytest.raises(ActionRefused, match="use one of its actions"):
        rules.move(PARCEL, parcel(session=None), "Sent")
    with pytest.raises(ActionRefused, match="has no state 'Nowhere'"):
        rules.move(PARCEL, strange, "Nowhere")
    assert rules.find_undeclared_states(PARCEL, {"Folding": 2, "Packing": 1}) == {"Folding": 2}
    assert PARCEL.find_resume_state("Folding") == "Packing"


def test_an_illegal_transition_in_a_history_is_found() -> None:
    good = [
        (None, "Packing", "submit"),
        ("Packing", "Weighing", "done"),
        ("Weighing", "Weighing", "retry"),
        ("Weighing", "Failed", "fail"),
    ]
    assert rules.find_illegal_transition(PARCEL, good) is None
    assert (
        rules.find_illegal_transition(PARCEL, [*good, ("Weighing", "Sending", "done")])
        == "is in Failed, then leaves Weighing"
    )
    assert (
        rules.find_illegal_transition(PARCEL, [*good, ("Failed", "Sent", "done")])
        == "goes from Failed to Sent by done, which is no arrow"
    )
    assert rules.find_illegal_transition(PARCEL, [(None, "Sent", "submit")]) == "begins in Sent"


def test_reasons_are_clipped_not_unbounded() -> None:
    after = rules.apply_outcome(PARCEL, parcel("Weighing"), Fail("x" * 100_000)).after
    assert after is not None
    assert len(after.message) == 4096


def test_a_record_that_stops_in_its_second_round_resumes_where_it_was() -> None:
    """Its first round did every state; what was done then does not count in the second."""
    ward = Machine(
        name="ward",
        plural="wards",
        prefix="wrd",
        description="",
        hold_names=lambda record: ("quiet",),
        states=(
            work("Looking", to="Noting", description=""),
            work("Noting", to="Resting", description="", on_hold="Held"),
            rest("Resting", description=""),
            rest("Held", description=""),
            rest("Failed", description=""),
            end("Gone", description=""),
        ),
        actions=(
            action("again", "Resting", "Looking", ""),
            action("stop", "Looking Noting", "Failed", ""),
            action("resume", "Failed Held", RESUME, ""),
            action("close", "Resting", "Gone", ""),
        ),
    )
    second = Record("ward", "w1", "Looking", last_done="Noting", seq=1, version=9)
    for change, back in (
        (rules.act(ward, second, "stop", store=WITHOUT_HOLDS), "Looking"),
        (rules.apply_outcome(ward, replace(second, session="s"), Fail("no")), "Looking"),
        (rules.enter_hold(ward, replace(second, state="Noting", session="s"), "quiet"), "Noting"),
    ):
        assert change.after is not None
        resumed = rules.act(ward, change.after, "resume", store=WITHOUT_HOLDS).after
        assert resumed is not None
        assert resumed.state == back


REQUEST = Machine(
    name="request",
    plural="requests",
    description="Put or get.",
    prefix="req",
    states=(
        work("PUT_START", to="PUTTING", description=""),
        work("PUTTING", to="DONE", description="", or_to=("CHECKING",)),
        work("GET_START", to="GETTING", description=""),
        work("GETTING", to="DONE", description=""),
        work("CHECKING", to="DONE", description=""),
        end("DONE", description=""),
    ),
    initial_states=("GET_START",),
)


@pytest.mark.parametrize(
    ("state", "last_done"),
    [
        ("PUT_START", None),
        ("PUTTING", "PUT_START"),
        ("GET_START", None),
        ("GETTING", "GET_START"),
        ("CHECKING", "PUTTING"),
    ],
)
def test_a_record_resumes_where_it_failed_whichever_state_it_began_in(state: str, last_done: str | None) -> None:
    record = Record("request", "req1", state, session="s", last_done=last_done)
    failed = rules.apply_outcome(REQUEST, record, Fail("no")).after
    assert failed is not None
    assert failed.state == "Failed"
    for _ in range(2):  # and again, when it fails there a second time
        resumed = rules.act(REQUEST, failed, "resume", store=WITHOUT_HOLDS).after
        assert resumed is not None
        assert resumed.state == state
        again = rules.apply_outcome(REQUEST, replace(resumed, session="s"), Fail("no")).after
        assert again is not None
        failed = again
