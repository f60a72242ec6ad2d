"""Several worker processes: one command starts, watches and stops them, and none outlives it."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Running, Start, Waybill, submit_shipment
from tests.servers.process import wait_until

QUEUES = ("--queue", "shipment", "--queue", "parcel")


def sessions(waybill: Waybill) -> list[Any]:
    return list(waybill("sessions", "--json").json["sessions"])


def workers(waybill: Waybill) -> list[Any]:
    """The sessions of those who work: whoever starts opens another for a moment, to see whether it may, and that one
    has no queues.
    """
    return [session for session in sessions(waybill) if "queues" in session["about"]]


def count_processes(waybill: Waybill) -> int:
    """Each process has a session for each of its pools."""
    return len({session["about"]["pid"] for session in workers(waybill)})


def children(running: Running) -> list[int]:
    found = []
    for task in Path(f"/proc/{running.process.pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended since it was listed
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_each_has_its_session_and_all_stop_together(running: Start, waybill: Waybill) -> None:
    work = running("work", "--processes", 3, "--threads", 2, *QUEUES)
    wait_until(lambda: len(workers(waybill)) == 6, "a session for each pool of three processes", seconds=120)
    assert sorted(session["about"]["queues"] for session in workers(waybill)) == [
        *[["shipment.Sorting", "parcel.Packing", "parcel.Sending"]] * 3,
        *[["shipment.Travelling"]] * 3,
    ]
    others = children(work)
    assert len(others) == 2
    for _ in range(3):
        submit_shipment(waybill, 4)
    assert running("watch", "shipment", "--until-settled", "--json").end().code == 0
    ended = work.end(signal.SIGTERM)
    assert ended.code == 0, ended.err
    assert sessions(waybill) == []
    assert not any(is_there(pid) for pid in others)


def test_they_end_with_a_parent_that_is_killed(running: Start, waybill: Waybill) -> None:
    work = running("work", "--processes", 2)
    wait_until(lambda: count_processes(waybill) == 2, "two processes", seconds=120)
    (other,) = children(work)
    assert work.end(signal.SIGKILL).code == -signal.SIGKILL
    wait_until(lambda: not is_there(other), "the other to end", seconds=120)


def test_one_that_dies_is_started_again(running: Start, waybill: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYBILL_WORK_TTL", "2")  # what it held when it died comes free soon
    work = running("work", "--processes", 2, *QUEUES)
    wait_until(lambda: count_processes(waybill) == 2, "two processes", seconds=120)
    (other,) = children(work)
    os.kill(other, signal.SIGKILL)
    wait_until(lambda: other not in children(work) and len(children(work)) == 1, "another process", seconds=120)
    submit_shipment(waybill, 2)
    assert running("watch", "shipment", "--until-settled", "--json").end().code == 0
    ended = work.end(signal.SIGTERM)
    assert ended.code == 0
    assert f"worker process {other} exited with code -9: another is started in 5 s" in ended.err


def test_the_store_is_not_shown_to_others(running: Start, waybill: Waybill, data: Path) -> None:
    work = running("work", "--processes", 2, "--store", f"sqlite:///{data.absolute()}/waybill.db")
    wait_until(lambda: count_processes(waybill) == 2, "two processes", seconds=120)
    (other,) = children(work)
    assert "waybill.db" not in Path(f"/proc/{other}/cmdline").read_text()
    assert work.end(signal.SIGTERM).code == 0


SLOW = """
import pathlib, time
from waybill.application import Application
from waybill.machine import Machine, end, work
from waybill.step import Done

def sleeping(record, ctx):
    (pathlib.Path({folder!r}) / f"asleep-{{record.id}}").touch()
    while not (pathlib.Path({folder!r}) / "go").exists():
        time.sleep(0.01)
    return Done()

RUN = Machine(name="run", plural="runs", prefix="run", description="A run.",
              steps=__name__,
              states=(work("Sleeping", to="Over", description="Sleeps.", on_fail=None), end("Over", description="Over.")))
APP = Application("slow", "Takes its time.", (RUN,))
"""


def test_a_supervisor_that_tells_all_of_them_does_not_hurry_them(
    running: Start, bare: Waybill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As systemd does: each has its signal, and then one more from the first of them, which must not mean: at once."""
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "slow:APP")
    assert bare("migrate").code == 0
    monkeypatch.setenv("WAYBILL_LOG_LEVEL", "info")
    work = running("work", "--processes", 2, "--threads", 1)
    for _ in range(2):
        bare("submit", "run")
    wait_until(lambda: len(list(tmp_path.glob("asleep-*"))) == 2, "both to be at work", seconds=120)
    (other,) = children(work)
    os.kill(other, signal.SIGTERM)
    work.process.send_signal(signal.SIGTERM)
    log_text = ""
    assert work.process.stderr is not None
    while log_text.count("stopping") < 3 or "stopping the other worker processes" not in log_text:
        line = work.process.stderr.readline()
        assert line, f"it ended, and logged only: {log_text}"
        log_text += line
    (tmp_path / "go").touch()
    assert work.end().code == 0
    assert sessions(bare) == [], "both have left in order"
    assert {row["state"] for row in bare("ls", "run", "--json").json["records"]} == {"Over"}
