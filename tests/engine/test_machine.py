"""A machine that contradicts itself is refused when it is built, with a sentence that names the state or action."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
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
    State,
    action,
    end,
    join,
    rest,
    retired,
    work,
)
from waybill.step import Done

GOOD: dict[str, Any] = {
    "name": "parcel",
    "plural": "parcels",
    "prefix": "pcl",
    "description": "One parcel.",
    "states": (
        work("Packing", to="Sending", description="Put it into a box.", on_hold="Held"),
        rest("Held", description="Stopped by a hold."),
        work("Sending", to="Arrived", description="Hand it over.", or_to=("Lost",)),
        rest("Failed", description="Gave up.", settled=True),
        end("Lost", description="Nobody knows."),
        end("Arrived", description="Signed for."),
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
    other = build(
        states=(
            *S[:2],
            work("Sending", to="Arrived", description="Hand it over."),
            S[3],
            end("Arrived", description="Signed."),
        )
    )
    assert build().compute_digest() == build().compute_digest() != other.compute_digest()


S = GOOD["states"]


def build_packing(**options: Any) -> State:
    return work("Packing", **{"to": "Sending", "description": "", "on_hold": "Held", **options})


CONTRADICTIONS: list[tuple[str, dict[str, Any]]] = [
    ("needs a state", {"states": (), "actions": ()}),
    ("Packing is declared twice", {"states": (*S, end("Packing", description="again"))}),
    ("action resume is declared twice", {"actions": (*GOOD["actions"], action("resume", "Held", "Packing", "again"))}),
    ("document a is declared twice", {"documents": (Document("a", None, "step", ""), Document("a", None, "step", ""))}),
    ("Packing goes to Nowhere, which is no state", {"states": (work("Packing", to="Nowhere", description=""), *S[1:])}),
    ("no path leads to Attic", {"states": (*S, end("Attic", description="never entered"))}),
    (
        "no path leads from Attic to an end",
        {"states": (build_packing(or_to=("Attic",)), *S[1:], rest("Attic", description="a trap"))},
    ),
    ("there is no end state", {"states": (work("Packing", to="Packing", description="", on_fail=None),), "actions": ()}),
    ("leaves Arrived, which is an end", {"actions": (*GOOD["actions"], action("undo", "Arrived", "Packing", ""))}),
    ("the action jump goes to Nowhere", {"actions": (*GOOD["actions"], action("jump", "Failed", "Nowhere", ""))}),
    ("the action jump leaves Nowhere", {"actions": (*GOOD["actions"], action("jump", "Nowhere", "Packing", ""))}),
    ("does not say by which holds", {"hold_names": None}),
    ("goes on hold in Arrived, which must be a rest state", {"states": (build_packing(on_hold="Arrived"), *S[1:])}),
    ("must be tried at least once", {"states": (build_packing(max_tries=0), *S[1:])}),
    ("poll interval of -1 seconds", {"states": (build_packing(poll_interval=-1), *S[1:])}),
    (
        "needs locks of the family ark, which is not declared",
        {"states": (build_packing(locks=("ark",)), *S[1:])},
    ),
    ("goes to Old, which is retired", {"states": (build_packing(to="Old"), retired("Old", to="Sending"), *S[1:])}),
    ("both that a hold blocks it there and that a hold sends it to Held", {"states": (build_packing(blocks_on_hold=True), *S[1:])}),
    ("Held says after how long its records are removed, but they are open",
     {"states": tuple(rest("Held", description="", keep=60.0) if s.name == "Held" else s for s in S)}),
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
            states=(work("A", to="B", description="", locks=first),
                    work("B", to="C", description="", locks=second), end("C", description="")),
        )  # fmt: skip

    build_with_locks(("localid",), ("localid", "storage"))
    build_with_locks(("storage",), ("localid",))  # a lock that is dropped in the same commit blocks nobody
    with pytest.raises(MachineError, match="two records could wait for each other"):
        build_with_locks(("storage",), ("localid", "storage"))


def test_a_retired_state_is_left_and_not_entered() -> None:
    machine = build(states=(*S, retired("Weighing", to="Sending")))
    state = machine.find_state("Weighing")
    assert state is not None
    assert state.works
    assert ("Weighing", "Sending") in {(a.source, a.target) for a in machine.iter_arrows()}


def test_states_say_whether_the_parent_waits() -> None:
    machine = build(states=(join("Filling", to="Packing", description="Until all are in."), *S))
    assert {s.name: s.open for s in machine.states} == {
        "Filling": True, "Packing": True, "Held": True, "Sending": True, "Failed": False, "Lost": False, "Arrived": False,
    }  # fmt: skip


def test_a_step_is_bound_only_to_a_state_that_works() -> None:
    machine = build(steps={"Packing": lambda record, ctx: Done()})
    assert machine.list_states_without_step() == ("Sending",)
    with pytest.raises(MachineError, match="no step runs in Held; steps run in Packing, Sending"):
        _ = build(steps={"Held": lambda record, ctx: Done()}).bound_steps


ONE_FILE = """
from waybill import Done, Machine, end, join, work
KEPT = Machine(name="kept", plural="kept", description="A file.", steps=__name__, states=(
    work("BoxOpening", to="Waiting", description="Opens its box."),
    join("Waiting", to="Over", description="Waits."),
    end("Over", description="Over."),
))
def box_opening(record, ctx):
    return Done(message="one file")
"""


def test_steps_are_functions_of_a_module_named_as_their_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "one_file_steps.py").write_text(ONE_FILE)
    machine = importlib.import_module("one_file_steps").KEPT
    assert list(machine.bound_steps) == ["BoxOpening"], "a join needs none"
    assert machine.bound_steps["BoxOpening"](None, None).message == "one file"
    (tmp_path / "no_steps.py").write_text(ONE_FILE.replace("def box_opening", "def open_box"))
    with pytest.raises(
        MachineError, match=r"BoxOpening has no step. Write it as the function box_opening\(record, ctx\)"
    ):
        importlib.import_module("no_steps").KEPT.list_states_without_step()


def test_steps_are_modules_of_a_package_named_as_their_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "folder_of_steps"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("packing", "sending"):
        (package / f"{name}.py").write_text(f"def run_step(record, ctx): return {name!r}")
    machine = build(steps="folder_of_steps")
    steps: dict[str, Any] = dict(machine.bound_steps)
    assert {state: step(None, None) for state, step in steps.items()} == {"Packing": "packing", "Sending": "sending"}
    with pytest.raises(MachineError, match="Weighing has no step"):
        _ = build(states=(work("Weighing", to="Packing", description=""), *S), steps="folder_of_steps").bound_steps


def test_a_machine_has_failed_and_resume_unless_it_declares_its_own() -> None:
    without = [s for s in S if s.name != "Failed"]
    machine = build(states=tuple(without), actions=GOOD["actions"][1:])
    assert [s.name for s in machine.states] == [s.name for s in S], "before the first end"
    failed, resume = machine.find_state("Failed"), machine.find_action("resume")
    assert failed is not None
    assert (failed.type, failed.open) == ("rest", False)
    assert resume is not None
    assert (resume.sources, resume.target, resume.role) == (("Failed",), RESUME, "operator")
    assert {a.target for a in machine.iter_arrows() if a.label == "resume"} == {"Packing", "Sending"}
    assert build(states=tuple(without)).find_action("resume") == GOOD["actions"][0], "its own resume"
    assert dataclasses.replace(machine).states == machine.states
    own_actions = (*GOOD["actions"][1:], action("repair", "Failed", "Packing", "Mine."))
    own = build(states=(*S[:3], rest("Failed", description="Mine."), *S[4:]), actions=own_actions)
    assert own.find_action("resume") is None
    never = build(
        states=(work("Packing", to="Over", description="", on_fail=None), end("Over", description="")), actions=()
    )
    assert [s.name for s in never.states] == ["Packing", "Over"], "no step of it fails"


def test_backoff_grows_to_its_limit_and_never_overflows() -> None:
    backoff = Backoff(1, 2, 60)
    assert [backoff.compute_delay(n) for n in (0, 1, 2, 10, 10_000)] == [1, 2, 4, 60, 60]
