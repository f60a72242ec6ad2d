"""A table that contradicts itself is refused when it is built, with a sentence that names the place."""

from __future__ import annotations

from typing import Any

import pytest

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

GOOD: dict[str, Any] = {
    "name": "parcel",
    "plural": "parcels",
    "prefix": "pcl",
    "doc": "One parcel.",
    "states": (
        work("Packing", "Sending", "Put it into a box.", holds="Held"),
        rest("Held", "Stopped by a mark."),
        work("Sending", "Arrived", "Hand it over.", also=("Lost",)),
        rest("Failed", "Gave up.", settled=True),
        end("Lost", "Nobody knows."),
        end("Arrived", "Signed for."),
    ),
    "actions": (
        action("resume", "Failed", RESUME, "Try again."),
        action("release", "Held", "Packing", "Go on."),
        action("note", "Failed Held", STAY, "Write something down."),
    ),
    "gates": lambda record: ("collections/a",),
}


def build(**changes: Any) -> Machine:
    return Machine(**{**GOOD, **changes})


def test_every_arrow_follows_from_the_table() -> None:
    arrows = {(a.source, a.target, a.label, a.by) for a in build().arrows()}
    assert arrows == {
        ("Packing", "Sending", "done", "step"),
        ("Packing", "Failed", "fail", "step"),
        ("Packing", "Held", "hold", "mark"),
        ("Sending", "Arrived", "done", "step"),
        ("Sending", "Lost", "done", "step"),
        ("Sending", "Failed", "fail", "step"),
        ("Failed", "Packing", "resume", "person"),
        ("Failed", "Sending", "resume", "person"),
        ("Held", "Packing", "release", "person"),
        ("Failed", "Failed", "note", "person"),
        ("Held", "Held", "note", "person"),
    }


def test_resume_goes_on_after_the_last_success() -> None:
    machine = build()
    assert machine.resume(None) == "Packing"
    assert machine.resume("Packing") == "Sending"
    assert machine.resume("a state that is gone") == "Packing"


def test_two_releases_tell_each_other_apart_by_the_digest() -> None:
    other = build(states=(*S[:2], work("Sending", "Arrived", "Hand it over."), S[3], end("Arrived", "Signed.")))
    assert build().digest() == build().digest() != other.digest()


S = GOOD["states"]
MISTAKES: list[tuple[str, dict[str, Any]]] = [
    ("needs a state", {"states": (), "actions": ()}),
    ("Packing is declared twice", {"states": (*S, end("Packing", "again"))}),
    ("action resume is declared twice", {"actions": (*GOOD["actions"], action("resume", "Held", "Packing", "again"))}),
    ("document a is declared twice", {"documents": (Document("a", "step", ""), Document("a", "step", ""))}),
    ("Packing goes to Nowhere, which is no state", {"states": (work("Packing", "Nowhere", ""), *S[1:])}),
    ("no path leads to Attic", {"states": (*S, end("Attic", "never entered"))}),
    (
        "no path leads from Attic to an end",
        {"states": (work("Packing", "Sending", "", also=("Attic",), holds="Held"), *S[1:], rest("Attic", "a trap"))},
    ),
    ("there is no end state", {"states": (work("Packing", "Packing", "", fails=None),), "actions": ()}),
    ("leaves Arrived, which is an end", {"actions": (*GOOD["actions"], action("undo", "Arrived", "Packing", ""))}),
    ("the action jump goes to Nowhere", {"actions": (*GOOD["actions"], action("jump", "Failed", "Nowhere", ""))}),
    ("the action jump leaves Nowhere", {"actions": (*GOOD["actions"], action("jump", "Nowhere", "Packing", ""))}),
    ("does not say by which marks", {"gates": None}),
    ("held in Arrived, which must be a rest state", {"states": (work("Packing", "Sending", "", holds="Arrived"), *S[1:])}),
    ("must be tried at least once", {"states": (work("Packing", "Sending", "", tries=0, holds="Held"), *S[1:])}),
    ("looked at every -1 seconds", {"states": (work("Packing", "Sending", "", every=-1, holds="Held"), *S[1:])}),
    (
        "needs keys of the family ark, which is not declared",
        {"states": (work("Packing", "Sending", "", needs=("ark",), holds="Held"), *S[1:])},
    ),
    ("goes to Old, which is retired", {"states": (work("Packing", "Old", "", holds="Held"), retired("Old", "Sending"), *S[1:])}),
    ("records may begin in Nowhere", {"begins": ("Nowhere",)}),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "change"), MISTAKES, ids=[s for s, _ in MISTAKES])
def test_a_contradiction_is_named(sentence: str, change: dict[str, Any]) -> None:
    with pytest.raises(MachineError, match=sentence):
        build(**change)


def test_keys_that_could_make_two_records_wait_for_each_other_are_refused() -> None:
    def table(first: tuple[str, ...], second: tuple[str, ...]) -> Machine:
        return Machine(
            name="m", plural="ms", prefix="m", doc="", keys=(Keys("localid", ""), Keys("storage", "")),
            states=(work("A", "B", "", needs=first), work("B", "C", "", needs=second), rest("Failed", "", settled=True), end("C", "")),
            actions=(action("resume", "Failed", RESUME, ""),),
        )  # fmt: skip

    table(("localid",), ("localid", "storage"))
    table(("storage",), ("localid",))  # what is dropped in the same commit waits for nobody
    with pytest.raises(MachineError, match="two records could wait for each other"):
        table(("storage",), ("localid", "storage"))


def test_a_retired_state_is_left_and_not_entered() -> None:
    machine = build(states=(*S, retired("Weighing", "Sending")))
    state = machine.state("Weighing")
    assert state is not None
    assert state.works
    assert ("Weighing", "Sending") in {(a.source, a.target) for a in machine.arrows()}


def test_a_join_and_a_settled_rest_say_who_the_parent_waits_for() -> None:
    machine = build(states=(join("Filling", "Packing", "Until all are in."), *S))
    assert {s.name: s.open for s in machine.states} == {
        "Filling": True, "Packing": True, "Held": True, "Sending": True, "Failed": False, "Lost": False, "Arrived": False,
    }  # fmt: skip


def test_a_step_is_registered_once_and_only_for_a_state_that_works() -> None:
    machine = build()
    machine.step("Packing")(lambda record, ctx: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(MachineError, match="has two steps"):
        machine.step("Packing")(lambda record, ctx: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(MachineError, match="no state in which a step runs"):
        machine.step("Held")(lambda record, ctx: None)  # type: ignore[arg-type, return-value]
    assert machine.without_steps() == ("Sending",)


def test_back_off_grows_to_its_limit_and_never_overflows() -> None:
    backoff = Backoff(1, 2, 60)
    assert [backoff.delay(n) for n in (0, 1, 2, 10, 10_000)] == [1, 2, 4, 60, 60]
