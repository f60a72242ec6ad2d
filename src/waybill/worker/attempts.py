"""Notes about attempts that failed, for whoever has to find out why: the traceback, and the last lines that the step logged.

    a step raises -> its outcome is sent -> waybill/attempts/<kind>/<id>/<claim version>.json is written -> the page of the record shows it

A note is not part of the record: it is written after the outcome, nothing depends on it, and a crash in between loses it. The newest
MAX_KEPT of a record are kept; the routine `attempt-notes` removes those of removed records, and all after a month.
"""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from waybill.objects import ObjectNotFound, Objects, ObjectsError
from waybill.record import Ref
from waybill.rules import clip, describe_error
from waybill.step import Fail

FOLDER = "waybill/attempts"
MAX_KEPT = 5  # notes of a record
MAX_LINES = 100  # that a step logged, the last ones
MAX_LINE = 500  # characters
MAX_TRACEBACK = 20_000  # characters, the last ones: there the error was raised
MAX_NAME = 600  # bytes of a quoted id: the names of objects are limited
log = logging.getLogger("waybill.worker")


class AttemptNote(msgspec.Struct, frozen=True):
    """A step that failed."""

    state: str
    claim_version: int
    worker: str
    began: float
    ended: float
    error: str
    traceback: str = ""  # "": the step said by itself that it cannot be done
    lines: tuple[str, ...] = ()


class StepLog(logging.LoggerAdapter[logging.Logger]):
    """The log of a step, which remembers its last lines."""

    def __init__(self, logger: logging.Logger, extra: dict[str, Any]) -> None:
        super().__init__(logger, extra)
        self.lines: deque[str] = deque(maxlen=MAX_LINES)

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        if level >= logging.INFO:
            text = str(msg) % args if args else str(msg)
            self.lines.append(f"{logging.getLevelName(level).lower()} {text}"[:MAX_LINE])
        super().log(level, msg, *args, **options)


def make_note(
    state: str, claim_version: int, worker: str, began: float, ended: float, error: Exception, lines: Iterator[str]
) -> AttemptNote:
    shown = "" if isinstance(error, Fail) else "".join(traceback.format_exception(error))[-MAX_TRACEBACK:]
    return AttemptNote(
        state,
        claim_version,
        worker,
        began,
        ended,
        clip(f"{type(error).__name__}: {describe_error(error)}"),
        shown,
        tuple(lines),
    )


def write_note(objects: Objects | None, ref: Ref, note: AttemptNote) -> None:
    """Keep a note. Safe to repeat: a claim has one name. Where it cannot be written the step's outcome is not touched."""
    folder = _folder_of(ref)
    if objects is None or len(folder.encode()) > MAX_NAME:  # tests of workers have no objects
        return
    try:
        objects.put(f"{folder}/{note.claim_version:015d}.json", msgspec.json.encode(note))
        for info in sorted(objects.list(folder), key=lambda each: each.name)[:-MAX_KEPT]:
            objects.delete(info.name)
    except ObjectsError as error:
        log.warning("the note about a failed attempt of %s cannot be written: %s", ref, error)


def read_notes(objects: Objects, ref: Ref) -> list[AttemptNote]:
    """The notes of a record, the newest first."""
    notes: list[AttemptNote] = []
    for info in objects.list(_folder_of(ref), limit=2 * MAX_KEPT):
        try:
            with objects.get(info.name) as body:
                notes.append(msgspec.json.decode(body.read(), type=AttemptNote))
        except ObjectNotFound:
            continue  # removed meanwhile
    return sorted(notes, key=lambda note: -note.claim_version)


def owner_of(name: str) -> Ref | None:
    """The record that a note of this name is of; None for a name that is no note's."""
    kind, _, rest = name.removeprefix(f"{FOLDER}/").partition("/")
    id, _, _ = rest.partition("/")
    return Ref(unquote(kind), unquote(id)) if id else None


def _folder_of(ref: Ref) -> str:
    return f"{FOLDER}/{_quote(ref.kind)}/{_quote(ref.id)}"


def _quote(text: str) -> str:
    """As one segment of a name: also `.` and `..`, which are no segments."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if not quoted.strip(".") else quoted
