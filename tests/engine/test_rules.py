"""From a record and what happened to it, to the change that says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import pytest
from msgspec.structs import replace

from waybill import rules
from waybill.machine import (
    RESUME,
    STAY,
    Backoff,
    Document,
    Keys,
    Machine,
    MachineError,
    action,
    end,
    join,
    rest,
    retired,
    work,
)
from waybill.record import Ask, Docs, Record, Store, encode
from waybill.rules import Machines, Refused
from waybill.step import Done, Fail, New, Wait


def still_marked(record: Record, store: Store) -> str | None:
    return "the collection is still held" if "collections/a" in store.marks() else None


PARCEL = Machine(
    name="parcel",
    plural="parcels",
    prefix="pcl",
    doc="One parcel.",
    parent="crate",
    states=(
        work("Packing", "Weighing", "Box it.", holds="Held", leaves_files=True),
        rest("Held", "Stopped."),
        work(
            "Weighing",
            "Sending",
            "Weigh it.",
            tries=2,
            backoff=Backoff(10, 2, 100),
            remakes="Packing",
            needs=("scale",),
        ),
        work("Sending", "Sent", "Send it.", also=("Lost",), fails=None, every=30, needs=("scale", "van")),
        rest("Failed", "Gave up.", settled=True),
        retired("Wrapping", "Weighing"),
        end("Lost", "Nobody knows."),
        end("Sent", "Gone."),
    ),
    actions=(
        action("release", "Held", "Packing", "Go on.", guard=still_marked),
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
        Document("label", "service", ""),
        Document("weight", "step", ""),
        Document("raw", "foreign", "", v=None),
    ),
    keys=(
        Keys("scale", "", of=lambda record: [record.docs["label"]["text"]] if "label" in record.docs else []),
        Keys("van", ""),
    ),
    gates=lambda record: ("collections/a",),
)
CRATE = Machine(
    name="crate",
    plural="crates",
    prefix="crt",
    doc="",
    states=(join("Filling", "Full", ""), end("Full", "")),
    documents=(),
)
MACHINES = Machines.of((PARCEL, CRATE))


class Marks:
    """A store of which a guard reads the marks."""

    def __init__(self, *names: str) -> None:
        self.names = dict.fromkeys(names, "")

    def marks(self) -> Mapping[str, str]:
        return self.names


OPEN = cast(Store, Marks())
HELD = cast(Store, Marks("collections/a"))


def parcel(state: str = "Packing", **fields: Any) -> Record:
    return Record("parcel", "pcl1", state, **{"session": "s", "version": 7, **fields})


def test_submit_begins_where_the_machine_begins_with_versioned_documents() -> None:
    change = rules.create(
        MACHINES,
        New("parcel", {"label": {"text": "x"}, "raw": {"a": 1}}, priority=3, request="r"),
        who="ann",
        why="new",
    )
    assert change.before is None
    assert change.after is not None
    assert (change.after.id, change.after.state, change.after.priority, change.after.gates) == (
        "pcl*",
        "Packing",
        3,
        ("collections/a",),
    )
    assert change.docs == {"label": b'{"v":1,"text":"x"}', "raw": b'{"a":1}'}
    assert (change.event, change.who, change.why) == ("submit", "ann", "new")


def test_a_record_that_its_caller_names_needs_an_id() -> None:
    states = (rest("Free", ""), end("Gone", ""))
    shelf = Machine(
        name="shelf", plural="shelves", doc="", states=states, actions=(action("burn", "Free", "Gone", ""),)
    )
    with pytest.raises(Refused, match="A shelf needs an id from its caller"):
        rules.create(Machines.of((shelf,)), New("shelf"))


def test_a_child_belongs_to_its_maker_and_inherits_owner_and_priority() -> None:
    crate = Record("crate", "crt1", "Filling", owner="ann", priority=9)
    after = rules.create(MACHINES, New("parcel"), maker=crate).after
    assert after is not None
    assert (after.parent, after.owner, after.priority) == (crate.ref, "ann", 9)
    loose = rules.create(MACHINES, New("parcel", child=False), maker=crate).after
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
    with pytest.raises(Refused, match=sentence):
        rules.create(MACHINES, new)


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(rules.UnknownKind, match=r"no kind 'boat'; there are crate, parcel"):
        rules.create(MACHINES, New("boat"))


def test_done_goes_on_lets_go_and_remembers() -> None:
    before = parcel(tries=1, message="old", docs=Docs({"label": encode({"text": "k"})}))
    change = rules.settle(PARCEL, before, Done({"weight": {"kg": 2}}, priority=20), here="h1", who="w")
    after = change.after
    assert after is not None
    assert (after.state, after.session, after.last_done, after.tries, after.message) == (
        "Weighing",
        None,
        "Packing",
        0,
        "",
    )
    assert (after.priority, after.host, after.gates) == (20, "h1", ())
    assert after.keys == ("scale/k",)  # the next state needs it, and the label names it
    assert (change.event, change.docs) == ("done", {"weight": b'{"v":1,"kg":2}'})


def test_going_on_keeps_the_claim() -> None:
    after = rules.settle(PARCEL, parcel(), Done(), go_on=True).after
    assert after is not None
    assert after.session == "s"


def test_done_may_choose_a_declared_target_and_no_other() -> None:
    lost = rules.settle(PARCEL, parcel("Sending", keys=("scale/k",)), Done(to="Lost")).after
    assert lost is not None
    assert (lost.state, lost.open, lost.keys) == ("Lost", False, ())
    wrong = rules.settle(PARCEL, parcel("Weighing"), Done(to="Lost")).after
    assert wrong is not None
    assert wrong.state == "Failed"
    assert "Weighing leads to Sending" in wrong.message


def test_a_step_may_write_only_what_the_table_gives_it() -> None:
    after = rules.settle(PARCEL, parcel(), Done({"label": {}})).after
    assert after is not None
    assert (after.state, after.message) == (
        "Failed",
        "The document label of parcel is written by its service, not by a step.",
    )
    unknown = rules.settle(PARCEL, parcel(), Done({"colour": {}})).after
    assert unknown is not None
    assert "declares no document colour" in unknown.message


def test_wait_lets_go_for_a_while_and_is_no_failure() -> None:
    change = rules.settle(PARCEL, parcel("Sending", tries=1), Wait(message="no van"))
    assert change.after is not None
    assert (change.after.state, change.after.parked, change.after.session, change.after.tries) == (
        "Sending",
        "wait",
        None,
        0,
    )
    assert (change.delay, change.event, change.after.message) == (30, "", "no van")
    assert rules.settle(PARCEL, parcel("Sending"), Wait(5)).delay == 5
    assert rules.settle(PARCEL, parcel("Sending"), Wait(0)).delay == 0
    assert rules.settle(PARCEL, parcel("Packing"), Wait()).delay == 1, (
        "a state that says nothing must not be looked at without a pause"
    )


def test_wait_with_a_document_that_tells_of_a_mark_is_gated_by_it() -> None:
    machine = dataclasses.replace(PARCEL, gates=lambda record: ["collections/heavy"] if "weight" in record.docs else [])
    weighed = rules.settle(machine, parcel("Packing"), Wait(0, docs={"weight": {"grams": 1}})).after
    plain = rules.settle(machine, parcel("Packing"), Wait(0)).after
    assert weighed is not None
    assert plain is not None
    assert (weighed.gates, plain.gates) == (("collections/heavy",), ()), "so that the next claim heeds it"


def test_trouble_is_tried_again_with_back_off_and_then_fails_with_the_last_reason() -> None:
    first = rules.settle(PARCEL, parcel("Weighing", last_done="Packing"), OSError("scale broken"))
    assert first.after is not None
    assert (first.after.state, first.after.tries, first.after.parked, first.delay, first.event) == (
        "Weighing",
        1,
        "wait",
        10,
        "retry",
    )
    assert first.after.message == "OSError: scale broken"
    second = rules.settle(PARCEL, replace(first.after, session="s"), OSError("scale gone"))
    assert second.after is not None
    assert (second.after.state, second.after.last_done, second.after.session, second.event) == (
        "Failed",
        "Packing",
        None,
        "fail",
    )
    assert second.after.message == "OSError: scale gone"
    assert not second.after.open


def test_a_users_mistake_fails_at_once() -> None:
    change = rules.settle(PARCEL, parcel("Weighing"), Fail("The label is missing; submit again with one."))
    assert change.after is not None
    assert (change.after.state, change.after.message) == ("Failed", "The label is missing; submit again with one.")


def test_a_state_that_never_fails_tries_for_ever_and_its_history_stays_short() -> None:
    change = rules.settle(PARCEL, parcel("Sending", tries=5000), Fail("no"))
    assert change.after is not None
    assert (change.after.state, change.event) == ("Sending", "")


def test_a_wrong_answer_of_a_step_names_the_right_ones() -> None:
    after = rules.settle(PARCEL, parcel("Weighing"), cast(Any, 17)).after
    assert after is not None
    assert "answered 17; a step answers Done or Wait, or raises" in after.message


def test_a_join_closes_in_its_own_commit() -> None:
    crate = Record("crate", "crt1", "Filling", session="s")
    assert rules.settle(CRATE, crate, Done()).closes
    waits = rules.look(crate).after
    assert waits is not None
    assert (waits.parked, waits.session) == ("children", None)


def test_a_mark_sends_to_rest_and_the_release_is_guarded() -> None:
    held = rules.hold(PARCEL, parcel(), "collections/a")
    assert held.after is not None
    assert (held.after.state, held.after.message, held.event) == ("Held", "held by collections/a", "hold")
    free = replace(held.after, session=None)
    with pytest.raises(Refused, match="still held"):
        rules.act(PARCEL, free, "release", store=HELD)
    released = rules.act(PARCEL, free, "release", store=OPEN, who="bob").after
    assert released is not None
    assert (released.state, released.gates) == ("Packing", ("collections/a",))


def test_resume_goes_on_after_the_last_success_and_counts() -> None:
    failed = parcel("Failed", session=None, last_done="Packing", retries=1, message="x")
    after = rules.act(PARCEL, failed, "resume", store=OPEN).after
    assert after is not None
    assert (after.state, after.retries, after.last_done, after.message, after.open) == (
        "Weighing",
        2,
        "Packing",
        "",
        True,
    )


def test_an_action_that_is_not_possible_says_what_is() -> None:
    with pytest.raises(Refused, match=r"is Packing; release needs it to be Held\. Possible now: none\."):
        rules.act(PARCEL, parcel(session=None), "release", store=OPEN)
    with pytest.raises(Refused, match="has no action 'fly'; it has release, resume, drop, label"):
        rules.act(PARCEL, parcel(session=None), "fly", store=OPEN)


@pytest.mark.parametrize(
    ("who", "why", "message"),
    [("bob", "it is wet", "drop by bob: it is wet"), ("bob", "", "drop by bob"), ("", "wet", "drop: wet")],
)
def test_what_a_person_laid_to_rest_says_who_did_it_and_why(who: str, why: str, message: str) -> None:
    after = rules.act(
        PARCEL, parcel("Failed", session=None, message="x"), "drop", store=OPEN, who=who, why=why, confirmed=True
    ).after
    assert after is not None
    assert (after.state, after.message) == ("Lost", message)


def test_an_action_with_a_warning_needs_confirmation() -> None:
    failed = parcel("Failed", session=None)
    with pytest.raises(Refused, match="Nobody will hear of it"):
        rules.act(PARCEL, failed, "drop", store=OPEN)
    assert rules.act(PARCEL, failed, "drop", store=OPEN, confirmed=True).after is not None


def test_an_action_may_write_documents_and_stay() -> None:
    waiting = parcel("Sending", session=None, parked="wait")
    change = rules.act(PARCEL, waiting, "label", store=OPEN, args={"text": "z"})
    assert change.after is not None
    assert (change.after.state, change.after.parked) == ("Sending", None)
    assert change.docs == {"label": b'{"v":1,"text":"z"}'}
    with pytest.raises(Refused, match="takes no arguments"):
        rules.act(PARCEL, parcel("Failed", session=None), "resume", store=OPEN, args={"a": 1})


def test_what_was_asked_of_a_worker_is_applied_or_refused_in_its_commit() -> None:
    sending = parcel("Sending")
    done = rules.answer(PARCEL, sending, Ask(sending.ref, "label", "ann", "", b'{"text":"q"}'), store=OPEN)
    assert done.answers
    assert (done.event, done.who) == ("label", "ann")
    refused = rules.answer(PARCEL, sending, Ask(sending.ref, "release", "ann", ""), store=OPEN)
    assert refused.after is not None
    assert (refused.event, refused.after.state, refused.after.session, refused.answers) == (
        "release refused",
        "Sending",
        None,
        True,
    )
    urgent = rules.answer(PARCEL, sending, Ask(sending.ref, "priority", "ann", "", b'{"priority":1}'), store=OPEN).after
    assert urgent is not None
    assert urgent.priority == 1


def test_the_files_of_a_host_that_is_gone_are_made_again() -> None:
    after = rules.remake(PARCEL, parcel("Weighing", session=None, host="h1", keys=("scale/k",))).after
    assert after is not None
    assert (after.state, after.host, after.keys) == ("Packing", "", ())


def test_more_keys_only_of_later_families_than_those_held() -> None:
    with_scale = parcel("Sending", keys=("scale/k",))
    assert rules.check_more_keys(PARCEL, with_scale, ["van/1", "scale/k"]) == ("scale/k", "van/1")
    with pytest.raises(MachineError, match="may no longer ask for scale/k"):
        rules.check_more_keys(PARCEL, parcel("Sending", keys=("van/1",)), ["scale/k"])
    with pytest.raises(MachineError, match="does not declare that it needs keys of the family van"):
        rules.check_more_keys(PARCEL, parcel("Weighing"), ["van/1"])


def test_a_record_in_a_state_of_another_release_is_moved_by_hand_only() -> None:
    strange = parcel("Folding", session=None)
    moved = rules.move(PARCEL, strange, "Packing", who="op").after
    assert moved is not None
    assert moved.state == "Packing"
    with pytest.raises(Refused, match="use one of its actions"):
        rules.move(PARCEL, parcel(session=None), "Sent")
    with pytest.raises(Refused, match="has no state 'Nowhere'"):
        rules.move(PARCEL, strange, "Nowhere")
    assert rules.undeclared(PARCEL, {"Folding": 2, "Packing": 1}) == {"Folding": 2}
    assert PARCEL.resume("Folding") == "Packing"


def test_a_history_is_a_path_of_the_table_or_not() -> None:
    good = [
        (None, "Packing", "submit"),
        ("Packing", "Weighing", "done"),
        ("Weighing", "Weighing", "retry"),
        ("Weighing", "Failed", "fail"),
    ]
    assert rules.path_is_legal(PARCEL, good) is None
    assert rules.path_is_legal(PARCEL, [*good, ("Weighing", "Sending", "done")]) == "is in Failed, then leaves Weighing"
    assert (
        rules.path_is_legal(PARCEL, [*good, ("Failed", "Sent", "done")])
        == "goes from Failed to Sent by done, which is no arrow"
    )
    assert rules.path_is_legal(PARCEL, [(None, "Sent", "submit")]) == "begins in Sent"


def test_B15_a_document_is_read_in_its_version_and_the_one_before() -> None:
    table = Machine(
        name="m",
        plural="ms",
        doc="",
        states=(work("A", "B", "", fails=None), end("B", "")),
        documents=(Document("d", "step", "", v=3),),
    )

    def holding(v: int) -> Record:
        return Record("m", "1", "A", docs=Docs({"d": encode({"v": v, "later": 1})}))

    assert rules.read(table, holding(3), "d") == {"v": 3, "later": 1}
    assert rules.read(table, holding(2), "d")["later"] == 1
    for version in (1, 4):
        with pytest.raises(Fail, match=f"is of version {version}; this release reads 3 and 2"):
            rules.read(table, holding(version), "d")


def test_reasons_are_clipped_not_unbounded() -> None:
    after = rules.settle(PARCEL, parcel("Weighing"), Fail("x" * 100_000)).after
    assert after is not None
    assert len(after.message) == 4096


def test_what_is_called_off_in_its_second_round_is_resumed_where_it_was() -> None:
    """Its last round did everything; what was done then is not done now."""
    ward = Machine(
        name="ward",
        plural="wards",
        prefix="wrd",
        doc="",
        gates=lambda record: ("quiet",),
        states=(
            work("Looking", "Noting", ""),
            work("Noting", "Resting", "", holds="Held"),
            rest("Resting", ""),
            rest("Held", ""),
            rest("Failed", ""),
            end("Gone", ""),
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
        (rules.act(ward, second, "stop", store=OPEN), "Looking"),
        (rules.settle(ward, replace(second, session="s"), Fail("no")), "Looking"),
        (rules.hold(ward, replace(second, state="Noting", session="s"), "quiet"), "Noting"),
    ):
        assert change.after is not None
        resumed = rules.act(ward, change.after, "resume", store=OPEN).after
        assert resumed is not None
        assert resumed.state == back
