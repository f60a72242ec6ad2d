"""Provisioning: jobs wait for room, all of them are looked at, and none is forgotten."""

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.steps.disk_space_fixture import DiskSpaceFixture
from tests.apps.ingest.steps.new_jobs import resume_after
from waybill.disk_space import SpaceReservation
from waybill.disk_space.locked_log import LockedLog
from waybill.worker import step_context


def test_provisioning_to_downloading_when_there_is_space(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=1000)
    with fixture.ingest:
        job = fixture.step(fixture.job(600))
        assert (job.state, job.host) == ("Downloading", "testhost")
        assert fixture.reservations.list_reservations() == [SpaceReservation(str(job.ref), granted=600)]


def test_what_was_granted_to_one_is_not_there_for_another(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=1000)
    with fixture.ingest:
        first, second, third = fixture.job(600), fixture.job(600), fixture.job(300)
        assert fixture.step(first).state == "Downloading"
        waits = fixture.step(second)
        assert (waits.state, waits.blocked_by, waits.error_count) == ("Provisioning", "wait", 0)
        assert waits.message == "It waits for disk space: it needs 600 bytes, and 400 are free for it."
        assert waits.documents["disk_space"]["message"] == waits.message
        assert fixture.step(third).state == "Downloading"  # every job that waits is looked at
        fixture.reservations.remove(str(first.ref))
        assert fixture.step(second).state == "Downloading"
        assert "disk_space" not in fixture.ingest.get("job", second.id).documents


@pytest.mark.parametrize("said", [-1, 0, "many", None])
def test_an_unknown_size_waits_below_the_threshold(tmp_path: Path, said: Any) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=499)
    with fixture.ingest:
        job = resume_after(
            fixture.ingest,
            "Estimating",
            f"{fixture.ingest.web.url}/a",
            {"space_needed": said} if said is not None else {},
        )
        assert "its size is not known" in fixture.step(job).message
        fixture.disk.free = 500
        assert fixture.step(job).state == "Downloading"


def test_a_job_that_failed_gives_its_space_to_those_that_wait(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=1000)
    with fixture.ingest:
        first, second = fixture.job(600), fixture.job(600)
        assert fixture.step(first).state == "Downloading"
        assert fixture.step(second).state == "Provisioning"
        fixture.fail(first)
        assert fixture.step(second).state == "Downloading"
        assert [entry.id for entry in fixture.reservations.list_reservations()] == [str(second.ref)]


def test_a_job_that_can_never_fit_says_so_tells_the_administrators_once_and_waits(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=5000, notifications={"admins": ["ops@example.org"]})
    with fixture.ingest:
        job = fixture.job(20_000)
        for _ in range(3):
            found = fixture.step(job)
            assert (found.state, found.error_count) == ("Provisioning", 0)
            assert found.message.startswith(
                "It can never fit: it needs 20,000 bytes, and the working disk has 10,000 at most."
            )
        (letter,) = fixture.list_mail()
        assert letter["to"] == ["ops@example.org"]
        assert "can never fit" in letter["subject"]
        assert "20,000" in letter["text"]
        fixture.disk.total = fixture.disk.free = 30_000
        assert fixture.step(job).state == "Downloading"


def test_without_administrators_nobody_is_written_to(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=5000)
    with fixture.ingest:
        assert "can never fit" in fixture.step(fixture.job(20_000)).message
        assert fixture.list_mail() == []


@pytest.mark.parametrize("place", ["the ledger", "the working folder"])
def test_a_full_disk_is_waited_for_with_a_sentence_and_uses_up_no_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def no_more(*args: Any, **options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    fixture = DiskSpaceFixture(tmp_path, free=1000)
    with fixture.ingest:
        job = fixture.job(600)
        with monkeypatch.context() as patch:
            if place == "the ledger":
                patch.setattr(LockedLog, "_write", no_more)
            else:
                patch.setattr(step_context, "make_folder", no_more)
            for _ in range(3):  # in the second the ledger is to be swept, too
                found = fixture.step(job)
                assert (found.state, found.blocked_by, found.error_count) == ("Provisioning", "wait", 0)
                assert found.message == "It waits for disk space: the working disk is full."
        assert fixture.step(job).state == "Downloading"
