"""Acting for users, as root: a user puts only what that user can read, and gets only where that user can write."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.archive.archive_fixture import ArchiveFixture, read_tree
from waybill.apps.archive.service.access import Caller

NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that the user can reach: those of pytest are its own user's."""
    folder = Path(tempfile.mkdtemp(prefix="waybill-home-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def archive(archive: ArchiveFixture, home: Path) -> ArchiveFixture:
    """As the user `nobody`, with a set of files that belongs to it."""
    assert os.geteuid() == 0, "these tests need root"
    archive.caller = Caller("nobody")
    source = home / "nobody" / "set"
    shutil.copytree(archive.source, source, symlinks=True)
    for path in (source.parent, source, *source.rglob("*")):
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid, follow_symlinks=False)
    archive.source, archive.target = source, home / "nobody" / "restored"
    return archive


def _owners(root: Path) -> set[tuple[int, int]]:
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in (root, *root.rglob("*"))}


def test_files_are_taken_and_given_back(archive: ArchiveFixture) -> None:
    before = read_tree(archive.source)
    put = archive.put_until("PUTTING")
    assert (archive.source / "run" / "one.dat").stat().st_uid == 0
    archive.run_until(put, "PUT_COMPLETED")
    assert read_tree(archive.source) == before
    assert _owners(archive.source) == {(NOBODY.pw_uid, NOBODY.pw_gid)}
    archive.run_until(archive.get(), "GET_COMPLETED")
    assert read_tree(archive.target) == before
    assert _owners(archive.target) == {(NOBODY.pw_uid, NOBODY.pw_gid)}


def test_a_file_that_the_user_cannot_read_is_refused_by_name(archive: ArchiveFixture) -> None:
    secret = archive.source / "secret"
    secret.write_bytes(b"of root")
    secret.chmod(0o600)
    failed = archive.run_until(archive.put(), "FAILED")
    assert "secret" in failed.message
    assert (secret.stat().st_uid, secret.stat().st_mode & 0o777) == (0, 0o600)
    assert archive.list_stored() == []


def test_a_target_where_the_user_cannot_write_is_refused(archive: ArchiveFixture, home: Path) -> None:
    archive.store_migration()
    failed = archive.run_until(archive.get(target=str(home / "restored")), "FAILED")
    assert "cannot be made" in failed.message
    assert not (home / "restored").exists()
    assert archive.migration().state == "ON_STORAGE"
