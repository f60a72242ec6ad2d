"""What interrupted writes left is removed when it is old, some objects at a time, and nothing else is touched."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.access.stored_objects import ARK, StoredObjects
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.maintenance.contexts import make_context
from tests.apps.ingest.storage.yard import said_by_validator, sha256
from waybill.apps.ingest.maintenance import StorageRecoveryRoutine
from waybill.apps.ingest.storage import ocfl_integrity
from waybill.apps.ingest.storage.ocfl_object import read_sidecar
from waybill.apps.ingest.storage.ocfl_storage import OcflRoot
from waybill.maintenance import run_round
from waybill.objects import DirectoryObjects


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[IngestFixture]:
    with IngestFixture(tmp_path) as made:
        yield made


def names(ingest: IngestFixture) -> set[str]:
    return {info.name for info in ingest.environment.objects.list("ocfl")}


def test_old_leftovers_go_and_what_is_at_rest_stays(ingest: IngestFixture) -> None:
    stored_objects = StoredObjects(ingest)
    for number in range(5):
        stored_objects.add({"producer/a.txt": b"hello"}, f"ark:/99999/fk4n{number}")
    sound = names(ingest)
    root = OcflRoot(ingest.environment.objects, "ocfl")
    left = [
        f"{root.place_of('ark:/99999/fk4n2')}/v2/content/{sha256(b'x')}",
        f"{root.place_of('ark:/99999/fk4dead')}/v1/content/{sha256(b'y')}",
    ]
    for name in left:
        ingest.environment.objects.put(name, b"left behind")
    memory: dict[str, Any] = {}
    young, old = StorageRecoveryRoutine(round_size=2), StorageRecoveryRoutine(round_size=2, older_than=0.0)
    for _ in range(4):
        with make_context(ingest, memory) as context:
            run_round(young, context)
    assert names(ingest) == sound | set(left)  # somebody may be writing them
    memory.clear()
    cursors = []
    for _ in range(3):
        with make_context(ingest, memory) as context:
            run_round(old, context)
        cursors.append(memory["cursor"])
    assert names(ingest) == sound
    assert memory["removed"] == 2
    assert len(set(cursors)) == 3
    assert isinstance(ingest.environment.objects, DirectoryObjects)
    assert said_by_validator(ingest.environment.objects.root / "ocfl") == (5, [])


def test_a_sidecar_that_was_not_written_is(ingest: IngestFixture) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add({"producer/a.txt": b"hello"})
    place = OcflRoot(ingest.environment.objects, "ocfl").place_of(ARK)
    ingest.environment.objects.delete(f"{place}/inventory.json.sha512")
    with make_context(ingest) as context:
        run_round(StorageRecoveryRoutine(), context)
        assert context.memory == {"cursor": "", "repaired": 1}
        run_round(StorageRecoveryRoutine(), context)
        assert context.memory["repaired"] == 1
    assert isinstance(ingest.environment.objects, DirectoryObjects)
    assert said_by_validator(ingest.environment.objects.root / "ocfl") == (1, [])


def test_an_object_that_cannot_be_believed_is_named_and_left_alone(ingest: IngestFixture) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add({"producer/a.txt": b"hello"})
    place = OcflRoot(ingest.environment.objects, "ocfl").place_of(ARK)
    with ingest.environment.objects.get(f"{place}/inventory.json") as body:
        data = body.read()
    ingest.environment.objects.put(f"{place}/inventory.json", data.replace(b"waybill", b"waybull"))
    before = names(ingest)
    with make_context(ingest) as context:
        (finding,) = StorageRecoveryRoutine(older_than=0.0).check(context)
    assert finding.rule == "damaged object"
    assert place.removeprefix("ocfl/") == finding.where
    assert names(ingest) == before


def test_a_writer_that_publishes_meanwhile_is_not_disturbed(
    ingest: IngestFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_objects = StoredObjects(ingest)
    stored_objects.add({"producer/a.txt": b"one"})
    look = read_sidecar

    def overtaken(objects: Any, folder: str, algorithm: str) -> str | None:
        monkeypatch.undo()
        stored_objects.add({"producer/a.txt": b"two"})  # after the inventory was read, and before what is beside it is
        return look(objects, folder, algorithm)

    monkeypatch.setattr(ocfl_integrity, "read_sidecar", overtaken)
    with make_context(ingest) as context:
        run_round(StorageRecoveryRoutine(older_than=0.0), context)
    assert isinstance(ingest.environment.objects, DirectoryObjects)
    assert said_by_validator(ingest.environment.objects.root / "ocfl") == (1, [])
    assert stored_objects.storage.get_version(ARK).version == 2
    assert list(stored_objects.storage.verify(ARK)) == []
