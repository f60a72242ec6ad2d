"""Gathering: the files of a job into a folder of this attempt, from servers or from uploads, each compared with what
was promised.

    gather(ctx, rows, into, ...)  ->  what came, by name, and why the rest did not

What earlier attempts have finished is taken over: a note beside them (`fetched.jsonl`) says of which URL each is and
what its digest was, and it counts only if it still has that digest. What they have begun is resumed by `transfer`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from waybill.apps.ingest import names
from waybill.apps.ingest.checkm import Row
from waybill.apps.ingest.steps import payload
from waybill.apps.ingest.steps.payload import Payload
from waybill.digests import Digests
from waybill.step import Context
from waybill.transfer import Fetch, Fetched, Progress

NOTES = "fetched.jsonl"
WORTH_A_NOTE = 2**20  # bytes: a smaller file is fetched again sooner than it is noted
_PORTION = 2**20


class Note(msgspec.Struct, frozen=True):
    """A file that has come whole, in the attempt beside whose folder this lies."""

    name: str
    url: str
    size: int
    sha256: str


class Came(msgspec.Struct, frozen=True):
    size: int
    sha256: str


class Gathered(msgspec.Struct):
    """By name; no more than a manifest lists."""

    came: dict[str, Came] = {}
    failed: list[Fetched] = []

    @property
    def reasons(self) -> list[str]:
        return [f"{names.shown(each.name)}: {each.reason}" for each in self.failed]


_encode = msgspec.json.Encoder().encode
_note = msgspec.json.Decoder(Note).decode


class Gathering:
    """`many`: notes are taken of all files, not only of large ones. `full`: no more may be written; `told` of bytes
    that have come; `offered`: asked before a file is taken, with its name and size.
    """

    def __init__(
        self,
        ctx: Context,
        into: Path,
        *,
        many: bool,
        full: Callable[[], bool],
        told: Callable[[int], None],
        offered: Callable[[str, int], bool] = lambda name, size: True,
    ) -> None:
        self._ctx, self._into, self._many, self._full, self._told, self._offered = ctx, into, many, full, told, offered
        self._earlier = [folder for folder in ctx.earlier() if int(folder.name) < ctx.attempt]
        self._notes = {
            note.name: (note, folder) for folder in reversed(self._earlier) for note in _notes(folder / NOTES)
        }
        self._file: BinaryIO | None = None
        self._taken = 0
        self._gathered = Gathered()

    def run(self, rows: Iterable[Row], promised: Payload | None = None) -> Gathered:
        """`promised`: of a payload that is the only row, everything that was promised of it."""
        urls: dict[str, str] = {}

        def wanted() -> Iterator[Fetch]:
            for row in rows:
                self._ctx.check()
                if self._take_over(row):
                    continue
                if payload.is_upload(row.url) and promised is not None:
                    size, sha256 = payload.take_upload(self._ctx, promised, self._into / row.name, self._tell)
                    self._take(Fetched(row.name, True, size, sha256), row.url)
                else:
                    urls[row.name] = row.url
                    digests = promised.digests if promised is not None else row.digests
                    yield Fetch(row.url, row.name, size=row.size, digests=digests)

        try:
            earlier = [folder / self._into.name for folder in self._earlier]
            for fetched in payload.fetch(
                self._ctx,
                wanted(),
                self._into,
                earlier=earlier,
                full=self._full,
                progress=self._progress,
                offered=self._offered,
            ):
                self._take(fetched, urls.pop(fetched.name, ""))
        finally:
            if self._file is not None:
                self._file.close()
        self._ctx.check()
        unfinished = self._into / names.UNFINISHED
        if not self._gathered.failed and unfinished.exists():
            shutil.rmtree(unfinished)
        return self._gathered

    def _progress(self, progress: Progress) -> None:
        self._told(self._taken + progress.bytes)

    def _tell(self, count: int) -> None:
        self._taken += count
        self._told(self._taken)

    def _take(self, fetched: Fetched, url: str) -> None:
        if not fetched.ok:
            self._gathered.failed.append(fetched)
            return
        self._gathered.came[fetched.name] = Came(fetched.size, fetched.sha256)
        if self._many or fetched.size >= WORTH_A_NOTE:
            self._write(Note(fetched.name, url, fetched.size, fetched.sha256))

    def _write(self, note: Note) -> None:
        # In the attempt's own folder: a second run reads it, and writes another.
        if self._file is None:
            self._file = open(self._ctx.workdir / NOTES, "ab", buffering=0)  # noqa: SIM115 - closed at the end of `run`
        self._file.write(_encode(note) + b"\n")

    def _take_over(self, row: Row) -> bool:
        """Whether an earlier attempt has the file, and it still is what it was when it was compared with what was
        promised.
        """
        note, folder = self._notes.get(row.name, (None, None))
        if note is None or folder is None or note.url != row.url or row.size not in (None, note.size):
            return False
        target = self._into / row.name
        if not _linked(folder / self._into.name / row.name, target):
            return False
        digests = Digests(row.digests)
        with open(target, "rb") as file:
            while portion := file.read(_PORTION):
                self._ctx.check()
                digests.update(portion)
        if digests.fault(note.size, {"sha256": note.sha256, **row.digests}):
            target.unlink()
            return False
        self._gathered.came[row.name] = Came(note.size, note.sha256)
        self._offered(note.name, note.size)  # it is among all that the job needs
        self._write(note)
        self._tell(note.size)
        return True


def finished(ctx: Context) -> int:
    """How many bytes earlier attempts have, which will not be fetched again."""
    notes = {
        note.name: note.size
        for folder in ctx.earlier()
        if int(folder.name) < ctx.attempt
        for note in _notes(folder / NOTES)
    }
    return sum(notes.values())


def _notes(path: Path) -> Iterator[Note]:
    try:
        with open(path, "rb") as file:
            for line in file:
                try:
                    yield _note(line)
                except msgspec.DecodeError:
                    return  # its writer was killed in the middle of it
    except FileNotFoundError:
        return


def _linked(source: Path, target: Path) -> bool:
    if source.is_symlink() or not source.is_file():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a disk without links
        shutil.copyfile(source, target, follow_symlinks=False)
    return True
