"""Two storages at once: a disk that takes streams, and tapes that take whole files and work later. MOVE between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.archive.archive_fixture import ArchiveFixture, read_tree
from waybill.apps.archive.machine.request import MOVE_FLOW
from waybill.errors import ActionRefused
from waybill.record import Ref

MOUNT_DELAY = 120.0


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[ArchiveFixture]:
    """With the storages `disk` and `tape`, whose clock is the test's."""
    data = tmp_path / "data"
    app = {
        "storages": {
            "disk": {"path": str(data / "archive-storage")},
            "tape": {"type": "tape", "path": str(data / "tapes"), "mount_delay": MOUNT_DELAY},
        },
        "workspaces": {"default": {"members": ["*"], "limits": {"tape": 200_000}}},
    }
    with ArchiveFixture(tmp_path, app=app) as fixture:
        resources = fixture.tester.resources
        resources.clock = fixture.tester.now
        resources.create_storage("disk")
        resources.create_storage("tape")
        yield fixture


def test_a_storage_must_be_named_where_there_are_two(archive: ArchiveFixture) -> None:
    with pytest.raises(ActionRefused, match="Say which storage: disk, tape"):
        archive.put()


@pytest.mark.parametrize("kind", ["PUT", "MIGRATE"])
def test_tapes_are_polled_until_they_are_mounted(archive: ArchiveFixture, kind: str) -> None:
    before, began = read_tree(archive.source), archive.tester.now()
    put = archive.put(kind=kind, storage="tape")
    archive.run_until(put, "VERIFY_PENDING")
    assert archive.tester.now() >= began + MOUNT_DELAY
    assert (archive.data / "archive-staging" / "migration_0000000001" / "archive_0000000001.tar").exists()
    archive.run_until(put, "PUT_COMPLETED")
    assert not (archive.data / "archive-staging" / "migration_0000000001").exists()
    get = archive.run_until(archive.get(), "GET_COMPLETED")
    assert get.state == "GET_COMPLETED"
    assert read_tree(archive.target) == before
    delete = archive.delete(only_copy=kind == "MIGRATE")
    archive.run_until(delete, "DELETE_COMPLETED")
    assert list(archive.tester.resources.open_storage("tape").list_containers()) == []


@pytest.mark.parametrize(("source", "target"), [("disk", "tape"), ("tape", "disk")])
def test_a_move_proves_the_copy_before_the_old_one_goes(archive: ArchiveFixture, source: str, target: str) -> None:
    before = read_tree(archive.source)
    archive.run_until(archive.put(kind="MIGRATE", storage=source), "PUT_COMPLETED")
    size, _ = archive.quota(source)
    move = archive.requests.move(archive.caller, 1, target)
    resources = archive.tester.resources
    archive.run_until(move, "MOVE_TIDY")
    assert [c for name in (source, target) for c in resources.open_storage(name).list_containers()] == [
        "migration-0000000001"
    ] * 2
    assert (archive.quota(source), archive.quota(target)) == ((0, 0), (size, 0))
    archive.run_until(move, "MOVE_COMPLETED")
    assert list(resources.open_storage(source).list_containers()) == []
    assert archive.migrations.show(archive.caller, 1)["storage"] == target
    archive.run_until(archive.get(), "GET_COMPLETED")
    assert read_tree(archive.target) == before


@pytest.mark.parametrize("stage", MOVE_FLOW[:-2])
@pytest.mark.parametrize("what", ["cancel", "delete"])
def test_a_move_is_ended_in(archive: ArchiveFixture, stage: str, what: str) -> None:
    archive.run_until(archive.put(storage="disk"), "PUT_COMPLETED")
    move = archive.run_until(archive.requests.move(archive.caller, 1, "tape"), stage)
    used = archive.quota("disk")
    if what == "cancel":
        archive.requests.cancel(archive.caller, 2)
        archive.run_until(move, "STOPPED")
        assert (archive.migration().state, archive.quota("disk"), archive.quota("tape")) == ("ON_STORAGE", used, (0, 0))
        assert archive.list_stored() == ["archive_0000000001.tar", "catalogue.jsonl"]
    else:
        archive.run_until(archive.delete(), "DELETE_COMPLETED")
        assert (archive.state_of(move), archive.quota("disk"), archive.quota("tape")) == ("STOPPED", (0, 0), (0, 0))
        assert archive.list_stored() == []
    assert list(archive.tester.resources.open_storage("tape").list_containers()) == []


def test_a_damaged_archive_is_not_moved(archive: ArchiveFixture) -> None:
    archive.run_until(archive.put(storage="disk"), "PUT_COMPLETED")
    path = archive.archive_path()
    path.write_bytes(bytes(path.stat().st_size))
    move = archive.run_until(archive.requests.move(archive.caller, 1, "tape"), "FAILED")
    assert "is damaged on disk" in move.message
    assert (archive.migration().state, path.exists()) == ("ON_STORAGE", True)


def test_a_move_does_not_pass_the_quota_of_the_other_storage(archive: ArchiveFixture) -> None:
    (archive.source / "large").write_bytes(bytes(300_000))
    archive.run_until(archive.put(storage="disk"), "PUT_COMPLETED")
    move = archive.run_until(archive.requests.move(archive.caller, 1, "tape"), "FAILED")
    assert "on tape is 200.0 kB" in move.message
    assert archive.tester.get(Ref("archive-quota", "default.disk")).state == "OPEN"
