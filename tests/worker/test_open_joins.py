"""A join that makes its own children, machines that name their working folders, and the outfit that steps are given."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.worker.yard import Yard
from waybill import rules
from waybill.duties.duty import Hand, a_round
from waybill.duties.folders import Folders
from waybill.machine import Folder, Machine, action, end, join, rest, work
from waybill.record import Change, Committed, Group, Record, Ref
from waybill.rules import Machines
from waybill.step import Context, Done, New, Outcome, Wait
from waybill.worker.folders import all_folders, clear_folder, folder_of, make_attempt

COUNT = 450


@pytest.fixture
def opening(yard: Yard) -> Machine:
    """A crate that makes its parcels in the join itself."""
    table = Machine(
        name="crate",
        plural="crates",
        prefix="crt",
        doc="Many parcels.",
        states=(
            work("Filling", "Waiting", "Light."),
            join("Waiting", "Shipped", "Make them, and wait for them.", opens="spawned"),
            rest("Failed", "Gave up.", settled=True),
            end("Shipped", "All are sent."),
        ),
        actions=(action("drop", "Failed", "Shipped", "Give it up."),),
    )
    yard.crate = table
    yard.machines = Machines.of((table, yard.parcel))
    yard.engine.machines = yard.machines
    return table


def fill(record: Record, ctx: Context) -> Outcome:
    return Done({"spawned": {"count": 0, "whole": False}})


def test_a_join_makes_its_children_and_settles_when_all_have(yard: Yard, opening: Machine) -> None:
    seen: list[bool] = []

    def wait(record: Record, ctx: Context) -> Outcome:
        seen.append(record.docs["spawned"]["whole"])
        if not seen[-1]:
            assert ctx.spawn_each((New("parcel") for _ in range(COUNT)), portion=100) == COUNT
            return Wait(0)
        return Done(message=f"{ctx.tally('parcel', parent=record.ref)['Sent']} sent")

    yard.steps(Filling=fill, Waiting=wait)
    crate = yard.engine.submit(New("crate"))
    yard.worker()
    shipped = yard.until_state(crate, "Shipped")
    assert (seen, shipped.message, shipped.docs["spawned"]["count"]) == ([False, True], f"{COUNT} sent", COUNT)


def test_children_that_are_open_do_not_keep_it_from_making_the_rest(yard: Yard, opening: Machine) -> None:
    """A crash in the middle: those that are there are not waited for before the others are made."""
    runs: list[int] = []

    def wait(record: Record, ctx: Context) -> Outcome:
        runs.append(record.docs["spawned"]["count"])
        if len(runs) == 1:
            ctx.spawn([New("parcel") for _ in range(100)], {"spawned": {"count": 100, "whole": False}})
            raise OSError("in the middle")
        if not record.docs["spawned"]["whole"]:
            ctx.spawn_each((New("parcel") for _ in range(COUNT)), portion=100)
            return Wait(0)
        return Done()

    yard.steps(Filling=fill, Waiting=wait)
    crate = yard.engine.submit(New("crate"))
    yard.worker(roles=["crate"])  # nobody sends parcels: all of them stay open
    yard.until(lambda: sum(yard.store.tally("parcel").values()) == COUNT, "all are made")
    assert runs[:2] == [0, 100]
    assert yard.get(crate).state == "Waiting"


def test_without_the_document_it_only_waits(yard: Yard, opening: Machine) -> None:
    """Others have made the children, and say nothing of it."""
    runs: list[str] = []

    def wait(record: Record, ctx: Context) -> Outcome:
        runs.append(record.state)
        return Done()

    def by_others(record: Record, ctx: Context) -> Outcome:
        ctx.spawn([New("parcel")])
        return Done()

    yard.steps(Filling=by_others, Waiting=wait)
    crate = yard.engine.submit(New("crate"))
    yard.worker(roles=["crate"])
    yard.until(lambda: yard.get(crate).parked == "children", "it waits for its child")
    assert runs == []
    yard.worker(roles=["parcel"])
    yard.until_state(crate, "Shipped")
    assert runs == ["Waiting"]


def test_none_to_be_made_is_whole_too(yard: Yard, opening: Machine) -> None:
    def wait(record: Record, ctx: Context) -> Outcome:
        if not record.docs["spawned"]["whole"]:
            ctx.spawn_each(())
            return Wait(0)
        return Done()

    yard.steps(Filling=fill, Waiting=wait)
    crate = yard.engine.submit(New("crate"))
    yard.worker()
    assert yard.until_state(crate, "Shipped").docs["spawned"]["count"] == 0


# --- folders that a machine names


def named(record: Record) -> tuple[str, ...]:
    return ("rack-7", f"box-{record.id}")


@pytest.fixture
def shelved(yard: Yard) -> Machine:
    yard.parcel = dataclasses.replace(yard.parcel, folder=Folder("shelves", named), _by_name={}, steps={})
    yard.machines = Machines.of((yard.crate, yard.parcel))
    yard.engine.machines = yard.machines
    return yard.parcel


def test_a_machine_names_its_working_folders_and_they_are_cleared(yard: Yard, shelved: Machine) -> None:
    seen: list[Path] = []

    def pack(record: Record, ctx: Context) -> Outcome:
        (ctx.workdir / "part").write_text("x")
        (ctx.folder / "producer").mkdir()
        seen.extend((ctx.folder, ctx.workdir))
        return Done()

    yard.steps(Packing=pack)
    parcel = yard.engine.submit(New("parcel"))
    yard.worker()
    yard.until_state(parcel, "Sent")
    assert seen[0] == yard.root / "shelves" / "rack-7" / f"box-{parcel.id}"
    assert seen[1].parent == seen[0]
    yard.until(lambda: not seen[0].exists(), "the folder is cleared")


def a_hand(yard: Yard) -> Hand:
    return Hand(yard.store, yard.machines, "h1", yard.root)


def test_the_duty_finds_such_folders_by_what_they_say_of_themselves(yard: Yard, shelved: Machine) -> None:
    kept, gone = yard.engine.submit(New("parcel")), yard.engine.submit(New("parcel"))
    for record in (kept, gone):
        make_attempt(folder_of(yard.root, shelved, record), shelved, record, 1)
    (yard.root / "shelves" / "stranger" / "data").mkdir(parents=True)  # says nothing of whose it is: not ours to remove
    assert sorted(ref for _, ref in all_folders(yard.root, yard.machines)) == sorted([kept.ref, gone.ref])
    sent = replace(gone, state="Sent", open=False)
    assert isinstance(yard.store.commit([Group((Change(gone, sent, "done"),))])[0], Committed)
    assert a_round(Folders(age=0.0), a_hand(yard)) == 1
    assert [folder_of(yard.root, shelved, record).exists() for record in (kept, gone)] == [True, False]
    assert (yard.root / "shelves" / "stranger" / "data").exists()
    assert a_round(Folders(age=0.0), a_hand(yard)) == 0


def test_a_folder_in_use_again_keeps_its_name(yard: Yard, shelved: Machine) -> None:
    parcel = yard.engine.submit(New("parcel"))
    folder = folder_of(yard.root, shelved, parcel)
    make_attempt(folder, shelved, parcel, 3)
    make_attempt(folder, shelved, parcel, 9)
    clear_folder(folder, 5)
    assert sorted(p.name for p in folder.iterdir()) == [".record", "9"]
    assert [ref for _, ref in all_folders(yard.root, yard.machines)] == [parcel.ref]


@pytest.mark.parametrize("parts", [(), ("..", "x"), ("a/b",), (".record",), ("a",) * 5])
def test_no_folder_leads_out_of_its_place(yard: Yard, parts: tuple[str, ...]) -> None:
    table = dataclasses.replace(yard.parcel, folder=Folder("shelves", lambda record: parts), _by_name={}, steps={})
    with pytest.raises(ValueError, match="cannot have a working folder"):
        folder_of(yard.root, table, Record("parcel", "pcl0000000001", "Packing"))


# --- the outfit


def test_steps_are_given_their_applications_outfit(yard: Yard) -> None:
    seen: list[Any] = []

    def pack(record: Record, ctx: Context) -> Outcome:
        seen.append(ctx.outfit)
        return Done()

    yard.steps(Packing=pack)
    parcel = yard.engine.submit(New("parcel"))
    yard.worker(outfit=lambda kind: f"tools of {kind}")
    yard.until_state(parcel, "Sent")
    assert seen == ["tools of parcel"]


def test_confirmation_is_asked_for_only_where_it_matters(yard: Yard) -> None:
    asked = dataclasses.replace(
        yard.parcel.actions[0], confirm="Really?", unless=lambda record, store: record.priority == 7
    )
    table = dataclasses.replace(yard.parcel, actions=(asked, *yard.parcel.actions[1:]), _by_name={}, steps={})
    failed = Record("parcel", "pcl1", "Failed")
    with pytest.raises(rules.Refused, match="Really"):
        rules.act(table, failed, "resume", store=yard.store)
    change = rules.act(table, replace(failed, priority=7), "resume", store=yard.store)
    assert change.after is not None
    assert change.after.state == "Packing"


def test_a_record_made_by_others_says_what_was_done_before(yard: Yard) -> None:
    made = yard.engine.submit(New("parcel", last_done="Packing"))
    assert yard.get(made).last_done == "Packing"
    assert Ref("parcel", made.id) == made.ref
