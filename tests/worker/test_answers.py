"""What was asked of a record while a worker held it, when the guard of the action cannot tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from waybill.duties import Hand
from waybill.duties.requests import Requests
from waybill.engine import Engine
from waybill.machine import Guard, Machine, action, end, rest, work
from waybill.record import MAX_DOCUMENT, Exists, Record, Ref, Role, Store, Unavailable
from waybill.rules import Machines
from waybill.step import Done, New
from waybill.stores.model import ModelStore, World
from waybill.worker import step_once

OBJECTS: Any = None


def asked(guard: Guard) -> tuple[Machines, World, Ref]:
    """A parcel that a worker let go of before it heard that it was to be lost."""
    parcel = Machine(
        name="parcel",
        plural="parcels",
        prefix="pcl",
        doc="",
        states=(work("Packing", "Sent", "", fails="Shelved"), rest("Shelved", ""), end("Sent", ""), end("Lost", "")),
        actions=(action("lose", "Packing Shelved", "Lost", "", claimed="wait", guard=lambda r, s: None),),
    )
    parcel.steps["Packing"] = lambda record, ctx: Done()
    machines, world = Machines.of((parcel,)), World(lambda: 1000.0)
    engine = Engine(ModelStore(world), machines)
    ref = engine.submit(New("parcel")).ref
    session = engine.store.open_session(host="h", ttl=15, about={})
    engine.store.claim([Role("parcel", "Packing")], session, 1)
    assert engine.act(ref, "lose", who="ann").pending
    engine.store.close_session(session)
    object.__setattr__(parcel.actions[0], "guard", guard)
    return machines, world, ref


def test_a_guard_that_cannot_reach_the_store_leaves_the_request_for_later(tmp_path: Path) -> None:
    away = [True]

    def guard(record: Record, store: Store) -> str | None:
        if away[0]:
            raise Unavailable("the store is away")
        return None

    machines, world, ref = asked(guard)
    step_once(lambda: ModelStore(world), machines, host="h", work_root=tmp_path, objects=OBJECTS)
    engine = Engine(ModelStore(world), machines)
    record = engine.store.get(*ref)
    assert (record.state, record.session) == ("Packing", None)
    assert [ask.action for ask in engine.store.asks()] == ["lose"]
    away[0] = False
    assert engine.pending() == 1
    assert engine.store.get(*ref).state == "Lost"


@pytest.mark.parametrize("mistake", [KeyError("weight"), TypeError("no number"), ValueError("too heavy")])
def test_a_guard_that_fails_refuses_and_the_worker_goes_on(mistake: Exception, tmp_path: Path) -> None:
    def guard(record: Record, store: Store) -> str | None:
        raise mistake

    machines, world, ref = asked(guard)
    step_once(lambda: ModelStore(world), machines, host="h", work_root=tmp_path, objects=OBJECTS)
    engine = Engine(ModelStore(world), machines)
    last = engine.store.history(*ref)[-1]
    assert (last.event, last.who, last.why) == ("lose refused", "ann", str(mistake))
    assert engine.store.asks() == []
    assert engine.store.get(*ref).session is None


def test_a_request_to_a_kind_that_is_not_known_here_is_left_to_others(tmp_path: Path) -> None:
    machines, world, ref = asked(lambda record, store: None)
    other = Machine(
        name="crate",
        plural="crates",
        prefix="crt",
        doc="",
        states=(work("Filling", "Full", "", fails=None), end("Full", "")),
    )
    knows_crates = Engine(ModelStore(world), Machines.of((other,)))
    assert knows_crates.pending() == 0
    hand = Hand(knows_crates.store, knows_crates.machines, "h", tmp_path)
    assert list(Requests().check(hand)) == []
    assert [ask.ref for ask in knows_crates.store.asks()] == [ref]
    assert Engine(ModelStore(world), machines).pending() == 1


@pytest.mark.parametrize("by", ["worker", "pending"])
def test_a_request_whose_documents_no_store_keeps_is_refused_and_stands_in_nobodys_way(by: str, tmp_path: Path) -> None:
    machines, world, ref = asked(lambda record, store: None)
    object.__setattr__(machines["parcel"].actions[0], "writes", lambda record, args: {"note": "x" * MAX_DOCUMENT})
    engine = Engine(ModelStore(world), machines)
    if by == "worker":
        step_once(lambda: ModelStore(world), machines, host="h", work_root=tmp_path, objects=OBJECTS)
    else:
        assert engine.pending() == 1
    last = engine.store.history(*ref)[-1]
    assert (last.event, last.who, last.after) == ("lose refused", "ann", "Packing")
    assert "bytes" in last.why
    assert engine.store.asks() == []
    assert engine.store.get(*ref).session is None


def test_several_are_made_all_or_none_also_when_one_was_made_before() -> None:
    machines, world, _ = asked(lambda record, store: None)
    engine = Engine(ModelStore(world), machines)
    first = engine.submit_all([New("parcel", request="a"), New("parcel", request="b")])
    assert engine.submit_all([New("parcel", request="a"), New("parcel", request="b")]) == first
    with pytest.raises(Exists, match="nothing was made now"):
        engine.submit_all([New("parcel", request="a"), New("parcel", request="c")])
    assert engine.store.tally("parcel") == {"Packing": 3}
