"""The catalogue, and the records, are lost: the containers have all that is needed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.apps.archive.archive_fixture import ArchiveFixture, read_tree
from waybill.apps.archive.rebuilding import Rebuild


def _rebuild(archive: ArchiveFixture) -> list[tuple[str, str]]:
    work = Rebuild(archive.tester.resources, archive.tester.engine, "local", who="test")
    return [(each.state, each.message) for each in work.iter_results()]


@pytest.fixture
def rebuilt(archive: ArchiveFixture, tmp_path: Path) -> ArchiveFixture:
    """A new server that has only the storage of another one."""
    (archive.source / "run" / os_name()).write_bytes(b"odd")
    archive.store_migration(kind="MIGRATE", label="precious")
    other = ArchiveFixture(tmp_path / "other")
    shutil.copytree(archive.storage_root, other.storage_root)
    return other


def os_name() -> str:
    """A name that is no UTF-8."""
    return b"odd-\xff".decode("utf-8", "surrogateescape")


def test_a_lost_server_is_rebuilt_from_its_storage(rebuilt: ArchiveFixture) -> None:
    before = read_tree(rebuilt.source)
    with rebuilt:
        assert _rebuild(rebuilt) == [("restored", "migration 1, precious")]
        assert _rebuild(rebuilt) == [("known", "")]
        shown = rebuilt.migrations.show(rebuilt.caller, 1)
        assert (shown["state"], shown["label"], shown["only_copy"]) == ("ON_STORAGE", "precious", True)
        assert rebuilt.quota() == (rebuilt.archive_path().stat().st_size, 0)
        rebuilt.run_until(rebuilt.get(), "GET_COMPLETED")
        restored = read_tree(rebuilt.target)
        assert restored.pop(f"run/{os_name()}")[1] == b"odd"
        assert restored == before
        second = rebuilt.put()  # its number is behind those that were rebuilt
        assert second.id == "req0000000002"
        assert rebuilt.migration(2).state == "ON_DISK"


@pytest.mark.parametrize("damage", ["cut", "archive"])
def test_nothing_is_rebuilt_from_a_damaged_container(rebuilt: ArchiveFixture, damage: str) -> None:
    catalogue = rebuilt.archive_path().with_name("catalogue.jsonl")
    if damage == "cut":
        catalogue.write_bytes(catalogue.read_bytes()[:-20])
    else:
        rebuilt.archive_path().unlink()
    with rebuilt:
        ((state, _),) = _rebuild(rebuilt)
        assert state == "damaged"
        assert rebuilt.tester.find_all("archive-migration") == []
