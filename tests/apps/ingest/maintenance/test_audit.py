"""The audit notices a flipped byte, says where, tells the admins once, and begins each round where the last one
ended.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.access.stored_objects import ARK, StoredObjects
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.maintenance.contexts import make_context
from waybill.apps.ingest.inventory import Inventory, rebuild_object
from waybill.apps.ingest.maintenance import ContentAuditRoutine, StorageRecoveryRoutine
from waybill.apps.ingest.maintenance.audit import audit_next, iter_known_damage
from waybill.apps.ingest.storage import OcflStorage
from waybill.maintenance import run_round
from waybill.objects import DirectoryObjects, ObjectStoreUnavailable
from waybill.record import Record

OTHER = "ark:/99999/fk4other"
FILES = {"producer/a.txt": b"hello", "producer/b.txt": b"world"}


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[IngestFixture]:
    with IngestFixture(
        tmp_path, settings={"notifications": {"admins": ["ops@example.org"]}, "audit": {"files_per_round": 4}}
    ) as made:
        yield made


def sent_mail(ingest: IngestFixture) -> list[Record]:
    with ingest.engine() as engine:
        return engine.store.find("mail", documents=True).records


def test_sound_content_is_read_once_until_it_is_due_again(ingest: IngestFixture) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add(FILES)
    with ingest.engine() as engine:
        done = audit_next(stored_objects.resources, engine)
        assert (done.files, done.bytes > 10, done.damaged) == (3, True, ())
        assert audit_next(stored_objects.resources, engine).files == 0
        assert audit_next(stored_objects.resources, engine, before=engine.store.now() + 10).files == 3
    assert sent_mail(ingest) == []


def test_a_flipped_byte_is_noticed_and_told_with_its_place(ingest: IngestFixture) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add(FILES)
    stored_objects.add({"producer/x": b"x"}, OTHER)
    place = stored_objects.flip(ARK, "producer/b.txt")
    memory: dict[str, Any] = {}
    with make_context(ingest, memory) as context:
        first = list(ContentAuditRoutine().check(context))
        second = list(ContentAuditRoutine().check(context))
    for found in (first, second):  # it stays known, and is read again only when it is due
        assert [finding.where for finding in found] == [f"{ARK} {place}"]
        assert "v1 producer/b.txt" in found[0].problem
        assert not found[0].repairable
    assert memory == {"files": 5, "bytes": memory["bytes"], "damaged": 1}
    (letter,) = sent_mail(ingest)
    document = letter.documents["mail"]
    assert document["to"] == ["ops@example.org"]
    assert ARK in document["subject"]
    for word in (ARK, place, "v1 producer/b.txt"):
        assert word in document["text"]
    assert OTHER not in document["text"]


def test_a_lost_inventory_is_named_by_audit_and_sweep_and_rebuilt(ingest: IngestFixture) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add(FILES)
    stored_objects.add({**FILES, "producer/c.txt": b"!"})
    resources, objects = stored_objects.resources, ingest.environment.objects
    lost = next(
        info.name for info in objects.list("ocfl") if re.fullmatch(r"ocfl/../../[0-9a-f]{64}/inventory.json", info.name)
    )
    objects.delete(lost)
    with make_context(ingest) as context:
        for routine in (ContentAuditRoutine(), StorageRecoveryRoutine()):
            assert any(f"{lost} is missing" in finding.problem for finding in routine.check(context))
    assert rebuild_object(resources.inventory, resources.storage, ARK) == 2
    with make_context(ingest) as context:
        start = context.engine.store.now()
        while audit_next(resources, context.engine, before=start).files:
            pass
        assert list(ContentAuditRoutine().check(context)) == list(StorageRecoveryRoutine().check(context)) == []


def test_missing_content_is_damage_and_restored_content_is_not(ingest: IngestFixture) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add(FILES)
    row = stored_objects.resources.inventory.get_file(ARK, 1, "producer/a.txt")
    assert row is not None
    with stored_objects.storage.read(ARK, row["place"]) as body:
        name, data = body.info.name, body.read()
    ingest.environment.objects.delete(name)
    with ingest.engine() as engine:
        (damage,) = audit_next(stored_objects.resources, engine).damaged
        assert "missing" in damage.problem
        assert [each.place for each in iter_known_damage(stored_objects.resources)] == [row["place"]]
        ingest.environment.objects.put(name, data)
        assert audit_next(stored_objects.resources, engine, before=engine.store.now() + 10).damaged == ()
    assert list(iter_known_damage(stored_objects.resources)) == []


def test_rounds_are_bounded_and_go_on_where_the_last_one_ended(ingest: IngestFixture) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add({f"producer/{number}": bytes([number]) for number in range(8)})
    memory: dict[str, Any] = {}
    seen = []
    for _ in range(4):
        with make_context(ingest, memory) as context:
            run_round(ContentAuditRoutine(), context)
        seen.append(memory["files"])
    assert seen == [4, 8, 9, 9]


def test_a_crash_between_telling_and_noting_tells_once(ingest: IngestFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add(FILES)
    stored_objects.flip(ARK, "producer/a.txt")
    audited = Inventory.record_audit

    def dies(self: Inventory, row: Any, finding: Any, when: Any) -> None:
        if finding is not None:
            raise KeyboardInterrupt
        audited(self, row, finding, when)

    with ingest.engine() as engine:
        with monkeypatch.context() as patched:
            patched.setattr(Inventory, "record_audit", dies)
            with pytest.raises(KeyboardInterrupt):
                audit_next(stored_objects.resources, engine)
        assert len(sent_mail(ingest)) == 1
        assert len(audit_next(stored_objects.resources, engine).damaged) == 1
    assert len(sent_mail(ingest)) == 1
    assert len(list(iter_known_damage(stored_objects.resources))) == 1


def test_one_file_that_cannot_be_read_does_not_stop_the_others(
    ingest: IngestFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add(FILES)
    row = stored_objects.resources.inventory.get_file(ARK, 1, "producer/a.txt")
    assert row is not None
    check = OcflStorage.check

    def fails(self: OcflStorage, object_id: str, place: str, size: int, sha256: str) -> Any:
        if place == row["place"]:
            raise ObjectStoreUnavailable("Could not read: Input/output error.")
        return check(self, object_id, place, size, sha256)

    monkeypatch.setattr(OcflStorage, "check", fails)
    with ingest.engine() as engine:
        done = audit_next(stored_objects.resources, engine)
    assert done.files == 3
    assert [each.files for each in done.damaged] == [("v1 producer/a.txt",)]
    assert "Input/output error" in done.damaged[0].problem


def test_a_storage_that_is_away_is_no_damage(ingest: IngestFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add(FILES)

    def away(*args: Any, **options: Any) -> Any:
        raise ObjectStoreUnavailable("The directory is not mounted.")

    with ingest.engine() as engine, monkeypatch.context() as patched:
        patched.setattr(OcflStorage, "check", away)
        patched.setattr(DirectoryObjects, "list", away)
        with pytest.raises(ObjectStoreUnavailable):
            audit_next(stored_objects.resources, engine)
    assert sent_mail(ingest) == []
    assert list(iter_known_damage(stored_objects.resources)) == []


def test_any_worker_runs_the_routine(ingest: IngestFixture) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add(FILES)
    stored_objects.flip(ARK, "producer/a.txt")
    with ingest.workers(maintenance=True), ingest.engine() as engine:
        while (
            not engine.store.get("maintenance", "ingest-audit")
            .documents.get("memory", {})
            .get("memory", {})
            .get("files")
        ):
            engine.store.watch(0.2)
    assert [each.files for each in iter_known_damage(stored_objects.resources)] == [("v1 producer/a.txt",)]
    assert len(sent_mail(ingest)) == 1
