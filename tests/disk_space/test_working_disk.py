"""The working disk: records wait for space in order, stale reservations go, the hook runs, administrators get mail."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.disk_space.disk_fixture import DiskFixture
from tests.disk_space.fake_disk import FakeDisk
from waybill.disk_space import NeverFits, SpaceReservation, space_hook
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def test_a_record_gets_what_it_asks_for(tmp_path: Path) -> None:
    fixture = DiskFixture(tmp_path, free=1000)
    record = fixture.step(fixture.add(600))
    assert record.state == "Filling"
    assert fixture.list_reservations() == [SpaceReservation(f"crate {record.id}", granted=600)]


def test_a_record_waits_for_what_others_have_and_says_so(tmp_path: Path) -> None:
    fixture = DiskFixture(tmp_path, free=1000)
    first, second = fixture.add(600), fixture.add(600)
    fixture.step(first)
    waits = fixture.step(second)
    assert (waits.state, waits.blocked_by, waits.error_count) == ("Waiting", "wait", 0)
    assert waits.message == "It waits for disk space: it needs 600 bytes, and 400 are free for it."
    assert waits.documents["disk_space"]["message"] == waits.message
    fixture.fill = lambda ctx: fixture.working_disk.release(ctx) or Done()  # type: ignore[func-returns-value]
    fixture.step(first)
    assert fixture.step(second).state == "Filling"
    assert "disk_space" not in fixture.store.get(*second.ref).documents


def test_a_wait_writes_its_document_once(tmp_path: Path) -> None:
    fixture = DiskFixture(tmp_path, free=100)
    record = fixture.add(600)
    written: list[bool] = []
    reserve = fixture.working_disk.reserve

    def watch(ctx: StepContext, need: int | None) -> Any:
        wait = reserve(ctx, need)
        written.append(bool(wait.documents))  # type: ignore[union-attr]
        return wait

    fixture.working_disk.reserve = watch  # type: ignore[method-assign,assignment]
    for _ in range(3):
        fixture.step(record)
    assert written == [True, False, False]
    assert len(list(fixture.store.history(*record.ref))) == 1  # its creation


@pytest.mark.parametrize("case", ["given up", "removed", "another host", "another state"])
def test_a_reservation_that_nobody_needs_goes_to_those_that_wait(tmp_path: Path, case: str) -> None:
    fixture = DiskFixture(tmp_path, free=1000)
    first, second = fixture.add(600), fixture.add(600)
    assert fixture.step(first).state == "Filling"
    if case == "given up":
        fixture.engine.act(first.ref, "drop")
    elif case == "removed":
        fixture.engine.act(first.ref, "drop")
        fixture.engine.remove(first.ref)
    elif case == "another host":
        fixture.set_host("h2")
    else:
        fixture.step(first)
    assert fixture.step(second).state == "Filling"
    assert [entry.id for entry in fixture.list_reservations()] == [str(second.ref)]


def test_the_reservation_of_a_kind_that_is_not_loaded_stays(tmp_path: Path) -> None:
    fixture = DiskFixture(tmp_path, free=1000)
    fixture.working_disk.reservations.reserve("voyage 1", 900, 0.0)
    assert fixture.step(fixture.add(600)).state == "Waiting"
    assert "voyage 1" in [entry.id for entry in fixture.list_reservations()]


def test_a_record_that_has_waited_long_gets_the_next_space(tmp_path: Path) -> None:
    fixture = DiskFixture(tmp_path, free=500, patience=0.0)
    large, small = fixture.add(900), fixture.add(100)
    fixture.step(large)
    assert fixture.step(small).state == "Waiting"
    fixture.disk.free = 950
    assert fixture.step(small).state == "Waiting"
    assert fixture.step(large).state == "Filling"


# --- alerts


def test_the_administrators_get_one_mail_about_a_record_that_waits_very_long(tmp_path: Path) -> None:
    fixture = DiskFixture(tmp_path, free=100, alert_after=0.0)
    record = fixture.add(600)
    for _ in range(3):
        waits = fixture.step(record)
        assert (waits.state, waits.documents["disk_space"]["late"]) == ("Waiting", True)
    (mail,) = fixture.list_mail()
    assert mail["subject"] == f"Crate {record.id} has waited 0 hours for space on the working disk of h1"
    assert "It waits for disk space: it needs 600 bytes, and 100 are free for it." in mail["text"]
    fixture.disk.free = 1000
    assert "disk_space" not in fixture.step(record).documents


def test_a_record_that_can_never_fit_waits_and_the_administrators_get_one_mail(tmp_path: Path) -> None:
    fixture = DiskFixture(tmp_path, free=5000)
    record = fixture.add(20_000)
    for _ in range(3):
        assert fixture.step(record).message.startswith("It can never fit: it needs 20,000 bytes")
    (mail,) = fixture.list_mail()
    assert (mail["to"], mail["subject"]) == (
        ["ops@example.org"],
        f"Crate {record.id} can never fit on the working disk of h1",
    )
    fixture.disk.total = fixture.disk.free = 30_000
    assert fixture.step(record).state == "Filling"


# --- too little space while files are written


def start_filling(fixture: DiskFixture, need: int | None) -> Record:
    record = fixture.step(fixture.add(need))
    assert record.state == "Filling"
    return record


def write_files(
    fixture: DiskFixture, need: int | None, written: int, *, announced: int = 0, sizes: tuple[int | None, ...] = (None,)
) -> Callable[[StepContext], Outcome]:
    """A step that writes a file of `written` bytes as far as it may, and then waits if it must."""

    def fill(ctx: StepContext) -> Outcome:
        meter = fixture.working_disk.start_meter(ctx, need)
        if not announced or meter.accept_size("file", announced):
            (ctx.workdir / "file").write_bytes(bytes(written))
            meter.report_bytes(written)
        return fixture.working_disk.wait_if_short(ctx, meter, need, sizes, lambda more: ()) or Done()

    return fill


def test_a_step_that_had_space_is_done(tmp_path: Path) -> None:
    fixture = DiskFixture(tmp_path, free=1000)
    record = start_filling(fixture, 600)
    fixture.fill = write_files(fixture, 600, 600, announced=600)
    assert fixture.step(record).state == "Shipping"


def test_a_disk_that_others_fill_is_waited_for_with_what_was_written(tmp_path: Path) -> None:
    fixture = DiskFixture(tmp_path, free=1000)
    record = start_filling(fixture, 600)
    fixture.disk.free = 0
    fixture.fill = write_files(fixture, 600, 500)
    waits = fixture.step(record)
    assert waits.message == "It waits for disk space: the working disk is full."
    assert len(list((fixture.root / "crate" / record.id).glob("*/file"))) == 1
    assert fixture.list_reservations()[0].requested == 600


def test_what_is_announced_beyond_the_reservation_is_waited_for_before_it_is_written(tmp_path: Path) -> None:
    fixture = DiskFixture(tmp_path, free=1000)
    record = start_filling(fixture, 600)
    fixture.fill = write_files(fixture, 600, 1500, announced=1500)
    waits = fixture.step(record)
    assert waits.message.startswith("It waits for disk space: the servers offer 1,500 bytes, more than was estimated")
    assert list((fixture.root / "crate" / record.id).glob("*/file")) == []
    assert fixture.list_reservations()[0].requested == 1500
    fixture.disk.free = 2000
    assert fixture.step(record).state == "Shipping"


def test_what_outgrows_its_reservation_is_removed_and_waits_for_twice_as_much(tmp_path: Path) -> None:
    fixture = DiskFixture(tmp_path, free=1000)
    record = start_filling(fixture, 600)
    fixture.disk.free = 0
    fixture.fill = write_files(fixture, 600, 900)
    waits = fixture.step(record)
    assert waits.message == (
        "It needs more space than reserved: 900 bytes were fetched, and the working disk is full. "
        "It waits for 1,800 to be free."
    )
    assert list((fixture.root / "crate" / record.id).glob("*/file")) == []
    (entry,) = fixture.list_reservations()
    assert (entry.requested, entry.exceeds_estimate, entry.granted) == (1800, True, 0)


@pytest.mark.parametrize(("written", "announced"), [(0, 20_000), (9000, 0)])
def test_what_can_never_fit_fails_with_advice(tmp_path: Path, written: int, announced: int) -> None:
    fixture = DiskFixture(tmp_path, free=1000)
    record = start_filling(fixture, 600)
    fixture.disk.free = 0
    raised: list[NeverFits] = []
    fill = write_files(fixture, 600, written, announced=announced)

    def watch(ctx: StepContext) -> Outcome:
        try:
            return fill(ctx)
        except NeverFits as error:
            raised.append(error)
            raise

    fixture.fill = watch
    failed = fixture.step(record)
    assert failed.state == "Failed"
    assert failed.message.startswith("It can never fit: ")
    assert failed.message == f"{raised[0].reason} Give it a larger disk, then resume."
    assert len(fixture.list_mail()) == 1


# --- the hook

SCRIPT = """
import os, pathlib, sys
path = pathlib.Path(sys.argv[1])
needed, record = os.environ["WAYBILL_DISK_SPACE_NEEDED"], os.environ["WAYBILL_DISK_SPACE_RECORD"]
path.write_text(path.read_text() + f"{needed} {record} {'WAYBILL_SECRET' in os.environ}\\n")
print("made some room")
print("and more")
"""


def make_hooked(folder: Path, script: str) -> tuple[DiskFixture, Path]:
    notes = folder / "notes"
    notes.write_text("")
    return DiskFixture(folder, free=100, hook=(sys.executable, "-c", script, str(notes))), notes


def test_a_hook_gets_the_missing_bytes_and_runs_again_only_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WAYBILL_SECRET", "x")
    fixture, notes = make_hooked(tmp_path, SCRIPT)
    with caplog.at_level("INFO"):
        record = fixture.add(700)
        assert fixture.step(record).state == "Waiting"
        assert notes.read_text() == f"600 crate {record.id} False\n"
        assert "exited with 0: made some room" in caplog.text
        assert "and more" not in caplog.text
        fixture.step(record)
        assert len(notes.read_text().splitlines()) == 1


def test_what_the_hook_frees_is_taken_at_once(tmp_path: Path) -> None:
    fixture, notes = make_hooked(tmp_path, SCRIPT)

    class Growing(FakeDisk):
        def __call__(self, root: Path) -> Any:
            self.free = 1000 if notes.read_text() else 100
            return super().__call__(root)

    fixture.disk.__class__ = Growing
    assert fixture.step(fixture.add(700)).state == "Filling"


@pytest.mark.parametrize(
    ("script", "logged"),
    [
        ("raise SystemExit(3)", "exited with 3"),
        ("import time; print('here', flush=True); time.sleep(600)", "was killed: here"),
        (
            "import subprocess, sys; print('gone', flush=True); subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])",
            "exited with 0: gone",
        ),
        ("while True: print('x' * 1000, flush=True)", "was killed: xxx"),
    ],
)
def test_a_hook_that_misbehaves_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, script: str, logged: str
) -> None:
    """The time of one that is killed is over when it has printed something."""
    reads: list[bytes] = []

    def read(fd: int, size: int) -> bytes:
        reads.append(os.read(fd, size))
        return reads[-1]

    over = "was killed" in logged
    passed = lambda: space_hook.HOOK_TIMEOUT if over and reads else 0.0  # noqa: E731
    monkeypatch.setattr(space_hook, "time", SimpleNamespace(monotonic=passed))
    monkeypatch.setattr(space_hook, "os", SimpleNamespace(read=read, killpg=os.killpg, environ=os.environ))
    fixture, _ = make_hooked(tmp_path, script)
    with caplog.at_level("INFO"):
        assert fixture.step(fixture.add(700)).state == "Waiting"
        assert logged in caplog.text


def test_a_missing_hook_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fixture = DiskFixture(tmp_path, free=100, hook=("/nowhere/at/all",))
    assert fixture.step(fixture.add(700)).state == "Waiting"
    assert "cannot be run: No such file" in caplog.text
