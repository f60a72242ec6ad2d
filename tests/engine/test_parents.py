"""Children of a parent that was made before, and records made each for itself."""

import pytest

from tests.worker.yard import tables
from waybill.engine import Engine
from waybill.record import Record, Ref
from waybill.rules import Machines, Refused
from waybill.step import New
from waybill.stores.model import ModelStore, World


@pytest.fixture
def engine() -> Engine:
    return Engine(ModelStore(World(lambda: 1000.0)), Machines.of(tables()))


def test_a_child_may_be_made_after_its_parent_and_its_parent_waits_for_it(engine: Engine) -> None:
    crate = engine.submit(New("crate"))
    parcel = engine.submit(New("parcel", parent=crate.ref))
    assert parcel.parent == crate.ref
    assert engine.store.open_parents([crate.ref]) == {crate.ref}


def test_a_parent_of_the_wrong_kind_is_refused(engine: Engine) -> None:
    with pytest.raises(Refused, match="cannot be a child of parcel"):
        engine.submit(New("crate", parent=Ref("parcel", "x")))


def test_each_is_answered_for_itself(engine: Engine) -> None:
    first, refused, last = engine.submit_each(
        [New("crate", request="a"), New("crate", state="Nowhere"), New("crate", request="b")]
    )
    assert isinstance(first, Record)
    assert isinstance(refused, Refused)
    assert isinstance(last, Record)
    again = engine.submit_each([New("crate", request="b"), New("crate", request="c")])
    assert again[0] == last
    assert isinstance(again[1], Record)
    assert engine.store.tally("crate") == {first.state: 3}
