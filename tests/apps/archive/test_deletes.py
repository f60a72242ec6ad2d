"""DELETE against every stage of a PUT and a GET: at rest, claimed, failed; grace and undelete; the only copy."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.apps.archive.archive_fixture import ArchiveFixture, read_tree
from waybill.apps.archive.machine.request import GET_FLOW, PUT_FLOW
from waybill.errors import ActionRefused
from waybill.record import Conflict, Record
from waybill.step import Fail

PUT_STAGES = PUT_FLOW[:-1]
GET_STAGES = GET_FLOW[:-1]


def _claim(archive: ArchiveFixture, record: Record) -> str:
    """Claim a record as a worker does, which then does nothing."""
    store = archive.tester.store
    session = store.open_session(host="elsewhere", ttl=60, about={})
    claimed = store.claim_one(record.kind, record.id, session)
    assert claimed.record.state == archive.state_of(record)
    return session


def _assert_gone(archive: ArchiveFixture, before: dict[str, Any]) -> None:
    assert archive.migration().state == "DELETED"
    assert archive.list_stored() == []
    assert archive.quota() == (0, 0)
    assert read_tree(archive.source) == before
    assert not (archive.data / "archive-staging").exists() or not os.listdir(archive.data / "archive-staging")
    # the paths are free again
    archive.put()


@pytest.mark.parametrize("stage", PUT_STAGES)
def test_a_delete_ends_a_put_at_rest_in(archive: ArchiveFixture, stage: str) -> None:
    before = read_tree(archive.source)
    put = archive.put_until(stage)
    delete = archive.delete()
    assert archive.state_of(put) == "STOPPED"
    archive.run_until(delete, "DELETE_COMPLETED")
    _assert_gone(archive, before)
    with pytest.raises(ActionRefused):
        archive.tester.act(put, "resume")


@pytest.mark.parametrize("stage", PUT_STAGES)
def test_a_delete_waits_for_the_worker_of_a_put_in(archive: ArchiveFixture, stage: str) -> None:
    before = read_tree(archive.source)
    put = archive.put_until(stage)
    session = _claim(archive, put)
    delete = archive.delete()
    assert archive.state_of(put) == stage
    with pytest.raises(Conflict):  # it owns no lock before the worker has let go
        archive.step(delete)
    archive.tester.store.close_session(session)
    assert archive.tester.run_maintenance("action-requests") >= 0
    archive.run_until(delete, "DELETE_COMPLETED")
    assert archive.state_of(put) == "STOPPED"
    _assert_gone(archive, before)


def _fail(archive: ArchiveFixture, record: Record, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Let the present stage fail for good."""

    def fail(stage: object) -> None:
        raise Fail("broken by the test")

    name = record.state.lower()
    with monkeypatch.context() as patch:
        patch.setattr(f"waybill.apps.archive.steps.request.{name}._{name}", fail)
        return archive.run_until(record, "FAILED")


FAILING_PUT_STAGES = [stage for stage in PUT_STAGES if stage != "PUT_TIDY"]  # which never fails


@pytest.mark.parametrize("stage", FAILING_PUT_STAGES)
def test_a_delete_ends_a_put_that_failed_in(
    archive: ArchiveFixture, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_tree(archive.source)
    put = _fail(archive, archive.put_until(stage), monkeypatch)
    assert read_tree(archive.source) == before  # owner and mode are given back before it rests in FAILED
    assert archive.migration().state == "FAILED"
    delete = archive.delete()
    assert archive.state_of(put) == "STOPPED"
    archive.run_until(delete, "DELETE_COMPLETED")
    _assert_gone(archive, before)


@pytest.mark.parametrize("stage", FAILING_PUT_STAGES)
def test_a_put_that_failed_is_resumed_in(archive: ArchiveFixture, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put = _fail(archive, archive.put_until(stage, kind="MIGRATE"), monkeypatch)
    # while it rests, its owner changes one file and adds another
    changed = archive.source / "run" / "one.dat"
    changed.write_bytes(b"changed" * 500)
    (archive.source / "run" / "new.dat").write_bytes(b"new")
    after = read_tree(archive.source)
    archive.requests.resume(archive.caller, 1)
    archive.run_until(put, "PUT_COMPLETED")
    assert not archive.source.exists()
    archive.run_until(archive.get(), "GET_COMPLETED")
    assert read_tree(archive.target) == after
    used, reserved = archive.quota()
    assert (used > 0, reserved) == (True, 0)


@pytest.mark.parametrize("stage", GET_STAGES)
def test_a_delete_ends_a_get_at_rest_in(archive: ArchiveFixture, stage: str) -> None:
    archive.store_migration()
    get = archive.run_until(archive.get(), stage)
    delete = archive.delete()
    assert archive.state_of(get) == "STOPPED"
    archive.run_until(delete, "DELETE_COMPLETED")
    assert (archive.migration().state, archive.list_stored(), archive.quota()) == ("DELETED", [], (0, 0))


@pytest.mark.parametrize("stage", GET_STAGES)
def test_a_delete_waits_for_the_worker_of_a_get_in(archive: ArchiveFixture, stage: str) -> None:
    archive.store_migration()
    get = archive.run_until(archive.get(), stage)
    session = _claim(archive, get)
    delete = archive.delete()
    assert archive.state_of(get) == stage
    if stage != "GET_START":  # a GET that was never claimed owns no lock yet; this one was
        with pytest.raises(Conflict):
            archive.step(delete)
    archive.tester.store.close_session(session)
    archive.run_until(delete, "DELETE_COMPLETED")
    assert archive.state_of(get) == "STOPPED"
    assert (archive.migration().state, archive.list_stored()) == ("DELETED", [])


@pytest.mark.parametrize("stage", GET_STAGES)
def test_a_failed_get_leaves_the_migration_on_storage_in(
    archive: ArchiveFixture, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.store_migration()
    get = _fail(archive, archive.run_until(archive.get(), stage), monkeypatch)
    assert archive.migration().state == "ON_STORAGE"
    archive.requests.resume(archive.caller, 2)
    archive.run_until(get, "GET_COMPLETED")
    assert read_tree(archive.target) == read_tree(archive.source)


@pytest.mark.parametrize("stage", ["DELETE_START", "DELETE_PENDING", "DELETING", "DELETE_TIDY"])
def test_a_failed_delete_is_resumed_in(archive: ArchiveFixture, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.store_migration()
    delete = _fail(archive, archive.run_until(archive.delete(), stage), monkeypatch)
    assert archive.migration().state == "DELETING"
    archive.requests.resume(archive.caller, 2)
    archive.run_until(delete, "DELETE_COMPLETED")
    assert (archive.migration().state, archive.list_stored(), archive.quota()) == ("DELETED", [], (0, 0))


def test_no_get_begins_beside_a_delete(archive: ArchiveFixture) -> None:
    archive.store_migration()
    archive.delete(grace=3600)
    with pytest.raises(ActionRefused, match="is DELETING"):
        archive.get()
    with pytest.raises(ActionRefused, match="already"):
        archive.delete()


# --- grace and undelete


@pytest.mark.parametrize("stage", PUT_STAGES)
def test_an_undelete_resumes_the_put_where_it_stood_in(archive: ArchiveFixture, stage: str) -> None:
    put = archive.put_until(stage)
    delete = archive.delete(grace=3600)
    archive.tester.run_until_idle()
    assert (archive.state_of(delete), archive.state_of(put)) == ("DELETE_START", "STOPPED")
    archive.requests.undelete(archive.caller, 1)
    assert (archive.state_of(delete), archive.state_of(put)) == ("UNDELETED", stage)
    archive.run_until(put, "PUT_COMPLETED")
    assert archive.migration().state == "ON_STORAGE"


def test_an_undelete_of_a_failed_put_leaves_it_failed(archive: ArchiveFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    put = _fail(archive, archive.put_until("PUTTING"), monkeypatch)
    archive.delete(grace=3600)
    archive.requests.undelete(archive.caller, 1)
    assert (archive.state_of(put), archive.migration().state) == ("FAILED", "FAILED")


def test_all_artefacts_stay_until_the_grace_ends(archive: ArchiveFixture) -> None:
    archive.store_migration()
    stored = archive.list_stored()
    delete = archive.delete(grace=3600)
    archive.tester.run_until_idle()
    assert archive.list_stored() == stored
    archive.tester.advance(3601)
    archive.run_until(delete, "DELETE_COMPLETED")
    assert archive.list_stored() == []
    with pytest.raises(ActionRefused, match="no DELETE"):
        archive.requests.undelete(archive.caller, 1)


# --- the only copy


def test_the_only_copy_is_deleted_only_by_name_and_after_a_grace(archive: ArchiveFixture) -> None:
    archive.store_migration(kind="MIGRATE")
    with pytest.raises(ActionRefused, match="--only-copy"):
        archive.delete()
    delete = archive.delete(only_copy=True, grace=0)
    archive.tester.run_until_idle()
    assert archive.state_of(delete) == "DELETE_START"
    archive.tester.advance(61)
    archive.run_until(delete, "DELETE_COMPLETED")
    assert archive.list_stored() == []


@pytest.mark.parametrize("claimed", [False, True])
def test_a_delete_waits_for_the_tidy_of_a_migrate(archive: ArchiveFixture, claimed: bool) -> None:
    put = archive.put_until("PUT_TIDY", kind="MIGRATE")
    session = _claim(archive, put) if claimed else ""
    delete = archive.delete(only_copy=True)
    assert archive.state_of(put) == "PUT_TIDY"
    with pytest.raises(Conflict):
        archive.step(delete)
    if session:
        archive.tester.store.close_session(session)
    archive.run_until(put, "PUT_COMPLETED")
    assert not archive.source.exists()
    archive.tester.advance(8 * 86400)
    archive.run_until(delete, "DELETE_COMPLETED")
    assert (archive.list_stored(), archive.quota()) == ([], (0, 0))


# --- cancel


@pytest.mark.parametrize("stage", PUT_STAGES)
def test_a_put_is_cancelled_in(archive: ArchiveFixture, stage: str) -> None:
    before = read_tree(archive.source)
    archive.put_until(stage)
    delete = archive.requests.cancel(archive.caller, 1)
    archive.run_until(delete, "DELETE_COMPLETED")
    _assert_gone(archive, before)


@pytest.mark.parametrize("stage", GET_STAGES[:-1])
def test_a_get_is_cancelled_in(archive: ArchiveFixture, stage: str) -> None:
    archive.store_migration()
    get = archive.run_until(archive.get(), stage)
    archive.requests.cancel(archive.caller, 2, why="not needed")
    get = archive.run_until(get, "STOPPED")
    assert get.message == "Cancelled: not needed"
    assert archive.migration().state == "ON_STORAGE"
