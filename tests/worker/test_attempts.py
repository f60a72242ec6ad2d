"""Notes about failed attempts: written for what fails, the newest kept, removed with their records."""

from __future__ import annotations

import logging
from pathlib import Path

from waybill.objects import DirectoryObjects
from waybill.record import Ref
from waybill.step import Fail
from waybill.worker.attempts import MAX_KEPT, MAX_LINES, StepLog, make_note, owner_of, read_notes, write_note


def make_one(version: int, error: Exception) -> None:
    raise error


def test_the_newest_notes_of_a_record_are_kept_with_the_last_lines_and_the_traceback(tmp_path: Path) -> None:
    objects, ref = DirectoryObjects(tmp_path / "objects"), Ref("parcel", "a/b..c é")
    step_log = StepLog(logging.getLogger("tests"), {})
    for n in range(MAX_LINES + 5):
        step_log.info("line %d", n)
    step_log.debug("not for notes")
    for version in range(MAX_KEPT + 3):
        try:
            make_one(version, ConnectionError("the carrier does not answer"))
        except ConnectionError as error:
            write_note(objects, ref, make_note("Sending", version, "w", 1.0, 2.0, error, iter(step_log.lines)))
    notes = read_notes(objects, ref)
    assert [note.claim_version for note in notes] == list(range(MAX_KEPT + 2, 2, -1))
    assert "in make_one" in notes[0].traceback
    assert notes[0].error == "ConnectionError: the carrier does not answer"
    assert (len(notes[0].lines), notes[0].lines[-1]) == (MAX_LINES, f"info line {MAX_LINES + 4}")
    assert all(owner_of(info.name) == ref for info in objects.list())
    note = make_note("Sending", 99, "w", 1.0, 2.0, Fail("There is no such house."), iter(()))
    assert (note.traceback, note.error) == ("", "Fail: There is no such house.")
