"""Nothing is lost and nothing is deleted early: bytes flipped and cut, archives missing, a full quota, a dead storage, files that
change, and a crash at every call of every stage.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apps.archive.archive_fixture import ArchiveFixture, read_tree
from waybill.apps.archive.machine import RequestReport
from waybill.errors import ActionRefused


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[700] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 512)


def _swap(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


DAMAGES: dict[str, Callable[[Path], None]] = {"flip": _flip, "cut": _cut, "zeros": _swap, "loss": Path.unlink}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("stage", ["VERIFY_PENDING", "VERIFY_GETTING"])
def test_no_original_goes_when_the_storage_has_something_else(archive: ArchiveFixture, stage: str, damage: str) -> None:
    before = read_tree(archive.source)
    put = archive.put_until(stage, kind="MIGRATE")
    DAMAGES[damage](archive.archive_path())
    failed = archive.run_until(put, "FAILED")
    assert "not what was sent: archive_0000000001.tar" in failed.message
    assert archive.migration().state == "FAILED"
    assert read_tree(archive.source) == before
    # resumed, it sends the archive again
    archive.requests.resume(archive.caller, 1)
    archive.run_until(put, "PUT_COMPLETED")
    assert not archive.source.exists()
    archive.run_until(archive.get(), "GET_COMPLETED")
    assert read_tree(archive.target) == before


def test_the_catalogue_file_is_proven_too(archive: ArchiveFixture) -> None:
    put = archive.put_until("VERIFY_GETTING")
    (archive.archive_path().parent / "catalogue.jsonl").unlink()
    assert "catalogue.jsonl" in archive.run_until(put, "FAILED").message


def test_a_lost_row_of_the_catalogue_proves_nothing(archive: ArchiveFixture) -> None:
    put = archive.put_until("VERIFYING", kind="MIGRATE")
    with archive.tester.resources.connections.open() as tables:
        tables.remove_archives_beyond(1, 0)
    assert "lacks archives" in archive.run_until(put, "FAILED").message
    assert archive.source.exists()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_archive_is_not_restored(archive: ArchiveFixture, damage: str) -> None:
    archive.store_migration()
    get = archive.get()
    archive.run_until(get, "GET_UNPACKING" if damage != "loss" else "GET_PENDING")
    DAMAGES[damage](archive.archive_path())
    archive.run_until(get, "FAILED")
    assert archive.migration().state == "ON_STORAGE"
    for name in ("run/one.dat", "run/two.dat", "run/deep/three.dat"):
        restored = archive.target / name
        assert not restored.exists() or restored.read_bytes() == (archive.source / name).read_bytes()


# --- files that change


def test_a_file_that_changed_after_it_was_packed_stays(archive: ArchiveFixture) -> None:
    put = archive.put_until("PUT_TIDY", kind="MIGRATE")
    changed = archive.source / "run" / "one.dat"
    changed.write_bytes(b"other" * 600)  # as root, in spite of the lock
    put = archive.run_until(put, "PUT_COMPLETED")
    report = put.document(RequestReport)
    assert changed.read_bytes() == b"other" * 600
    assert not (archive.source / "run" / "two.dat").exists()
    assert report.kept >= 1
    assert "originals were kept" in put.message
    assert any(each.path == "run/one.dat" for each in archive.migrations.iter_failures(put))
    assert archive.migration().state == "ON_STORAGE"


def test_a_file_that_changes_while_it_is_sent_is_sent_as_it_is_then(archive: ArchiveFixture) -> None:
    put = archive.put_until("PUTTING", kind="MIGRATE")
    (archive.source / "run" / "one.dat").write_bytes(b"newer" * 600)
    moved = archive.step(put)
    assert (moved.after, "run/one.dat" in moved.message) == ("PUT_START", True)
    archive.run_until(put, "PUT_COMPLETED")
    archive.run_until(archive.get(), "GET_COMPLETED")
    assert (archive.target / "run" / "one.dat").read_bytes() == b"newer" * 600


def test_a_file_that_vanishes_while_it_is_sent_is_not_sent(archive: ArchiveFixture) -> None:
    put = archive.put_until("PUTTING")
    (archive.source / "run" / "one.dat").unlink()
    archive.run_until(put, "PUT_COMPLETED")
    assert [row.name for row in archive.migrations.iter_files(archive.caller, 1) if row.kind == "file"].count(
        "one.dat"
    ) == 0


def test_a_fifo_is_refused_by_name(archive: ArchiveFixture) -> None:
    os.mkfifo(archive.source / "pipe")
    before = archive.source.joinpath("run").stat().st_mode
    failed = archive.run_until(archive.put(), "FAILED")
    assert "pipe" in failed.message
    assert archive.source.joinpath("run").stat().st_mode == before
    archive.run_until(archive.requests.cancel(archive.caller, 1), "DELETE_COMPLETED")
    archive.run_until(archive.put(exclude=["pipe"]), "PUT_COMPLETED")


def test_two_requests_for_the_same_files_are_refused(archive: ArchiveFixture) -> None:
    put = archive.put()
    for path in (archive.source, archive.source / "run", archive.source / "run" / "one.dat", archive.source.parent):
        with pytest.raises(ActionRefused, match="archived by migration 1"):
            archive.put(path)
    archive.run_until(put, "PUT_COMPLETED")
    archive.put(archive.source / "run")


# --- quota


def test_a_full_quota_refuses_and_fails_with_a_sentence(tmp_path: Path) -> None:
    app = {"workspaces": {"default": {"members": ["*"], "limits": {"local": 60_000}}}}
    with ArchiveFixture(tmp_path, app=app) as archive:
        before = read_tree(archive.source)
        archive.put_until("PUT_COMPLETED")
        used, reserved = archive.quota()
        assert (used <= 60_000, reserved) == (True, 0)
        second = archive.run_until(archive.put(), "FAILED")
        assert "The quota of workspace default on local is 60.0 kB" in second.message
        assert (archive.quota(), read_tree(archive.source)) == ((used, 0), before)
        archive.run_until(archive.delete(1), "DELETE_COMPLETED")
        archive.requests.resume(archive.caller, 2)
        archive.run_until(second, "PUT_COMPLETED")
        assert archive.quota() == (used, 0)


def test_requests_together_never_pass_the_limit(tmp_path: Path) -> None:
    app = {"workspaces": {"default": {"members": ["*"], "limits": {"local": 60_000}}}}
    with ArchiveFixture(tmp_path, app=app) as archive:
        other = archive.data / "home" / "other"
        shutil.copytree(archive.source, other, symlinks=True)
        puts = [archive.put(), archive.put(other)]
        archive.tester.run_until_idle()
        assert sorted(archive.state_of(put) for put in puts) == ["FAILED", "PUT_COMPLETED"]
        assert archive.quota()[1] == 0
        with pytest.raises(ActionRefused, match=r"60\.0 kB"):
            archive.tester.engine.act(
                archive.tester.find_all("archive-quota")[0].ref,
                "reserve",
                args={"bytes": 50_000, "limit": 60_000},
                confirmed=True,
            )


def test_a_wrong_quota_is_corrected(archive: ArchiveFixture) -> None:
    archive.store_migration()
    right = archive.quota()
    assert archive.tester.run_maintenance("archive-quotas") == 0
    archive.tester.act(archive.tester.find_all("archive-quota")[0], "correct", used=1, reserved=2)
    assert archive.tester.run_maintenance("archive-quotas") == 1
    assert archive.quota() == right


# --- a dead storage


@pytest.mark.parametrize("stage", ["PUT_PENDING", "PUTTING", "VERIFY_PENDING", "VERIFY_GETTING"])
def test_a_dead_storage_is_waited_for(archive: ArchiveFixture, stage: str) -> None:
    before = read_tree(archive.source)
    put = archive.put_until(stage, kind="MIGRATE")
    aside = archive.storage_root.with_name("aside")
    archive.storage_root.rename(aside)
    archive.storage_root.mkdir()  # an empty mount point
    for _ in range(20):
        archive.tester.store.release_due_waits()
        archive.tester.run_until_idle()
        archive.tester.advance(180)
    assert (archive.state_of(put), archive.migration().state) == (stage, "PUTTING")
    assert "is not a storage" in archive.tester.get(put).message
    assert read_tree(archive.source).keys() == before.keys()
    archive.storage_root.rmdir()
    aside.rename(archive.storage_root)
    archive.run_until(put, "PUT_COMPLETED")
    assert not archive.source.exists()


# --- scrub


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_scrub_finds_rot(archive: ArchiveFixture, damage: str) -> None:
    archive.store_migration()
    archive.tester.run_maintenance("archive-scrub")
    assert archive.migrations.list_findings(archive.caller) == []
    archive.tester.advance(200 * 86400)
    archive.tester.run_maintenance("archive-scrub")
    assert archive.migrations.list_findings(archive.caller) == []
    archive.tester.advance(200 * 86400)
    DAMAGES[damage](archive.archive_path())
    archive.tester.run_maintenance("archive-scrub")
    (found,) = archive.migrations.list_findings(archive.caller)
    assert (found["migration"], found["archive"]) == (1, 1)


# --- crashes


def test_a_crash_at_every_call_of_a_migrate_loses_nothing(archive: ArchiveFixture) -> None:
    put = archive.put(kind="MIGRATE")
    for point in archive.tester.crash_at_every_call(put, "PUT_COMPLETED"):
        assert archive.migration().state == "ON_STORAGE", point
        assert archive.list_stored() == ["archive_0000000001.tar", "catalogue.jsonl"], point
        assert archive.quota() == (archive.archive_path().stat().st_size, 0), point
        assert not archive.source.exists(), point


def test_a_crash_at_every_call_of_a_get_restores_everything(archive: ArchiveFixture) -> None:
    archive.store_migration()
    get = archive.get()
    for point in archive.tester.crash_at_every_call(get, "GET_COMPLETED"):
        assert read_tree(archive.target) == read_tree(archive.source), point


def test_special_bits_that_the_settings_do_not_restore_are_reported_and_fail_nothing(archive: ArchiveFixture) -> None:
    special = next(path for path in sorted(archive.source.rglob("*")) if path.is_file() and not path.is_symlink())
    special.chmod(0o4755)
    archive.store_migration()
    got = archive.tester.run_until(archive.get(), "GET_COMPLETED")
    report = got.document(RequestReport)
    assert report.dropped == 1
    assert "1 without their owner or special bits" in got.message
    restored = archive.target / special.relative_to(archive.source)
    assert (restored.read_bytes(), restored.stat().st_mode & 0o7777) == (special.read_bytes(), 0o755)


def test_a_crash_at_every_call_of_a_delete_gives_the_quota_back_once(archive: ArchiveFixture) -> None:
    archive.store_migration()
    delete = archive.delete()
    for point in archive.tester.crash_at_every_call(delete, "DELETE_COMPLETED"):
        assert (archive.migration().state, archive.list_stored(), archive.quota()) == ("DELETED", [], (0, 0)), point
