"""Records created by `Engine.submit` and `submit_each`: children of an existing parent, and each for itself."""

import pytest

from tests.worker.worker_fixture import build_machines
from waybill.engine import Engine
from waybill.record import Record, Ref
from waybill.rules import ActionRefused, Machines
from waybill.step import New
from waybill.stores.model import ModelDatabase, ModelStore


@pytest.fixture
def engine() -> Engine:
    return Engine(ModelStore(ModelDatabase(lambda: 1000.0)), Machines.from_machines(build_machines()))


def test_a_child_may_be_created_after_its_parent_which_waits_for_it(engine: Engine) -> None:
    crate = engine.submit(New("crate"))
    parcel = engine.submit(New("parcel", parent=crate.ref))
    assert parcel.parent == crate.ref
    assert engine.store.parents_with_open_children([crate.ref]) == {crate.ref}


def test_a_parent_of_the_wrong_kind_is_refused(engine: Engine) -> None:
    with pytest.raises(ActionRefused, match="cannot be a child of parcel"):
        engine.submit(New("crate", parent=Ref("parcel", "x")))


def test_each_is_answered_for_itself(engine: Engine) -> None:
    first, refused, last = engine.submit_each(
        [New("crate", idempotency_key="a"), New("crate", state="Nowhere"), New("crate", idempotency_key="b")]
    )
    assert isinstance(first, Record)
    assert isinstance(refused, ActionRefused)
    assert isinstance(last, Record)
    again = engine.submit_each([New("crate", idempotency_key="b"), New("crate", idempotency_key="c")])
    assert again[0] == last
    assert isinstance(again[1], Record)
    assert engine.store.count_by_state("crate") == {first.state: 3}
