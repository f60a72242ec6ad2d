"""Uploads that no batch needs any more are removed; those that one needs are not, whatever else is wrong."""

import os
import time

import pytest

from tests.apps.ingest.service.service_caller import ServiceCaller
from waybill.apps.ingest import service
from waybill.apps.ingest.application import APPLICATION
from waybill.apps.ingest.maintenance import UploadRemovalRoutine
from waybill.apps.ingest.submission import Submission
from waybill.files import unneeded_objects
from waybill.maintenance import MaintenanceContext, run_round
from waybill.record import CommitGroup, CommitResult, Finding, Record, Ref, StoreUnavailable
from waybill.rules import enter_state


@pytest.fixture
def hand(caller: ServiceCaller) -> MaintenanceContext:
    return MaintenanceContext(
        caller.engine.store, caller.engine.machines, "h", caller.ingest.root, caller.resources.objects
    )


def abandoned(caller: ServiceCaller, data: bytes = b"left", batch_id: str = "bid-gone") -> str:
    """An upload whose sender died before it became a batch."""
    return service.receive_upload(caller.resources, batch_id, "a.txt", [data]).name


def age(caller: ServiceCaller, seconds: float) -> None:
    """As if all files of the objects had been written so long ago."""
    at = time.time() - seconds
    for folder, _, files in os.walk(caller.ingest.environment.config.objects):
        for name in files:
            os.utime(os.path.join(folder, name), (at, at))


def lead(caller: ServiceCaller, ref: Ref, state: str) -> None:
    from waybill.record import Change

    before = caller.engine.store.get(*ref)
    after = enter_state(caller.engine.machines["batch"], before, state)
    assert isinstance(caller.engine.store.commit([CommitGroup((Change(before, after, "done"),))])[0], CommitResult)


def test_the_routine_belongs_to_the_application() -> None:
    assert any(isinstance(duty, UploadRemovalRoutine) for duty in APPLICATION.maintenance)


def test_an_upload_that_became_no_batch_is_removed_after_a_day(caller: ServiceCaller, hand: MaintenanceContext) -> None:
    left = abandoned(caller)
    assert run_round(UploadRemovalRoutine(), hand) == 0, "its submission may be under way"
    age(caller, 90000)
    record = caller.submit(b"kept").submission.url.removeprefix("waybill:")
    age(caller, 90000)
    assert run_round(UploadRemovalRoutine(), hand) == 1
    assert caller.payloads() == [record]
    assert left not in caller.payloads()
    assert run_round(UploadRemovalRoutine(), hand) == 0


def test_a_second_upload_of_the_same_batch_is_removed_and_the_first_is_not(
    caller: ServiceCaller, hand: MaintenanceContext
) -> None:
    first = caller.submit(b"x", batch_id="bid-1").submission.url.removeprefix("waybill:")
    abandoned(caller, batch_id="bid-1")
    age(caller, 90000)
    assert run_round(UploadRemovalRoutine(), hand) == 1
    assert caller.payloads() == [first]


@pytest.mark.parametrize("state", ["Pending", "Held", "Processing", "Reporting", "Failed", "UpdateReporting"])
def test_a_batch_that_may_go_on_keeps_its_payload(caller: ServiceCaller, hand: MaintenanceContext, state: str) -> None:
    lead(caller, caller.submit(b"x").batch.ref, state)
    age(caller, 1e7)
    assert run_round(UploadRemovalRoutine(), hand) == 0
    assert len(caller.payloads()) == 1


@pytest.mark.parametrize("state", ["Completed", "Deleted"])
def test_the_payload_of_a_batch_that_ended_goes_at_once(
    caller: ServiceCaller, hand: MaintenanceContext, state: str
) -> None:
    lead(caller, caller.submit(b"x").batch.ref, state)
    assert run_round(UploadRemovalRoutine(), hand) == 1
    assert caller.payloads() == []


def test_the_payload_of_a_batch_that_was_removed_goes(caller: ServiceCaller, hand: MaintenanceContext) -> None:
    batch = caller.submit(b"x").batch
    lead(caller, batch.ref, "Deleted")
    caller.engine.remove(batch.ref, who="op")
    age(caller, 90000)
    assert run_round(UploadRemovalRoutine(), hand) == 1


def test_what_is_made_into_a_batch_between_look_and_removal_stays(
    caller: ServiceCaller, hand: MaintenanceContext
) -> None:
    complete, profile = service.complete_submission(
        caller.engine, caller.resources, Submission(profile="demo", url=""), who="ada"
    )
    received = service.receive_upload(caller.resources, complete.batch_id, "a.txt", [b"late"])
    age(caller, 90000)
    (finding,) = UploadRemovalRoutine().check(hand)
    service.make_batch(
        caller.engine, service.add_upload_payload(caller.resources, complete, received), profile, who="ada"
    )
    assert UploadRemovalRoutine().repair(hand, finding) is False
    assert len(caller.payloads()) == 1
    assert UploadRemovalRoutine().repair(hand, Finding("x", "ingest/payloads/bid-x.0/none", "", "")) is False


def test_a_store_that_is_unavailable_removes_nothing(
    caller: ServiceCaller, hand: MaintenanceContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned(caller)
    age(caller, 90000)

    def away(kind: str, request: str) -> Record:
        raise StoreUnavailable

    monkeypatch.setattr(hand.store, "get_by_idempotency_key", away)
    with pytest.raises(StoreUnavailable):
        run_round(UploadRemovalRoutine(), hand)
    assert len(caller.payloads()) == 1


def test_a_round_is_bounded_and_the_next_goes_on(
    caller: ServiceCaller, hand: MaintenanceContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unneeded_objects, "ROUND_SIZE", 2)
    for n in range(5):
        abandoned(caller, batch_id=f"bid-{n}")
    age(caller, 90000)
    assert [run_round(UploadRemovalRoutine(), hand) for _ in range(4)] == [2, 2, 1, 0]
    assert caller.payloads() == []


def test_what_others_keep_there_is_left_alone(caller: ServiceCaller, hand: MaintenanceContext) -> None:
    caller.resources.objects.put("ingest/payloads/by-hand/a.txt", b"x")
    age(caller, 1e7)
    assert run_round(UploadRemovalRoutine(), hand) == 0
