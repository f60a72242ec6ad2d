"""A machine that contradicts itself is refused when it is built, with a sentence that names the state or action."""

from __future__ import annotations

from typing import Any

import pytest

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

GOOD: dict[str, Any] = {
    "name": "parcel",
    "plural": "parcels",
    "prefix": "pcl",
    "description": "One parcel.",
    "states": (
        work("Packing", "Sending", "Put it into a box.", on_hold="Held"),
        rest("Held", "Stopped by a hold."),
        work("Sending", "Arrived", "Hand it over.", or_to=("Lost",)),
        rest("Failed", "Gave up.", settled=True),
        end("Lost", "Nobody knows."),
        end("Arrived", "Signed for."),
    ),
    "actions": (
        action("resume", "Failed", RESUME, "Try again."),
        action("release", "Held", "Packing", "Go on."),
        action("note", "Failed Held", STAY, "Write something down."),
    ),
    "hold_names": lambda record: ("collections/a",),
}


def build(**changes: Any) -> Machine:
    return Machine(**{**GOOD, **changes})


def test_every_arrow_follows_from_the_declaration() -> None:
    arrows = {(a.source, a.target, a.label, a.by) for a in build().iter_arrows()}
    assert arrows == {
        ("Packing", "Sending", "done", "step"),
        ("Packing", "Failed", "fail", "step"),
        ("Packing", "Held", "hold", "hold"),
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
    assert machine.find_resume_state(None) == "Packing"
    assert machine.find_resume_state("Packing") == "Sending"
    assert machine.find_resume_state("a state that is gone") == "Packing"


def test_two_releases_have_different_digests() -> None:
    other = build(states=(*S[:2], work("Sending", "Arrived", "Hand it over."), S[3], end("Arrived", "Signed.")))
    assert build().compute_digest() == build().compute_digest() != other.compute_digest()


S = GOOD["states"]
CONTRADICTIONS: list[tuple[str, dict[str, Any]]] = [
    ("needs a state", {"states": (), "actions": ()}),
    ("Packing is declared twice", {"states": (*S, end("Packing", "again"))}),
    ("action resume is declared twice", {"actions": (*GOOD["actions"], action("resume", "Held", "Packing", "again"))}),
    ("document a is declared twice", {"documents": (Document("a", None, "step", ""), Document("a", None, "step", ""))}),
    ("Packing goes to Nowhere, which is no state", {"states": (work("Packing", "Nowhere", ""), *S[1:])}),
    ("no path leads to Attic", {"states": (*S, end("Attic", "never entered"))}),
    (
        "no path leads from Attic to an end",
        {"states": (work("Packing", "Sending", "", or_to=("Attic",), on_hold="Held"), *S[1:], rest("Attic", "a trap"))},
    ),
    ("there is no end state", {"states": (work("Packing", "Packing", "", on_fail=None),), "actions": ()}),
    ("leaves Arrived, which is an end", {"actions": (*GOOD["actions"], action("undo", "Arrived", "Packing", ""))}),
    ("the action jump goes to Nowhere", {"actions": (*GOOD["actions"], action("jump", "Failed", "Nowhere", ""))}),
    ("the action jump leaves Nowhere", {"actions": (*GOOD["actions"], action("jump", "Nowhere", "Packing", ""))}),
    ("does not say by which holds", {"hold_names": None}),
    ("goes on hold in Arrived, which must be a rest state", {"states": (work("Packing", "Sending", "", on_hold="Arrived"), *S[1:])}),
    ("must be tried at least once", {"states": (work("Packing", "Sending", "", max_tries=0, on_hold="Held"), *S[1:])}),
    ("poll interval of -1 seconds", {"states": (work("Packing", "Sending", "", poll_interval=-1, on_hold="Held"), *S[1:])}),
    (
        "needs locks of the family ark, which is not declared",
        {"states": (work("Packing", "Sending", "", locks=("ark",), on_hold="Held"), *S[1:])},
    ),
    ("goes to Old, which is retired", {"states": (work("Packing", "Old", "", on_hold="Held"), retired("Old", "Sending"), *S[1:])}),
    ("records may begin in Nowhere", {"initial_states": ("Nowhere",)}),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "change"), CONTRADICTIONS, ids=[s for s, _ in CONTRADICTIONS])
def test_a_contradiction_is_named(sentence: str, change: dict[str, Any]) -> None:
    with pytest.raises(MachineError, match=sentence):
        build(**change)


def test_a_lock_order_that_could_make_two_records_wait_for_each_other_is_refused() -> None:
    def build_with_locks(first: tuple[str, ...], second: tuple[str, ...]) -> Machine:
        return Machine(
            name="m", plural="ms", prefix="m", description="", locks=(LockFamily("localid", ""), LockFamily("storage", "")),
            states=(work("A", "B", "", locks=first), work("B", "C", "", locks=second), rest("Failed", "", settled=True), end("C", "")),
            actions=(action("resume", "Failed", RESUME, ""),),
        )  # fmt: skip

    build_with_locks(("localid",), ("localid", "storage"))
    build_with_locks(("storage",), ("localid",))  # a lock that is dropped in the same commit blocks nobody
    with pytest.raises(MachineError, match="two records could wait for each other"):
        build_with_locks(("storage",), ("localid", "storage"))


def test_a_retired_state_is_left_and_not_entered() -> None:
    machine = build(states=(*S, retired("Weighing", "Sending")))
    state = machine.find_state("Weighing")
    assert state is not None
    assert state.works
    assert ("Weighing", "Sending") in {(a.source, a.target) for a in machine.iter_arrows()}


def test_states_say_whether_the_parent_waits() -> None:
    machine = build(states=(join("Filling", "Packing", "Until all are in."), *S))
    assert {s.name: s.open for s in machine.states} == {
        "Filling": True, "Packing": True, "Held": True, "Sending": True, "Failed": False, "Lost": False, "Arrived": False,
    }  # fmt: skip


def test_a_step_is_registered_once_and_only_for_a_state_that_works() -> None:
    machine = build()
    machine.step("Packing")(lambda record, ctx: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(MachineError, match="has two steps"):
        machine.step("Packing")(lambda record, ctx: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(MachineError, match="no step runs in Held"):
        machine.step("Held")(lambda record, ctx: None)  # type: ignore[arg-type, return-value]
    assert machine.list_states_without_step() == ("Sending",)


def test_backoff_grows_to_its_limit_and_never_overflows() -> None:
    backoff = Backoff(1, 2, 60)
    assert [backoff.compute_delay(n) for n in (0, 1, 2, 10, 10_000)] == [1, 2, 4, 60, 60]
