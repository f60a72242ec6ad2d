"""Batches are found by their id and by their batchID, on every store, and shown in their depositor's words."""

import pytest

from tests.apps.ingest.service.service_caller import ServiceCaller
from waybill.apps.ingest import service
from waybill.errors import ActionRefused, NotFound


def test_a_batch_is_found_by_its_batch_id(anywhere: ServiceCaller) -> None:
    caller = anywhere
    other, batch = caller.submit(b"a"), caller.submit(b"b")
    for name in (batch.batch.id, batch.batch_id, batch.batch_id.removeprefix("bid-")):
        assert service.find_batch(caller.engine, name).id == batch.batch.id
    mine = caller.submit(b"c", batch_id="my-own.name")
    assert service.find_batch(caller.engine, "my-own.name").id == mine.batch.id
    for name in ("bid-nobody", "bid0000009999", "", "a/b", "..", "\0", other.batch_id.upper()):
        with pytest.raises(NotFound):
            service.find_batch(caller.engine, name)
    caller.engine.act(batch.batch.ref, "hold", who="op")
    caller.engine.act(batch.batch.ref, "delete", who="op", confirmed=True)
    caller.engine.remove(batch.batch.ref, who="op")
    with pytest.raises(NotFound, match="no batch"):
        service.find_batch(caller.engine, batch.batch_id)
    assert caller.submit(b"b", batch_id=batch.batch_id).batch.id != batch.batch.id, "the name is free again"


def test_the_same_submission_twice_is_one_batch_on_every_store(anywhere: ServiceCaller) -> None:
    first, again = (anywhere.submit(b"hello", batch_id="bid-1") for _ in range(2))
    assert (first.batch.id, first.is_repeated, again.is_repeated) == (again.batch.id, False, True)
    assert sum(anywhere.engine.store.count_by_state("batch").values()) == 1
    with pytest.raises(ActionRefused):
        anywhere.submit(b"other", batch_id="bid-1")


def test_a_batch_is_shown_in_the_words_of_its_depositor(caller: ServiceCaller) -> None:
    batch = caller.submit(b"hello", title="A title", local_ids=("x1", "x2"), update=True).batch
    view = service.build_batch_view(caller.engine, caller.engine.store.get(*batch.ref))
    assert (view["title"], view["local_ids"], view["update"], view["profile"], view["type"]) == (
        "A title",
        ["x1", "x2"],
        True,
        "demo",
        "file",
    )
    assert view["jobs"] == {"total": 0, "states": {}}
    assert view["state_description"]
    assert "waybill:" not in str(view), "where uploads lie is nobody's business"


def test_a_batch_that_another_service_made_can_be_shown(caller: ServiceCaller) -> None:
    from waybill.step import New

    batch = caller.engine.submit(
        New("batch", {"submission": {"batchID": "bid-7", "type": "odd", "update": False}}), who="other"
    )
    view = service.build_batch_view(caller.engine, caller.engine.store.get(*batch.ref))
    assert (view["batch_id"], view["type"], view["profile"]) == ("bid-7", None, "")


def test_a_job_is_found_by_its_id(caller: ServiceCaller) -> None:
    for id in ("jid0000000001", "", "a/b"):
        with pytest.raises(NotFound):
            service.find_job(caller.engine, id)
