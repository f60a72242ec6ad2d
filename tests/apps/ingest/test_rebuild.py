"""The inventory is recorded again from storage, by any worker, and never while a job records the same object."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.access.stored_objects import ARK, StoredObjects
from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill import rules
from waybill.apps.ingest.machine.rebuild import MAX_OBJECTS, make_rebuild, read_object_pages
from waybill.record import Change, CommitGroup, CommitResult, Record, Store
from waybill.rules import ActionRefused
from waybill.step import Fail, New


@pytest.fixture(params=["sqlite", "postgres", "zookeeper"])
def ingest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IngestFixture]:
    store = "" if request.param == "sqlite" else str(request.getfixturevalue(f"{request.param}_url"))
    with IngestFixture(tmp_path, store=store) as made:
        yield made


def rebuilt(ingest: IngestFixture, *arks: str) -> Record:
    with ingest.engine() as engine:
        record = engine.submit(make_rebuild(arks, owner="jo"))
    with ingest.workers():
        return ingest.wait("rebuild", record.id, "Completed", "Failed")


def test_what_the_inventory_lost_is_there_again(ingest: IngestFixture) -> None:
    holdings = StoredObjects(ingest)
    about = {"title": "Husky", "owner": "o", "local_ids": ["x"]}
    holdings.add({"producer/a.txt": b"one"}, about=about)
    holdings.add({"producer/a.txt": b"two"}, about=about)
    inventory = holdings.resources.inventory
    before = (
        inventory.get_object(ARK),
        inventory.list_versions(ARK),
        inventory.list_files(ARK, 1),
        inventory.list_files(ARK, 2),
    )
    inventory.forget(ARK)
    assert inventory.get_object(ARK) is None
    record = rebuilt(ingest, ARK)
    assert record.documents["rebuilt"] == {"v": 1, "objects": 1, "versions": 2, "failures": []}
    assert (
        inventory.get_object(ARK),
        inventory.list_versions(ARK),
        inventory.list_files(ARK, 1),
        inventory.list_files(ARK, 2),
    ) == before
    assert rebuilt(ingest, ARK).state == "Completed"
    assert inventory.list_versions(ARK) == before[1]


def test_what_the_storage_does_not_have_is_forgotten(ingest: IngestFixture) -> None:
    holdings = StoredObjects(ingest)
    holdings.add({"producer/a.txt": b"one"})
    for info in list(ingest.environment.objects.list("ocfl")):
        ingest.environment.objects.delete(info.name)
    assert rebuilt(ingest, ARK).state == "Completed"
    assert holdings.resources.inventory.get_object(ARK) is None


def test_one_damaged_object_does_not_stop_the_others(ingest: IngestFixture) -> None:
    holdings = StoredObjects(ingest)
    good = "ark:/99999/fk4good"
    holdings.add({"producer/a.txt": b"one"}, record=False)
    holdings.add({"producer/a.txt": b"one"}, good, record=False)
    with holdings.storage.read(ARK, "inventory.json") as body:
        name, data = body.info.name, body.read()
    ingest.environment.objects.put(name, data.replace(b"waybill", b"waybull"))
    record = rebuilt(ingest, ARK, good)
    assert record.state == "Failed"
    assert ARK in record.message
    assert record.documents["rebuilt"]["objects"] == 1
    assert holdings.resources.inventory.get_object(good) is not None
    ingest.environment.objects.put(name, data)
    with ingest.engine() as engine:
        engine.act(record.ref, "retry")
    with ingest.workers():
        ingest.wait("rebuild", record.id, "Completed")
    assert holdings.resources.inventory.get_object(ARK) is not None


def test_it_waits_for_a_job_that_is_recording_the_object(ingest: IngestFixture) -> None:
    holdings = StoredObjects(ingest)
    other = "ark:/99999/fk4other"
    for ark in (ARK, other):
        holdings.add({"producer/a.txt": b"one"}, ark, record=False)
    inventory, machines = holdings.resources.inventory, ingest.environment.machines
    with ingest.engine() as engine:
        batch = engine.submit(New("batch", {"submission": {}}, state="Processing"))
        new = New("job", {"configuration": {}, "identifiers": {"primary_id": ARK, "local_id": []}}, state="Recording")
        job = committed(engine.store, rules.create(machines, new, maker=batch)).ref
        session = engine.store.open_session(host=ingest.environment.host, ttl=120.0, about={})
        held = engine.store.claim_one(*job, session).record
        assert held.locks == (f"inventory/{ARK}",)
        waits, goes = (engine.submit(make_rebuild([ark])) for ark in (ARK, other))
        with ingest.workers(queues=["rebuild"]):
            ingest.wait("rebuild", goes.id, "Completed")  # it came after the other, and the other waits
            assert engine.store.get(*waits.ref).state == "Rebuilding"
            assert (inventory.get_object(ARK), inventory.get_object(other) is not None) == (None, True)
            committed(engine.store, rules.apply_outcome(machines["job"], held, Fail("enough")))
            engine.store.close_session(session)
            ingest.wait("rebuild", waits.id, "Completed")
    assert inventory.get_object(ARK) is not None


def committed(store: Store, change: Change) -> Record:
    (answer,) = store.commit([CommitGroup((change,))])
    assert isinstance(answer, CommitResult), answer
    assert answer.records[0] is not None
    return answer.records[0]


def test_all_objects_are_read_in_pages(ingest: IngestFixture) -> None:
    holdings = StoredObjects(ingest)
    arks = {f"ark:/99999/fk4n{number}" for number in range(5)}
    for ark in sorted(arks):
        holdings.add({"producer/a.txt": b"one"}, ark, record=False)
    found = list(read_object_pages(holdings.storage, page_size=2))
    assert [len(portion.arks) for portion in found] == [2, 2, 1]
    assert {ark for portion in found for ark in portion.arks} == arks
    (rest,) = read_object_pages(holdings.storage, found[1].cursor, page_size=2)
    assert rest == found[2]
    assert rest.cursor == ""


def test_a_rebuild_is_neither_empty_nor_boundless() -> None:
    for arks in ([], ["a"] * (MAX_OBJECTS + 1)):
        with pytest.raises(ActionRefused, match="1 to 100"):
            make_rebuild(arks)
