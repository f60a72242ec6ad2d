"""Requests that were left with a worker and are applied by others: each once, however many try."""

from __future__ import annotations

from typing import Any

import pytest

from waybill import rules
from waybill.engine import Engine
from waybill.machine import Machine, action, end, join, rest, work
from waybill.record import Committed, Group, Ref, Role, Store, StoreError, Unavailable, Unknown
from waybill.rules import Machines
from waybill.step import Done, New
from waybill.stores.model import ModelStore, World

CRATE = Machine(
    name="crate", plural="crates", prefix="crt", doc="", states=(join("Waiting", "Full", ""), end("Full", ""))
)
PARCEL = Machine(
    name="parcel",
    plural="parcels",
    prefix="pcl",
    doc="",
    parent="crate",
    states=(work("Packing", "Sent", "", fails="Shelved"), rest("Shelved", ""), end("Sent", ""), end("Lost", "")),
    actions=(
        action("shelve", "Packing", "Shelved", "", claimed="wait"),
        action("lose", "Packing Shelved", "Lost", "", claimed="wait"),
    ),
)
PARCEL.steps["Packing"] = lambda record, ctx: Done()
MACHINES = Machines.of((CRATE, PARCEL))


def left_behind(action: str) -> tuple[World, Ref, Ref]:
    """A request was left with a worker, which then let go of the record without knowing."""
    world = World(lambda: 1000.0)
    engine = Engine(ModelStore(world), MACHINES)
    crate = engine.submit(New("crate"))
    answer = engine.store.commit([Group((rules.create(MACHINES, New("parcel"), maker=crate),))])[0]
    assert isinstance(answer, Committed)
    (parcel,) = answer.records
    assert parcel is not None
    session = engine.store.open_session(host="h", ttl=15, about={})
    engine.store.claim([Role("parcel", "Packing")], session, 1)
    assert engine.act(parcel.ref, action, who="ann").pending
    engine.store.close_session(session)
    return world, crate.ref, parcel.ref


class Slow:
    """A connection on which others act between the first reading of the requests and what follows."""

    def __init__(self, store: Store, meanwhile: Any) -> None:
        self._store, self._meanwhile = store, meanwhile

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    def asks(self, limit: int = 100) -> Any:
        found = self._store.asks(limit)
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()
        return found


def test_a_request_that_another_applied_meanwhile_is_not_applied_again() -> None:
    world, _, parcel = left_behind("shelve")
    others = Engine(ModelStore(world), MACHINES)
    slow: Any = Slow(ModelStore(world), lambda: others.pending())
    assert Engine(slow, MACHINES).pending() == 0
    assert [line.event for line in others.store.history(*parcel)] == ["submit", "shelve"]


def test_a_request_that_closes_the_last_child_calls_the_parent() -> None:
    world, crate, parcel = left_behind("lose")
    engine = Engine(ModelStore(world), MACHINES)
    assert engine.pending() == 1
    assert engine.store.get(*parcel).state == "Lost"
    assert engine.store.get(*crate).nudges == 1


def test_a_request_whose_record_moves_while_it_is_applied_is_applied_to_what_it_has_become() -> None:
    world, _, parcel = left_behind("shelve")
    engine = Engine(ModelStore(world), MACHINES)

    def someone_acts() -> None:
        slow._meanwhile = lambda: engine.act(parcel, "lose", who="bob")  # between the second reading and the commit

    slow: Any = Slow(ModelStore(world), someone_acts)
    Engine(slow, MACHINES).pending()
    assert [line.event for line in engine.store.history(*parcel)] == ["submit", "lose", "shelve refused"]
    assert engine.store.asks() == []


@pytest.mark.parametrize("trouble", [Unavailable("away"), Unknown("cut")])
@pytest.mark.parametrize("raised", [True, False])
def test_an_action_that_was_written_is_not_called_refused_when_its_nudge_is_lost(
    trouble: StoreError, raised: bool
) -> None:
    world, _, parcel = left_behind("shelve")
    store = ModelStore(world)
    commit = store.commit

    def lose_nudges(groups: Any) -> Any:
        if groups[0].nudges:
            if raised:
                raise trouble
            return [trouble]
        return commit(groups)

    store.commit = lose_nudges  # type: ignore[method-assign]
    assert Engine(store, MACHINES).act(parcel, "lose", who="bob").record.state == "Lost"
