"""Action requests that were left with a worker, when the guard of the action cannot decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from waybill.engine import Engine
from waybill.machine import ActionGuard, Machine, action, end, rest, work
from waybill.maintenance import MaintenanceContext
from waybill.maintenance.action_requests import ActionRequestRoutine
from waybill.record import MAX_DOCUMENT, Record, RecordExists, Ref, Store, StoreUnavailable, WorkQueue
from waybill.rules import Machines
from waybill.step import Done, New
from waybill.stores.model import ModelDatabase, ModelStore
from waybill.worker import run_one_step

OBJECTS: Any = None


def request_loss(guard: ActionGuard) -> tuple[Machines, ModelDatabase, Ref]:
    """A parcel that a worker released before it read the request to lose it."""
    parcel = Machine(
        name="parcel",
        plural="parcels",
        prefix="pcl",
        description="",
        states=(
            work("Packing", to="Sent", description="", on_fail="Shelved"),
            rest("Shelved", description=""),
            end("Sent", description=""),
            end("Lost", description=""),
        ),
        actions=(action("lose", "Packing Shelved", "Lost", "", when_claimed="wait", guard=lambda r, s: None),),
    )
    parcel.bound_steps["Packing"] = lambda record, ctx: Done()
    machines, database = Machines.from_machines((parcel,)), ModelDatabase(lambda: 1000.0)
    engine = Engine(ModelStore(database), machines)
    ref = engine.submit(New("parcel")).ref
    session = engine.store.open_session(host="h", ttl=15, about={})
    engine.store.claim([WorkQueue("parcel", "Packing")], session, 1)
    assert engine.act(ref, "lose", who="ann").pending
    engine.store.close_session(session)
    object.__setattr__(parcel.actions[0], "guard", guard)
    return machines, database, ref


def test_a_guard_that_cannot_reach_the_store_leaves_the_request_for_later(tmp_path: Path) -> None:
    is_unavailable = [True]

    def guard(record: Record, store: Store) -> str | None:
        if is_unavailable[0]:
            raise StoreUnavailable("the store is unavailable")
        return None

    machines, database, ref = request_loss(guard)
    run_one_step(lambda: ModelStore(database), machines, host="h", work_root=tmp_path, objects=OBJECTS)
    engine = Engine(ModelStore(database), machines)
    record = engine.store.get(*ref)
    assert (record.state, record.session) == ("Packing", None)
    assert [request.action for request in engine.store.list_action_requests()] == ["lose"]
    is_unavailable[0] = False
    assert engine.apply_action_requests() == 1
    assert engine.store.get(*ref).state == "Lost"


@pytest.mark.parametrize("error", [KeyError("weight"), TypeError("no number"), ValueError("too heavy")])
def test_a_guard_that_fails_refuses_and_the_worker_goes_on(error: Exception, tmp_path: Path) -> None:
    def guard(record: Record, store: Store) -> str | None:
        raise error

    machines, database, ref = request_loss(guard)
    run_one_step(lambda: ModelStore(database), machines, host="h", work_root=tmp_path, objects=OBJECTS)
    engine = Engine(ModelStore(database), machines)
    last = engine.store.history(*ref)[-1]
    assert (last.cause, last.who, last.why) == ("lose refused", "ann", str(error))
    assert engine.store.list_action_requests() == []
    assert engine.store.get(*ref).session is None


def test_a_request_for_an_unknown_kind_is_left_to_others(tmp_path: Path) -> None:
    machines, database, ref = request_loss(lambda record, store: None)
    other = Machine(
        name="crate",
        plural="crates",
        prefix="crt",
        description="",
        states=(work("Filling", to="Full", description="", on_fail=None), end("Full", description="")),
    )
    knows_crates = Engine(ModelStore(database), Machines.from_machines((other,)))
    assert knows_crates.apply_action_requests() == 0
    context = MaintenanceContext(knows_crates.store, knows_crates.machines, "h", tmp_path)
    assert list(ActionRequestRoutine().check(context)) == []
    assert [request.ref for request in knows_crates.store.list_action_requests()] == [ref]
    assert Engine(ModelStore(database), machines).apply_action_requests() == 1


@pytest.mark.parametrize("by", ["worker", "engine"])
def test_a_request_whose_documents_cannot_be_stored_is_refused_and_blocks_nothing(by: str, tmp_path: Path) -> None:
    machines, database, ref = request_loss(lambda record, store: None)
    object.__setattr__(machines["parcel"].actions[0], "writes", lambda record, args: {"note": "x" * MAX_DOCUMENT})
    engine = Engine(ModelStore(database), machines)
    if by == "worker":
        run_one_step(lambda: ModelStore(database), machines, host="h", work_root=tmp_path, objects=OBJECTS)
    else:
        assert engine.apply_action_requests() == 1
    last = engine.store.history(*ref)[-1]
    assert (last.cause, last.who, last.after) == ("lose refused", "ann", "Packing")
    assert "bytes" in last.why
    assert engine.store.list_action_requests() == []
    assert engine.store.get(*ref).session is None


def test_several_submissions_are_created_all_or_none() -> None:
    machines, database, _ = request_loss(lambda record, store: None)
    engine = Engine(ModelStore(database), machines)
    first = engine.submit_all([New("parcel", idempotency_key="a"), New("parcel", idempotency_key="b")])
    assert engine.submit_all([New("parcel", idempotency_key="a"), New("parcel", idempotency_key="b")]) == first
    with pytest.raises(RecordExists, match="nothing was created now"):
        engine.submit_all([New("parcel", idempotency_key="a"), New("parcel", idempotency_key="c")])
    assert engine.store.count_by_state("parcel") == {"Packing": 3}
