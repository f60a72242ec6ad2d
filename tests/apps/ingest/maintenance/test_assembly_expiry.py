"""Assemblies that have expired or were deleted leave nothing behind; those of other services are theirs."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.access.stored_objects import StoredObjects
from tests.apps.ingest.access.test_assemblies import FILES, asked_for
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.maintenance.contexts import make_context
from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.maintenance import AssemblyExpiryRoutine
from waybill.engine import Engine
from waybill.maintenance import run_round
from waybill.record import Conflict, Record, RecordNotFound
from waybill.step import New


@pytest.fixture(params=["sqlite", "zookeeper"])
def store(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "sqlite" else str(request.getfixturevalue("zookeeper_url"))


def a_site(folder: Path, store: str = "", keep: float = 1000.0) -> IngestFixture:
    return IngestFixture(folder, store=store, settings={"access": {"keep_seconds": keep}})


def finished(ingest: IngestFixture, state: str = "Completed", **wanted: Any) -> Record:
    request = asked_for(ingest, **wanted)
    with ingest.workers():
        return ingest.wait(request.record.kind, request.record.id, state)


def a_turn(
    ingest: IngestFixture, duty: AssemblyExpiryRoutine | None = None, memory: dict[str, Any] | None = None
) -> int:
    with make_context(ingest, memory) as context:
        return run_round(duty or AssemblyExpiryRoutine(), context)


def left(ingest: IngestFixture) -> list[str]:
    return [info.name for info in ingest.environment.objects.list(tokens.ROOT)]


def is_there(ingest: IngestFixture, record: Record) -> bool:
    try:
        ingest.get(record.kind, record.id)
    except RecordNotFound:
        return False
    return True


def test_an_expired_assembly_goes_with_its_files(tmp_path: Path, store: str) -> None:
    with a_site(tmp_path, store, keep=0.0) as ingest:
        StoredObjects(ingest).add(FILES)
        record = finished(ingest)
        assert len(left(ingest)) == 2
        assert a_turn(ingest) == 1
        assert left(ingest) == []
        assert not is_there(ingest, record)
        assert a_turn(ingest) == 0
        assert asked_for(ingest).is_new


def test_what_has_not_expired_stays(tmp_path: Path) -> None:
    with a_site(tmp_path) as ingest:
        stored_objects = StoredObjects(ingest)
        stored_objects.add(FILES)
        ready = finished(ingest)
        stored_objects.flip("ark:/99999/fk4abc", "producer/a.txt")
        failed = finished(ingest, "Failed", form="tar")
        waits = asked_for(ingest, form="tar.gz").record
        before = left(ingest)
        assert a_turn(ingest) == 0
        assert left(ingest) == before
        assert all(is_there(ingest, record) for record in (ready, failed, waits))


def test_deleted_by_an_operator_goes_at_once(tmp_path: Path, store: str) -> None:
    with a_site(tmp_path, store) as ingest:
        StoredObjects(ingest).add(FILES)
        record, other = finished(ingest), finished(ingest, form="tar")
        with ingest.engine() as engine:
            engine.act(record.ref, "delete")
        assert a_turn(ingest) == 1
        assert (is_there(ingest, record), is_there(ingest, other)) == (False, True)
        assert all(name.startswith(tokens.place_of(tokens.token_of(other))) for name in left(ingest))


def test_failed_ones_go_after_the_same_time(tmp_path: Path) -> None:
    with a_site(tmp_path, keep=0.0) as ingest:
        stored_objects = StoredObjects(ingest)
        stored_objects.add(FILES)
        stored_objects.flip("ark:/99999/fk4abc", "producer/a.txt")
        record = finished(ingest, "Failed")
        assert a_turn(ingest) == 1
        assert not is_there(ingest, record)
        assert left(ingest) == []


def test_a_crash_after_the_files_leaves_the_rest_to_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_site(tmp_path, keep=0.0) as ingest:
        StoredObjects(ingest).add(FILES)
        record = finished(ingest)

        def dies(*args: Any, **options: Any) -> int:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Engine, "remove", dies)
            with pytest.raises(KeyboardInterrupt):
                a_turn(ingest)
        assert left(ingest) == []
        assert ingest.get(record.kind, record.id).state == "Deleted"
        assert a_turn(ingest) == 1
        assert not is_there(ingest, record)


def test_assemblies_of_other_services_are_not_removed(tmp_path: Path, store: str) -> None:
    token = {
        "token": "0b1c",
        "delivery-node": 7777,
        "cloud-content-byte": 17,
        "url": "http://x",
        "anticipated-availability-time": "",
    }
    with a_site(tmp_path, store, keep=0.0) as ingest:
        with ingest.engine() as engine:
            theirs = [
                engine.submit(New("access-large", {"token": token}, state=state))
                for state in ("Completed", "Failed", "Deleted")
            ]
        assert a_turn(ingest) == 0
        for record in theirs:
            found = ingest.get(record.kind, record.id)
            assert (found.state, found.documents["token"]) == (record.state, token)


def test_imported_ones_go_after_the_same_time(tmp_path: Path, store: str) -> None:
    def imported(ingest: IngestFixture) -> list[Record]:
        with ingest.engine() as engine:
            return [
                engine.submit(
                    New(
                        "access-small",
                        {"token": {"token": "0b1c"}},
                        state=state,
                        idempotency_key=f"legacy/accessSmall.1/mrtQ-{state}",
                    )
                )
                for state in ("Completed", "Failed", "Deleted")
            ]

    with a_site(tmp_path, store) as ingest:
        records = imported(ingest)
        assert a_turn(ingest) == 1
        assert [is_there(ingest, record) for record in records] == [True, True, False]
    with a_site(tmp_path, store, keep=0.0) as ingest:
        assert a_turn(ingest) == 2
        assert not any(is_there(ingest, record) for record in records)


def test_what_a_late_worker_wrote_is_removed_when_it_is_old(tmp_path: Path) -> None:
    with a_site(tmp_path) as ingest:
        StoredObjects(ingest).add(FILES)
        record = finished(ingest)
        mine = left(ingest)
        place = tokens.place_of("z" * 43)
        objects = ingest.environment.objects
        objects.put(f"{place}/7/late.zip", b"late")
        objects.put(f"{tokens.place_of('y' * 43)}/record.json", b'{"kind":"access-small","id":"qid0000009999"}')
        objects.put(f"{tokens.ROOT}/README", b"not an assembly")
        memory: dict[str, Any] = {}
        for _ in range(4):
            a_turn(ingest, AssemblyExpiryRoutine(round_size=1), memory)
        assert len(left(ingest)) == len(mine) + 3  # younger than a day: perhaps its record is just being made
        memory.clear()
        for _ in range(5):
            a_turn(ingest, AssemblyExpiryRoutine(round_size=1, age=-1.0), memory)
        assert left(ingest) == sorted([*mine, f"{tokens.ROOT}/README"])
        assert is_there(ingest, record)


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[IngestFixture]:
    with a_site(tmp_path, keep=0.0) as made:
        yield made


def test_any_worker_runs_the_routine(ingest: IngestFixture) -> None:
    StoredObjects(ingest).add(FILES)
    request = asked_for(ingest)
    with ingest.workers(maintenance=True), ingest.engine() as engine:
        while is_there(ingest, request.record):
            with suppress(Conflict):  # it was asked already, and works on it
                engine.act(engine.store.get("maintenance", "ingest-expiry").ref, "run")
            engine.store.watch(0.2)
    assert left(ingest) == []
