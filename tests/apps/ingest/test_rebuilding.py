"""The inventory is recorded again from storage, by any worker, and never while a job records the same object."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.access.holdings import ARK, Holdings
from tests.apps.ingest.site import Site
from waybill import rules
from waybill.apps.ingest.rebuilding import MOST, order, portions
from waybill.record import Change, Committed, Group, Record, Store
from waybill.rules import Refused
from waybill.step import Fail, New


@pytest.fixture(params=["sqlite", "postgres", "zookeeper"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    store = "" if request.param == "sqlite" else str(request.getfixturevalue(f"{request.param}_url"))
    with Site(tmp_path, store=store) as made:
        yield made


def rebuilt(site: Site, *arks: str) -> Record:
    with site.engine() as engine:
        record = engine.submit(order(arks, owner="jo"))
    with site.workers():
        return site.wait("rebuild", record.id, "Completed", "Failed")


def test_what_the_inventory_lost_is_there_again(site: Site) -> None:
    holdings = Holdings(site)
    about = {"title": "Husky", "owner": "o", "local_ids": ["x"]}
    holdings.add({"producer/a.txt": b"one"}, about=about)
    holdings.add({"producer/a.txt": b"two"}, about=about)
    inventory = holdings.outfit.inventory
    before = inventory.object(ARK), inventory.versions(ARK), inventory.files(ARK, 1), inventory.files(ARK, 2)
    inventory.forget(ARK)
    assert inventory.object(ARK) is None
    record = rebuilt(site, ARK)
    assert record.docs["rebuilt"] == {"v": 1, "objects": 1, "versions": 2, "troubles": []}
    assert (inventory.object(ARK), inventory.versions(ARK), inventory.files(ARK, 1), inventory.files(ARK, 2)) == before
    assert rebuilt(site, ARK).state == "Completed"
    assert inventory.versions(ARK) == before[1]


def test_what_the_storage_does_not_have_is_forgotten(site: Site) -> None:
    holdings = Holdings(site)
    holdings.add({"producer/a.txt": b"one"})
    for info in list(site.depot.objects.list("ocfl")):
        site.depot.objects.delete(info.name)
    assert rebuilt(site, ARK).state == "Completed"
    assert holdings.outfit.inventory.object(ARK) is None


def test_one_damaged_object_does_not_stop_the_others(site: Site) -> None:
    holdings = Holdings(site)
    good = "ark:/99999/fk4good"
    holdings.add({"producer/a.txt": b"one"}, record=False)
    holdings.add({"producer/a.txt": b"one"}, good, record=False)
    with holdings.storage.read(ARK, "inventory.json") as body:
        name, data = body.info.name, body.read()
    site.depot.objects.put(name, data.replace(b"waybill", b"waybull"))
    record = rebuilt(site, ARK, good)
    assert record.state == "Failed"
    assert ARK in record.message
    assert record.docs["rebuilt"]["objects"] == 1
    assert holdings.outfit.inventory.object(good) is not None
    site.depot.objects.put(name, data)
    with site.engine() as engine:
        engine.act(record.ref, "retry")
    with site.workers():
        site.wait("rebuild", record.id, "Completed")
    assert holdings.outfit.inventory.object(ARK) is not None


def test_it_waits_for_a_job_that_is_recording_the_object(site: Site) -> None:
    holdings = Holdings(site)
    other = "ark:/99999/fk4other"
    for ark in (ARK, other):
        holdings.add({"producer/a.txt": b"one"}, ark, record=False)
    inventory, machines = holdings.outfit.inventory, site.depot.machines
    with site.engine() as engine:
        batch = engine.submit(New("batch", {"submission": {}}, state="Processing"))
        new = New("job", {"configuration": {}, "identifiers": {"primary_id": ARK, "local_id": []}}, state="Recording")
        job = committed(engine.store, rules.create(machines, new, maker=batch)).ref
        session = engine.store.open_session(host=site.depot.host, ttl=120.0, about={})
        held = engine.store.take(*job, session).record
        assert held.keys == (f"inventory/{ARK}",)
        waits, goes = (engine.submit(order([ark])) for ark in (ARK, other))
        with site.workers(roles=["rebuild"]):
            site.wait("rebuild", goes.id, "Completed")  # it came after the other, and the other waits
            assert engine.store.get(*waits.ref).state == "Rebuilding"
            assert (inventory.object(ARK), inventory.object(other) is not None) == (None, True)
            committed(engine.store, rules.settle(machines["job"], held, Fail("enough")))
            engine.store.close_session(session)
            site.wait("rebuild", waits.id, "Completed")
    assert inventory.object(ARK) is not None


def committed(store: Store, change: Change) -> Record:
    (answer,) = store.commit([Group((change,))])
    assert isinstance(answer, Committed), answer
    assert answer.records[0] is not None
    return answer.records[0]


def test_everything_comes_in_portions(site: Site) -> None:
    holdings = Holdings(site)
    arks = {f"ark:/99999/fk4n{number}" for number in range(5)}
    for ark in sorted(arks):
        holdings.add({"producer/a.txt": b"one"}, ark, record=False)
    found = list(portions(holdings.storage, most=2))
    assert [len(portion.arks) for portion in found] == [2, 2, 1]
    assert {ark for portion in found for ark in portion.arks} == arks
    (rest,) = portions(holdings.storage, found[1].cursor, most=2)
    assert rest == found[2]
    assert rest.cursor == ""


def test_a_rebuild_is_neither_empty_nor_boundless() -> None:
    for arks in ([], ["a"] * (MOST + 1)):
        with pytest.raises(Refused, match="1 to 100"):
            order(arks)
