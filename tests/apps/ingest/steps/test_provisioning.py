"""Provisioning: jobs wait for room, all of them are looked at, and none is forgotten."""

import errno
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.site import Site
from tests.apps.ingest.steps.dock import resumed_after, step
from tests.apps.ingest.test_room import Plate
from waybill.apps.ingest.journal import Journal
from waybill.apps.ingest.room import Entry, Ledger
from waybill.apps.ingest.steps import hook
from waybill.record import Record
from waybill.worker import context


class Yard:
    """A site whose working disk is filled by the test."""

    def __init__(
        self, folder: Path, *, free: int, total: int = 10_000, room: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        rules = {"keep_free": 0, "unknown": 500, "every": 0.0, "patience": 3600.0, **(room or {})}
        self.site = Site(folder, settings={"outside": ["Processing"], "room": rules, **settings})
        self.plate = Plate(total, free)
        outfit = self.site.depot.outfit("job")
        self.room = outfit.room = Ledger(self.site.root, outfit.settings.room, self.plate)

    def job(self, size: int) -> Record:
        """A job in Provisioning that needs so much; -1: nobody knows."""
        return resumed_after(self.site, "Estimating", f"{self.site.web.url}/a", {"space_needed": size})

    def look(self, job: Record) -> Record:
        step(self.site, job)
        return self.site.get("job", job.id)

    def fail(self, job: Record) -> None:
        with self.site.engine() as engine:
            engine.act(job.ref, "fail", confirmed=True)

    def letters(self) -> list[dict[str, Any]]:
        with self.site.engine() as engine:
            return [record.docs["letter"] for record in engine.store.find("letter", docs=True).records]


def test_provisioning_to_downloading_when_there_is_room(tmp_path: Path) -> None:
    yard = Yard(tmp_path, free=1000)
    with yard.site:
        job = yard.look(yard.job(600))
        assert (job.state, job.host) == ("Downloading", "testhost")
        assert yard.room.entries() == [Entry(job.id, need=600)]


def test_what_was_granted_to_one_is_not_there_for_another(tmp_path: Path) -> None:
    yard = Yard(tmp_path, free=1000)
    with yard.site:
        first, second, third = yard.job(600), yard.job(600), yard.job(300)
        assert yard.look(first).state == "Downloading"
        waits = yard.look(second)
        assert (waits.state, waits.parked, waits.tries) == ("Provisioning", "wait", 0)
        assert waits.message == "It waits for room: it needs 600 bytes, and 400 are free for it."
        assert waits.docs["room"]["said"] == waits.message
        assert yard.look(third).state == "Downloading"  # every job that waits is looked at
        yard.room.leave(first.id)
        assert yard.look(second).state == "Downloading"
        assert "room" not in yard.site.get("job", second.id).docs


def test_a_wait_writes_nothing_as_long_as_nothing_changes(tmp_path: Path) -> None:
    yard = Yard(tmp_path, free=100)
    with yard.site:
        job = yard.job(600)
        first = yard.look(job).docs["room"]
        again = yard.look(job)
        assert again.docs["room"] == first
        with yard.site.engine() as engine:
            assert len(list(engine.store.history("job", job.id))) == 2  # made, and resumed


@pytest.mark.parametrize("said", [-1, 0, "many", None])
def test_an_unknown_size_waits_below_the_threshold(tmp_path: Path, said: Any) -> None:
    yard = Yard(tmp_path, free=499)
    with yard.site:
        job = resumed_after(
            yard.site, "Estimating", f"{yard.site.web.url}/a", {"space_needed": said} if said is not None else {}
        )
        assert "its size is not known" in yard.look(job).message
        yard.plate.free = 500
        assert yard.look(job).state == "Downloading"


def test_a_job_that_failed_gives_its_room_to_those_that_wait(tmp_path: Path) -> None:
    yard = Yard(tmp_path, free=1000)
    with yard.site:
        first, second = yard.job(600), yard.job(600)
        assert yard.look(first).state == "Downloading"
        assert yard.look(second).state == "Provisioning"
        yard.fail(first)
        assert yard.look(second).state == "Downloading"
        assert [entry.id for entry in yard.room.entries()] == [second.id]


def test_a_job_that_was_removed_gives_its_room_to_those_that_wait(tmp_path: Path) -> None:
    yard = Yard(tmp_path, free=1000)
    with yard.site:
        yard.room.admit("jid-of-old", 900, 0.0)
        assert yard.look(yard.job(600)).state == "Downloading"


def test_a_job_that_went_to_another_host_gives_its_room_to_those_that_wait(tmp_path: Path) -> None:
    yard = Yard(tmp_path, free=1000)
    with yard.site:
        away, here = yard.job(600), yard.job(600)
        yard.look(away)
        object.__setattr__(yard.site.depot.config.work, "host", "otherhost")
        assert yard.look(here).state == "Downloading"


def test_who_has_waited_long_gets_the_next_room(tmp_path: Path) -> None:
    yard = Yard(tmp_path, free=500, room={"patience": 0.0})
    with yard.site:
        large, small = yard.job(900), yard.job(100)
        yard.look(large)
        assert yard.look(small).state == "Provisioning"
        yard.plate.free = 950
        assert yard.look(small).state == "Provisioning"
        assert yard.look(large).state == "Downloading"


def test_a_job_that_can_never_fit_says_so_tells_the_administrators_once_and_waits(tmp_path: Path) -> None:
    yard = Yard(tmp_path, free=5000, tell={"admins": ["ops@example.org"]})
    with yard.site:
        job = yard.job(20_000)
        for _ in range(3):
            found = yard.look(job)
            assert (found.state, found.tries) == ("Provisioning", 0)
            assert found.message.startswith(
                "It can never fit: it needs 20,000 bytes, and the working disk has 10,000 at most."
            )
        (letter,) = yard.letters()
        assert letter["to"] == ["ops@example.org"]
        assert "can never fit" in letter["subject"]
        assert "20,000" in letter["text"]
        yard.plate.total = yard.plate.free = 30_000
        assert yard.look(job).state == "Downloading"


def test_the_administrators_are_told_once_of_a_job_that_waits_very_long(tmp_path: Path) -> None:
    yard = Yard(tmp_path, free=100, room={"alert": 0.0}, tell={"admins": ["ops@example.org"]})
    with yard.site:
        job = yard.job(600)
        for _ in range(3):
            waits = yard.look(job)
            assert (waits.state, waits.docs["room"]["late"]) == ("Provisioning", True)
        (letter,) = yard.letters()
        assert "has waited 0 hours for room" in letter["subject"]
        assert "It waits for room: it needs 600 bytes, and 100 are free for it." in letter["text"]
        yard.plate.free = 1000
        assert yard.look(job).state == "Downloading"
        assert "room" not in yard.site.get("job", job.id).docs


def test_without_administrators_nobody_is_written_to(tmp_path: Path) -> None:
    yard = Yard(tmp_path, free=5000)
    with yard.site:
        assert "can never fit" in yard.look(yard.job(20_000)).message
        assert yard.letters() == []


@pytest.mark.parametrize("place", ["the ledger", "the working folder"])
def test_a_full_disk_is_waited_for_with_a_sentence_and_uses_up_no_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def no_more(*args: Any, **options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    yard = Yard(tmp_path, free=1000)
    with yard.site:
        job = yard.job(600)
        with monkeypatch.context() as patch:
            if place == "the ledger":
                patch.setattr(Journal, "_write", no_more)
            else:
                patch.setattr(context, "make_folder", no_more)
            for _ in range(3):  # in the second the ledger is to be swept, too
                found = yard.look(job)
                assert (found.state, found.parked, found.tries) == ("Provisioning", "wait", 0)
                assert found.message == "It waits for room: the working disk is full."
        assert yard.look(job).state == "Downloading"


# --- the hook

SCRIPT = """
import os, pathlib, sys
path = pathlib.Path(sys.argv[1])
path.write_text(path.read_text() + "ran " + os.environ["WAYBILL_ROOM_NEEDED"] + " " + str("WAYBILL_SECRET" in os.environ) + chr(10))
print("made some room")
print("and more")
"""


def hooked(folder: Path, script: str, **room: Any) -> tuple[Yard, Path]:
    notes = folder / "notes"
    notes.write_text("")
    return Yard(folder, free=100, room={"hook": [sys.executable, "-c", script, str(notes)], **room}), notes


def test_a_hook_is_told_what_is_missing_and_asked_again_only_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WAYBILL_SECRET", "x")
    yard, notes = hooked(tmp_path, SCRIPT)
    with yard.site, caplog.at_level("INFO"):
        job = yard.job(700)
        assert yard.look(job).state == "Provisioning"
        assert notes.read_text() == "ran 600 False\n"
        assert "answered 0: made some room" in caplog.text
        assert "and more" not in caplog.text
        yard.look(job)
        assert notes.read_text() == "ran 600 False\n"


def test_what_the_hook_provides_is_taken_at_once(tmp_path: Path) -> None:
    yard, notes = hooked(tmp_path, SCRIPT)

    class Growing(Plate):
        def __call__(self, root: Path) -> Any:
            self.free = 1000 if notes.read_text() else 100
            return super().__call__(root)

    yard.plate.__class__ = Growing
    with yard.site:
        assert yard.look(yard.job(700)).state == "Downloading"


@pytest.mark.parametrize(
    ("script", "seconds", "said"),
    [
        ("raise SystemExit(3)", 30.0, "answered 3"),
        ("import time; print('here', flush=True); time.sleep(600)", 12.0, "was ended: here"),
        (
            "import subprocess, sys; print('gone', flush=True); subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])",
            30.0,
            "answered 0: gone",
        ),
        ("while True: print('x' * 1000, flush=True)", 12.0, "was ended: xxx"),
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
    monkeypatch.setattr(hook, "HOOK_SECONDS", seconds)
    yard, _ = hooked(tmp_path, script)
    with yard.site, caplog.at_level("INFO"):
        assert yard.look(yard.job(700)).state == "Provisioning"
        assert said in caplog.text


def test_a_hook_that_is_not_there_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    yard = Yard(tmp_path, free=100, room={"hook": ["/nowhere/at/all"]})
    with yard.site:
        assert yard.look(yard.job(700)).state == "Provisioning"
        assert "cannot be run: No such file" in caplog.text
