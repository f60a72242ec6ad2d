"""Action requests that the worker did not apply and others do: each once, however many try."""

from __future__ import annotations

from typing import Any

import pytest

from waybill import rules
from waybill.engine import Engine
from waybill.machine import Machine, action, end, join, rest, work
from waybill.record import (
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    Ref,
    Store,
    StoreError,
    StoreUnavailable,
    WorkQueue,
)
from waybill.rules import Machines
from waybill.step import Done, New
from waybill.stores.model import ModelDatabase, ModelStore

CRATE = Machine(
    name="crate",
    plural="crates",
    prefix="crt",
    description="",
    states=(join("Waiting", to="Full", description=""), end("Full", description="")),
)
PARCEL = Machine(
    name="parcel",
    plural="parcels",
    prefix="pcl",
    description="",
    parent="crate",
    states=(
        work("Packing", to="Sent", description="", on_fail="Shelved"),
        rest("Shelved", description=""),
        end("Sent", description=""),
        end("Lost", description=""),
    ),
    actions=(
        action("shelve", "Packing", "Shelved", "", when_claimed="wait"),
        action("lose", "Packing Shelved", "Lost", "", when_claimed="wait"),
    ),
)
PARCEL.bound_steps["Packing"] = lambda record, ctx: Done()
MACHINES = Machines.from_machines((CRATE, PARCEL))


def leave_request(action: str) -> tuple[ModelDatabase, Ref, Ref]:
    """Request an action of a worker, whose session then ends before it learns of the request."""
    database = ModelDatabase(lambda: 1000.0)
    engine = Engine(ModelStore(database), MACHINES)
    crate = engine.submit(New("crate"))
    answer = engine.store.commit([CommitGroup((rules.create(MACHINES, New("parcel"), maker=crate),))])[0]
    assert isinstance(answer, CommitResult)
    (parcel,) = answer.records
    assert parcel is not None
    session = engine.store.open_session(host="h", ttl=15, about={})
    engine.store.claim([WorkQueue("parcel", "Packing")], session, 1)
    assert engine.act(parcel.ref, action, who="ann").pending
    engine.store.close_session(session)
    return database, crate.ref, parcel.ref


class SlowStore:
    """A connection on which others act between the first listing of the requests and what follows."""

    def __init__(self, store: Store, meanwhile: Any) -> None:
        self._store, self._meanwhile = store, meanwhile

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    def list_action_requests(self, limit: int = 100) -> Any:
        requests = self._store.list_action_requests(limit)
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()
        return requests


def test_a_request_that_another_applied_meanwhile_is_not_applied_again() -> None:
    database, _, parcel = leave_request("shelve")
    others = Engine(ModelStore(database), MACHINES)
    slow: Any = SlowStore(ModelStore(database), lambda: others.apply_action_requests())
    assert Engine(slow, MACHINES).apply_action_requests() == 0
    assert [entry.cause for entry in others.store.history(*parcel)] == ["submit", "shelve"]


def test_a_request_that_closes_the_last_child_wakes_the_parent() -> None:
    database, crate, parcel = leave_request("lose")
    engine = Engine(ModelStore(database), MACHINES)
    assert engine.apply_action_requests() == 1
    assert engine.store.get(*parcel).state == "Lost"
    assert engine.store.get(*crate).wake_count == 1


def test_a_request_whose_record_changes_meanwhile_is_applied_to_the_changed_record() -> None:
    database, _, parcel = leave_request("shelve")
    engine = Engine(ModelStore(database), MACHINES)

    def someone_acts() -> None:
        slow._meanwhile = lambda: engine.act(parcel, "lose", who="bob")  # between the second reading and the commit

    slow: Any = SlowStore(ModelStore(database), someone_acts)
    Engine(slow, MACHINES).apply_action_requests()
    assert [entry.cause for entry in engine.store.history(*parcel)] == ["submit", "lose", "shelve refused"]
    assert engine.store.list_action_requests() == []


@pytest.mark.parametrize("error", [StoreUnavailable("unavailable"), CommitOutcomeUnknown("cut")])
@pytest.mark.parametrize("raised", [True, False])
def test_an_action_that_was_written_succeeds_when_the_wake_of_the_parent_is_lost(
    error: StoreError, raised: bool
) -> None:
    database, _, parcel = leave_request("shelve")
    store = ModelStore(database)
    commit = store.commit

    def lose_wakes(groups: Any) -> Any:
        if groups[0].wake:
            if raised:
                raise error
            return [error]
        return commit(groups)

    store.commit = lose_wakes  # type: ignore[method-assign]
    assert Engine(store, MACHINES).act(parcel, "lose", who="bob").record.state == "Lost"
