"""Uploads that no batch needs any more are removed; those that one needs are not, whatever else is wrong."""

import os
import time

import pytest

from tests.apps.ingest.service.desk import Desk
from waybill.apps.ingest import service
from waybill.apps.ingest.application import APPLICATION
from waybill.apps.ingest.duties import sweeping
from waybill.apps.ingest.duties.payloads import Payloads
from waybill.apps.ingest.submission import Submission
from waybill.duties import Hand, a_round
from waybill.record import Committed, Finding, Group, Record, Ref, Unavailable
from waybill.rules import enter


@pytest.fixture
def hand(desk: Desk) -> Hand:
    return Hand(desk.engine.store, desk.engine.machines, "h", desk.site.root, desk.outfit.objects)


def abandoned(desk: Desk, data: bytes = b"left", batch_id: str = "bid-gone") -> str:
    """An upload whose sender died before it became a batch."""
    return service.receive(desk.outfit, batch_id, "a.txt", [data]).url.removeprefix("waybill:")


def age(desk: Desk, seconds: float) -> None:
    """As if all files of the objects had been written so long ago."""
    at = time.time() - seconds
    for folder, _, files in os.walk(desk.site.depot.config.objects):
        for name in files:
            os.utime(os.path.join(folder, name), (at, at))


def lead(desk: Desk, ref: Ref, state: str) -> None:
    from waybill.record import Change

    before = desk.engine.store.get(*ref)
    after = enter(desk.engine.machines["batch"], before, state)
    assert isinstance(desk.engine.store.commit([Group((Change(before, after, "done"),))])[0], Committed)


def test_the_duty_belongs_to_the_application() -> None:
    assert any(isinstance(duty, Payloads) for duty in APPLICATION.duties)


def test_an_upload_that_became_no_batch_is_removed_after_a_day(desk: Desk, hand: Hand) -> None:
    left = abandoned(desk)
    assert a_round(Payloads(), hand) == 0, "its submission may be under way"
    age(desk, 90000)
    kept = desk.submit(b"kept").submission.url.removeprefix("waybill:")
    age(desk, 90000)
    assert a_round(Payloads(), hand) == 1
    assert desk.payloads() == [kept]
    assert left not in desk.payloads()
    assert a_round(Payloads(), hand) == 0


def test_a_second_upload_of_the_same_batch_is_removed_and_the_first_is_not(desk: Desk, hand: Hand) -> None:
    first = desk.submit(b"x", batch_id="bid-1").submission.url.removeprefix("waybill:")
    abandoned(desk, batch_id="bid-1")
    age(desk, 90000)
    assert a_round(Payloads(), hand) == 1
    assert desk.payloads() == [first]


@pytest.mark.parametrize("state", ["Pending", "Held", "Processing", "Reporting", "Failed", "UpdateReporting"])
def test_a_batch_that_may_go_on_keeps_its_payload(desk: Desk, hand: Hand, state: str) -> None:
    lead(desk, desk.submit(b"x").batch.ref, state)
    age(desk, 1e7)
    assert a_round(Payloads(), hand) == 0
    assert len(desk.payloads()) == 1


@pytest.mark.parametrize("state", ["Completed", "Deleted"])
def test_the_payload_of_a_batch_that_ended_goes_at_once(desk: Desk, hand: Hand, state: str) -> None:
    lead(desk, desk.submit(b"x").batch.ref, state)
    assert a_round(Payloads(), hand) == 1
    assert desk.payloads() == []


def test_the_payload_of_a_batch_that_was_removed_goes(desk: Desk, hand: Hand) -> None:
    batch = desk.submit(b"x").batch
    lead(desk, batch.ref, "Deleted")
    desk.engine.remove(batch.ref, who="op")
    age(desk, 90000)
    assert a_round(Payloads(), hand) == 1


def test_what_is_made_into_a_batch_between_look_and_removal_stays(desk: Desk, hand: Hand) -> None:
    complete, profile = service.ready(desk.engine, desk.outfit, Submission(profile="demo", url=""), who="ada")
    received = service.receive(desk.outfit, complete.batch_id, "a.txt", [b"late"])
    age(desk, 90000)
    (finding,) = Payloads().check(hand)
    service.enter(desk.engine, service.arrived(desk.outfit, complete, received), profile, who="ada")
    assert Payloads().mend(hand, finding) is False
    assert len(desk.payloads()) == 1
    assert Payloads().mend(hand, Finding("x", "ingest/payloads/bid-x.0/none", "", "")) is False


def test_a_store_that_is_away_removes_nothing(desk: Desk, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned(desk)
    age(desk, 90000)

    def away(kind: str, request: str) -> Record:
        raise Unavailable

    monkeypatch.setattr(hand.store, "requested", away)
    with pytest.raises(Unavailable):
        a_round(Payloads(), hand)
    assert len(desk.payloads()) == 1


def test_a_round_is_bounded_and_the_next_goes_on(desk: Desk, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "PORTION", 2)
    for n in range(5):
        abandoned(desk, batch_id=f"bid-{n}")
    age(desk, 90000)
    assert [a_round(Payloads(), hand) for _ in range(4)] == [2, 2, 1, 0]
    assert desk.payloads() == []


def test_what_others_keep_there_is_left_alone(desk: Desk, hand: Hand) -> None:
    desk.outfit.objects.put("ingest/payloads/by-hand/a.txt", b"x")
    age(desk, 1e7)
    assert a_round(Payloads(), hand) == 0
