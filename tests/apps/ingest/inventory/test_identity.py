"""An inventory that may lack objects is noticed, and nothing is minted by it."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.apps.ingest.access.stored_objects import ARK, StoredObjects
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.maintenance.contexts import make_context
from tests.apps.ingest.steps.downloaded_jobs import add_profile, fetched, run
from waybill.apps.ingest.inventory import identity, rebuild_page
from waybill.apps.ingest.maintenance import InventoryIdentityRoutine
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.steps.job import processing
from waybill.record import StoreError

FILES = {"producer/a.txt": b"hello"}


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[IngestFixture]:
    with IngestFixture(tmp_path) as made:
        yield made


def index_files(ingest: IngestFixture) -> list[Path]:
    return sorted(ingest.environment.config.data.glob("waybill-index.db*"))


def lose_index(ingest: IngestFixture) -> None:
    ingest.environment.close()
    for file in index_files(ingest):
        file.unlink()


def problem_of(ingest: IngestFixture) -> str:
    with ingest.engine() as engine:
        return ingest.resources.find_inventory_problem(lambda call: call(engine.store))


def run_routine(ingest: IngestFixture, memory: dict[str, int]) -> list[str]:
    with make_context(ingest, memory) as context:
        return [finding.remedy for finding in InventoryIdentityRoutine().check(context)]


def declare_complete(ingest: IngestFixture) -> None:
    with ingest.engine() as engine:
        identity.declare_complete(ingest.resources.inventory, lambda id: engine.store.remember(identity.NAME, id), 0)


def test_a_new_installation_has_no_problem_and_none_when_it_starts_again(ingest: IngestFixture) -> None:
    assert problem_of(ingest) == ""
    StoredObjects(ingest).add(FILES)
    ingest.environment.close()
    assert problem_of(ingest) == ""
    memory: dict[str, int] = {}
    assert run_routine(ingest, memory) == run_routine(ingest, memory) == []
    assert memory == {"epoch": 2}


def test_deposits_wait_for_a_lost_inventory_and_no_second_ark_is_minted(
    ingest: IngestFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing, "INVENTORY_WAIT", 0.0)
    add_profile(ingest, Profile(name="p"))
    ark = run(ingest, fetched(ingest, {"a.txt": b"1"}, local_ids=("l1",))).documents["identifiers"]["primary_id"]
    lose_index(ingest)
    job = fetched(ingest, {"a.txt": b"2"}, local_ids=("l1",), update=True)
    for _ in range(2):  # also when the process has asked before
        assert ingest.step(job.ref) is not None
        with ingest.engine() as engine:
            found = engine.store.get(*job.ref)
        assert (found.state, found.documents["identifiers"].get("primary_id")) == ("Processing", "")
        assert "waybill ingest rebuild --all" in found.message
    assert run_routine(ingest, {}) == [identity.REMEDY]
    assert rebuild_page(ingest.resources.inventory, ingest.resources.storage).objects == 1
    assert problem_of(ingest) != "", "a rebuild of some objects is not one of all"
    declare_complete(ingest)
    assert problem_of(ingest) == ""
    assert run(ingest, job).documents["identifiers"]["primary_id"] == ark


def test_storage_with_objects_beside_a_new_store_and_inventory_is_a_problem(ingest: IngestFixture) -> None:
    StoredObjects(ingest).add(FILES, record=False)
    assert "storage has objects" in problem_of(ingest)
    declare_complete(ingest)
    assert problem_of(ingest) == ""


def test_an_inventory_from_before_this_release_is_taken(ingest: IngestFixture) -> None:
    StoredObjects(ingest).add(FILES)
    assert problem_of(ingest) == ""


def test_an_older_copy_of_the_inventory_is_noticed(ingest: IngestFixture) -> None:
    memory: dict[str, int] = {}
    run_routine(ingest, memory)
    ingest.environment.close()
    copies = [(file, file.read_bytes()) for file in index_files(ingest)]
    StoredObjects(ingest).add(FILES)
    run_routine(ingest, memory)
    lose_index(ingest)
    for file, data in copies:
        file.write_bytes(data)
    assert run_routine(ingest, memory) == [identity.REMEDY]
    assert "older copy" in problem_of(ingest)
    with ingest.engine() as engine:
        identity.declare_complete(
            ingest.resources.inventory, lambda id: engine.store.remember(identity.NAME, id), memory["epoch"]
        )
    assert run_routine(ingest, memory) == []


def test_the_inventory_of_another_store_is_noticed(ingest: IngestFixture, tmp_path: Path) -> None:
    with IngestFixture(tmp_path / "other") as other:
        assert problem_of(ingest) == problem_of(other) == ""
        lose_index(ingest)
        other.environment.close()
        for file in index_files(other):
            (ingest.environment.config.data / file.name).write_bytes(file.read_bytes())
        assert "another store's" in problem_of(ingest)


@pytest.mark.parametrize("name", ["waybill-index.db", "waybill.db"])
def test_a_database_that_is_deleted_while_it_is_open_is_not_written_on(ingest: IngestFixture, name: str) -> None:
    StoredObjects(ingest).add(FILES)
    with ingest.engine() as engine:
        engine.store.list_holds()
        (ingest.environment.config.data / name).unlink()
        uses: dict[str, Callable[[], object]] = {
            "waybill.db": engine.store.list_holds,
            "waybill-index.db": partial(ingest.resources.inventory.get_object, ARK),
        }
        with pytest.raises(StoreError, match="was deleted or replaced"):
            uses[name]()
