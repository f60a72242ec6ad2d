"""The design's three tables of test runs, on SQLite and PostgreSQL: one run of a role moves exactly that arrow, and the rows
"no state transition" move none. The last row of each, the removal, is retention's.
"""

from __future__ import annotations

import pytest

from tests.apps.archive.archive_fixture import ArchiveFixture, read_tree
from waybill.record import RecordNotFound

PUT_RUNS = [
    ("lock", "PUT_START", "PUT_PACKING", "PUTTING"),
    ("pack", "PUT_PACKING", "PUT_PENDING", "PUTTING"),
    ("transfer", "PUT_PENDING", "PUTTING", "PUTTING"),
    ("transfer", "PUTTING", "PUTTING", "PUTTING"),
    ("monitor", "PUTTING", "VERIFY_PENDING", "PUTTING"),
    ("transfer", "VERIFY_PENDING", "VERIFY_GETTING", "PUTTING"),
    ("transfer", "VERIFY_GETTING", "VERIFY_GETTING", "PUTTING"),
    ("monitor", "VERIFY_GETTING", "VERIFYING", "PUTTING"),
    ("verify", "VERIFYING", "PUT_TIDY", "ON_STORAGE"),
    ("tidy", "PUT_TIDY", "PUT_COMPLETED", "ON_STORAGE"),
]
GET_RUNS = [
    ("lock", "GET_START", "GET_PENDING"),
    ("transfer", "GET_PENDING", "GETTING"),
    ("transfer", "GETTING", "GETTING"),
    ("monitor", "GETTING", "GET_UNPACKING"),
    ("pack", "GET_UNPACKING", "GET_RESTORE"),
    ("transfer", "GET_RESTORE", "GET_TIDY"),
    ("tidy", "GET_TIDY", "GET_COMPLETED"),
]
DELETE_RUNS = [
    ("lock", "DELETE_START", "DELETE_PENDING", "DELETING"),
    ("transfer", "DELETE_PENDING", "DELETING", "DELETING"),
    ("transfer", "DELETING", "DELETING", "DELETING"),
    ("monitor", "DELETING", "DELETE_TIDY", "DELETING"),
    ("tidy", "DELETE_TIDY", "DELETE_COMPLETED", "DELETED"),
]
KEEP_REQUESTS = 91 * 86400.0


def _release_waits(archive: ArchiveFixture) -> None:
    archive.tester.store.release_due_waits()


@pytest.mark.parametrize("kind", ["PUT", "MIGRATE"])
def test_the_runs_of_a_put_move_one_arrow_each(stored_archive: ArchiveFixture, kind: str) -> None:
    archive = stored_archive
    before = read_tree(archive.source)
    put = archive.put(kind=kind)
    assert archive.migration().state == "ON_DISK"
    for role, source, target, migration in PUT_RUNS:
        _release_waits(archive)
        moved = archive.step(put)
        assert (role, moved.before, moved.after) == (role, source, target), archive.tester.get(put).message
        assert archive.migration().state == migration
    if kind == "PUT":
        assert read_tree(archive.source) == before
    else:
        assert not archive.source.exists()
    assert archive.list_stored() == ["archive_0000000001.tar", "catalogue.jsonl"]


def test_the_runs_of_a_get_move_one_arrow_each(stored_archive: ArchiveFixture) -> None:
    archive = stored_archive
    archive.store_migration()
    get = archive.get()
    for role, source, target in GET_RUNS:
        _release_waits(archive)
        moved = archive.step(get)
        assert (role, moved.before, moved.after) == (role, source, target), archive.tester.get(get).message
        assert archive.migration().state == "ON_STORAGE"
    assert read_tree(archive.target) == read_tree(archive.source)


def test_the_runs_of_a_delete_move_one_arrow_each(stored_archive: ArchiveFixture) -> None:
    archive = stored_archive
    archive.store_migration()
    delete = archive.delete()
    for role, source, target, migration in DELETE_RUNS:
        _release_waits(archive)
        moved = archive.step(delete)
        assert (role, moved.before, moved.after) == (role, source, target), archive.tester.get(delete).message
        assert archive.migration().state == migration
    assert archive.list_stored() == []
    assert archive.quota() == (0, 0)


def test_the_runs_of_a_move_end_on_the_other_storage(archive: ArchiveFixture) -> None:
    archive.store_migration()
    with pytest.raises(Exception, match="no storage tape"):
        archive.requests.move(archive.caller, 1, "tape")


@pytest.mark.parametrize("kind", ["PUT", "GET", "DELETE"])
def test_a_completed_request_is_removed_when_it_was_kept_long_enough(archive: ArchiveFixture, kind: str) -> None:
    archive.store_migration()
    request = {"PUT": lambda: archive.find_requests("PUT")[0], "GET": archive.get, "DELETE": archive.delete}[kind]()
    request = archive.run_until(request, f"{kind}_COMPLETED")
    assert archive.tester.run_maintenance("archive-requests") == 0
    archive.tester.advance(KEEP_REQUESTS)
    assert archive.tester.run_maintenance("archive-requests") > 0
    with pytest.raises(RecordNotFound):
        archive.tester.get(request)
    assert archive.migration().state == ("DELETED" if kind == "DELETE" else "ON_STORAGE")
