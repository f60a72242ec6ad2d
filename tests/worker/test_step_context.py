"""What a step may do through its context: create children page by page, also in the join that waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.worker.worker_fixture import WorkerFixture
from waybill.machine import Machine, action, end, join, rest, work
from waybill.record import MAX_DOCUMENT, CommitTooLarge, Record
from waybill.rules import Machines
from waybill.step import Done, New, Outcome, StepContext, Wait

LONG = 20_000  # bytes of a document: a hundred are more than a store takes at once


def children(lengths: Iterator[int] | list[int]) -> Iterator[New]:
    return (New("parcel", {"label": {"n": n, "text": "x" * length}}) for n, length in enumerate(lengths))


def test_a_page_of_children_that_is_too_large_is_split(system: WorkerFixture) -> None:
    lengths = [10] * 150 + [LONG] * 120 + [10] * 31

    def fill(record: Record, ctx: StepContext) -> Outcome:
        return Done({"made": {"n": ctx.spawn_each(children(lengths), page_size=100)}})

    system.set_steps(Filling=fill)
    crate = system.engine.submit(New("crate"))
    system.run_one_step(target=crate.ref)
    after = system.get(crate)
    assert (after.state, after.documents["made"]["n"]) == ("Waiting", 301), after.message
    assert after.documents["spawned"] == {"count": 301, "whole": True}
    page = system.store.find("parcel", parent=crate.ref, limit=1000, documents=True)
    assert [record.documents["label"]["n"] for record in page.records] == list(range(301))


def test_one_child_that_is_too_large_raises_and_those_before_it_are_there(system: WorkerFixture) -> None:
    refusals: list[str] = []

    def fill(record: Record, ctx: StepContext) -> Outcome:
        with pytest.raises(CommitTooLarge) as refusal:
            ctx.spawn_each(children([10, 10, 10, MAX_DOCUMENT + 1, 10]))
        refusals.append(str(refusal.value))
        return Done()

    system.set_steps(Filling=fill)
    crate = system.engine.submit(New("crate"))
    system.run_one_step(target=crate.ref)
    after = system.get(crate)
    assert (after.state, after.documents["spawned"]) == ("Waiting", {"count": 3, "whole": False})
    assert "document label" in refusals[0]
    assert sum(system.store.count_by_state("parcel", parent=crate.ref).values()) == 3


COUNT = 450


@pytest.fixture
def opening(system: WorkerFixture) -> Machine:
    """A crate that makes its parcels in the join itself."""
    table = Machine(
        name="crate",
        plural="crates",
        prefix="crt",
        description="Many parcels.",
        states=(
            work("Filling", to="Waiting", description="Light."),
            join("Waiting", to="Shipped", description="Make them, and wait for them.", children_document="spawned"),
            rest("Failed", description="Gave up.", settled=True),
            end("Shipped", description="All are sent."),
        ),
        actions=(action("drop", "Failed", "Shipped", "Give it up."),),
    )
    system.crate = table
    system.machines = Machines.from_machines((table, system.parcel))
    system.engine.machines = system.machines
    return table


def fill(record: Record, ctx: StepContext) -> Outcome:
    return Done({"spawned": {"count": 0, "whole": False}})


def test_a_join_creates_its_children_and_settles_when_all_have(system: WorkerFixture, opening: Machine) -> None:
    seen: list[bool] = []

    def wait(record: Record, ctx: StepContext) -> Outcome:
        seen.append(record.documents["spawned"]["whole"])
        if not seen[-1]:
            assert ctx.spawn_each((New("parcel") for _ in range(COUNT)), page_size=100) == COUNT
            return Wait(0)
        return Done(message=f"{ctx.count_by_state('parcel', parent=record.ref)['Sent']} sent")

    system.set_steps(Filling=fill, Waiting=wait)
    crate = system.engine.submit(New("crate"))
    system.start_worker()
    shipped = system.wait_for_state(crate, "Shipped")
    assert (seen, shipped.message, shipped.documents["spawned"]["count"]) == ([False, True], f"{COUNT} sent", COUNT)


def test_open_children_do_not_keep_a_join_from_creating_the_rest(system: WorkerFixture, opening: Machine) -> None:
    """A crash in the middle: those that are there are not waited for before the others are made."""
    runs: list[int] = []

    def wait(record: Record, ctx: StepContext) -> Outcome:
        runs.append(record.documents["spawned"]["count"])
        if len(runs) == 1:
            ctx.spawn([New("parcel") for _ in range(100)], {"spawned": {"count": 100, "whole": False}})
            raise OSError("in the middle")
        if not record.documents["spawned"]["whole"]:
            ctx.spawn_each((New("parcel") for _ in range(COUNT)), page_size=100)
            return Wait(0)
        return Done()

    system.set_steps(Filling=fill, Waiting=wait)
    crate = system.engine.submit(New("crate"))
    system.start_worker(queues=["crate"])  # nobody sends parcels: all of them stay open
    system.wait_until(lambda: sum(system.store.count_by_state("parcel").values()) == COUNT, "all are made")
    assert runs[:2] == [0, 100]
    assert system.get(crate).state == "Waiting"


def test_a_join_without_the_document_only_waits(system: WorkerFixture, opening: Machine) -> None:
    """Others have made the children, and say nothing of it."""
    runs: list[str] = []

    def wait(record: Record, ctx: StepContext) -> Outcome:
        runs.append(record.state)
        return Done()

    def by_others(record: Record, ctx: StepContext) -> Outcome:
        ctx.spawn([New("parcel")])
        return Done()

    system.set_steps(Filling=by_others, Waiting=wait)
    crate = system.engine.submit(New("crate"))
    system.start_worker(queues=["crate"])
    system.wait_until(lambda: system.get(crate).blocked_by == "children", "it waits for its child")
    assert runs == []
    system.start_worker(queues=["parcel"])
    system.wait_for_state(crate, "Shipped")
    assert runs == ["Waiting"]


def test_a_join_without_children_is_complete(system: WorkerFixture, opening: Machine) -> None:
    def wait(record: Record, ctx: StepContext) -> Outcome:
        if not record.documents["spawned"]["whole"]:
            ctx.spawn_each(())
            return Wait(0)
        return Done()

    system.set_steps(Filling=fill, Waiting=wait)
    crate = system.engine.submit(New("crate"))
    system.start_worker()
    assert system.wait_for_state(crate, "Shipped").documents["spawned"]["count"] == 0


# --- resources


def test_steps_receive_the_resources_of_their_application(system: WorkerFixture) -> None:
    seen: list[Any] = []

    def pack(record: Record, ctx: StepContext) -> Outcome:
        seen.append(ctx.resources)
        return Done()

    system.set_steps(Packing=pack)
    parcel = system.engine.submit(New("parcel"))
    system.start_worker(resources_of=lambda kind: f"tools of {kind}")
    system.wait_for_state(parcel, "Sent")
    assert seen == ["tools of parcel"]
