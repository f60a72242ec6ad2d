"""Provisioning: jobs wait for room, all of them are looked at, and none is forgotten."""

import errno
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.steps.disk_space_fixture import DiskSpaceFixture, FakeDisk
from tests.apps.ingest.steps.new_jobs import resumed_after
from waybill.apps.ingest import job_space
from waybill.apps.ingest.disk_space import SpaceReservation
from waybill.apps.ingest.locked_log import LockedLog
from waybill.worker import step_context


def test_provisioning_to_downloading_when_there_is_space(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=1000)
    with fixture.ingest:
        job = fixture.step(fixture.job(600))
        assert (job.state, job.host) == ("Downloading", "testhost")
        assert fixture.reservations.list_reservations() == [SpaceReservation(job.id, granted=600)]


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
        fixture.reservations.remove(first.id)
        assert fixture.step(second).state == "Downloading"
        assert "disk_space" not in fixture.ingest.get("job", second.id).documents


def test_a_wait_writes_nothing_as_long_as_nothing_changes(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=100)
    with fixture.ingest:
        job = fixture.job(600)
        first = fixture.step(job).documents["disk_space"]
        again = fixture.step(job)
        assert again.documents["disk_space"] == first
        with fixture.ingest.engine() as engine:
            assert len(list(engine.store.history("job", job.id))) == 2  # made, and resumed


@pytest.mark.parametrize("said", [-1, 0, "many", None])
def test_an_unknown_size_waits_below_the_threshold(tmp_path: Path, said: Any) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=499)
    with fixture.ingest:
        job = resumed_after(
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
        assert [entry.id for entry in fixture.reservations.list_reservations()] == [second.id]


def test_a_job_that_was_removed_gives_its_space_to_those_that_wait(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=1000)
    with fixture.ingest:
        fixture.reservations.reserve("jid-of-old", 900, 0.0)
        assert fixture.step(fixture.job(600)).state == "Downloading"


def test_a_job_that_went_to_another_host_gives_its_space_to_those_that_wait(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=1000)
    with fixture.ingest:
        away, here = fixture.job(600), fixture.job(600)
        fixture.step(away)
        object.__setattr__(fixture.ingest.environment.config.work, "host", "otherhost")
        assert fixture.step(here).state == "Downloading"


def test_a_job_that_has_waited_long_gets_the_next_space(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=500, disk_space={"patience": 0.0})
    with fixture.ingest:
        large, small = fixture.job(900), fixture.job(100)
        fixture.step(large)
        assert fixture.step(small).state == "Provisioning"
        fixture.disk.free = 950
        assert fixture.step(small).state == "Provisioning"
        assert fixture.step(large).state == "Downloading"


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


def test_the_administrators_get_one_mail_about_a_job_that_waits_very_long(tmp_path: Path) -> None:
    fixture = DiskSpaceFixture(
        tmp_path, free=100, disk_space={"alert_after": 0.0}, notifications={"admins": ["ops@example.org"]}
    )
    with fixture.ingest:
        job = fixture.job(600)
        for _ in range(3):
            waits = fixture.step(job)
            assert (waits.state, waits.documents["disk_space"]["late"]) == ("Provisioning", True)
        (letter,) = fixture.list_mail()
        assert "has waited 0 hours for space" in letter["subject"]
        assert "It waits for disk space: it needs 600 bytes, and 100 are free for it." in letter["text"]
        fixture.disk.free = 1000
        assert fixture.step(job).state == "Downloading"
        assert "disk_space" not in fixture.ingest.get("job", job.id).documents


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


# --- the hook

SCRIPT = """
import os, pathlib, sys
path = pathlib.Path(sys.argv[1])
path.write_text(path.read_text() + "ran " + os.environ["WAYBILL_DISK_SPACE_NEEDED"] + " " + str("WAYBILL_SECRET" in os.environ) + chr(10))
print("made some room")
print("and more")
"""


def hooked(folder: Path, script: str, **room: Any) -> tuple[DiskSpaceFixture, Path]:
    notes = folder / "notes"
    notes.write_text("")
    return DiskSpaceFixture(
        folder, free=100, disk_space={"hook": [sys.executable, "-c", script, str(notes)], **room}
    ), notes


def test_a_hook_gets_the_missing_bytes_and_runs_again_only_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WAYBILL_SECRET", "x")
    fixture, notes = hooked(tmp_path, SCRIPT)
    with fixture.ingest, caplog.at_level("INFO"):
        job = fixture.job(700)
        assert fixture.step(job).state == "Provisioning"
        assert notes.read_text() == "ran 600 False\n"
        assert "exited with 0: made some room" in caplog.text
        assert "and more" not in caplog.text
        fixture.step(job)
        assert notes.read_text() == "ran 600 False\n"


def test_what_the_hook_provides_is_taken_at_once(tmp_path: Path) -> None:
    fixture, notes = hooked(tmp_path, SCRIPT)

    class Growing(FakeDisk):
        def __call__(self, root: Path) -> Any:
            self.free = 1000 if notes.read_text() else 100
            return super().__call__(root)

    fixture.disk.__class__ = Growing
    with fixture.ingest:
        assert fixture.step(fixture.job(700)).state == "Downloading"


@pytest.mark.parametrize(
    ("script", "seconds", "said"),
    [
        ("raise SystemExit(3)", 30.0, "exited with 3"),
        ("import time; print('here', flush=True); time.sleep(600)", 12.0, "was killed: here"),
        (
            "import subprocess, sys; print('gone', flush=True); subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])",
            30.0,
            "exited with 0: gone",
        ),
        ("while True: print('x' * 1000, flush=True)", 12.0, "was killed: xxx"),
    ],
)
def test_a_hook_that_misbehaves_stops_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    script: str,
    seconds: float,
    said: str,
) -> None:
    monkeypatch.setattr(job_space, "HOOK_TIMEOUT", seconds)
    fixture, _ = hooked(tmp_path, script)
    with fixture.ingest, caplog.at_level("INFO"):
        assert fixture.step(fixture.job(700)).state == "Provisioning"
        assert said in caplog.text


def test_a_missing_hook_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fixture = DiskSpaceFixture(tmp_path, free=100, disk_space={"hook": ["/nowhere/at/all"]})
    with fixture.ingest:
        assert fixture.step(fixture.job(700)).state == "Provisioning"
        assert "cannot be run: No such file" in caplog.text
