"""Fetches the files of a job into the folder of this attempt, from servers or from uploads, and compares each with what
was promised.

    FileFetcher(ctx, into, ...).fetch_rows(rows)  ->  the fetched files by name, and why the others were not fetched

Files that earlier attempts have finished are reused: a note beside them (`fetched.jsonl`) holds the URL and the digest
of each, and a file counts only if it still has that digest. Unfinished downloads are resumed by `transfer`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from waybill.apps.ingest import payload
from waybill.apps.ingest.formats.checkm import ManifestRow
from waybill.apps.ingest.payload import Payload
from waybill.digests import Digests
from waybill.files import names
from waybill.step import StepContext
from waybill.transfer import DownloadProgress, DownloadRequest, DownloadResult
from waybill.transfer.partial_file import PARTIAL_FOLDER

NOTES_FILE = "fetched.jsonl"
MIN_NOTED_BYTES = 2**20  # bytes: fetching a smaller file again is cheaper than noting it
_CHUNK = 2**20


class FetchedFileNote(msgspec.Struct, frozen=True):
    """A file that was fetched completely, in the attempt whose folder holds this note."""

    name: str
    url: str
    size: int
    sha256: str


class FetchedFile(msgspec.Struct, frozen=True):
    size: int
    sha256: str


class FetchResult(msgspec.Struct):
    """The fetched files by name, and the failures; no more than a manifest lists."""

    files: dict[str, FetchedFile] = {}
    failures: list[DownloadResult] = []

    @property
    def reasons(self) -> list[str]:
        return [f"{names.quote_text(each.name)}: {each.reason}" for each in self.failures]


_encode = msgspec.json.Encoder().encode
_decode_note = msgspec.json.Decoder(FetchedFileNote).decode


class FileFetcher:
    """`note_all`: all files are noted, not only large ones. `is_full`: whether to stop writing. `on_bytes` gets the number
    of bytes fetched so far. `accept_size` is asked before a file is fetched, with its name and size.
    """

    def __init__(
        self,
        ctx: StepContext,
        into: Path,
        *,
        note_all: bool,
        is_full: Callable[[], bool],
        on_bytes: Callable[[int], None],
        accept_size: Callable[[str, int], bool] = lambda name, size: True,
    ) -> None:
        self._ctx, self._into, self._note_all, self._is_full, self._on_bytes, self._accept_size = (
            ctx,
            into,
            note_all,
            is_full,
            on_bytes,
            accept_size,
        )
        self._earlier = [folder for folder in ctx.list_earlier_folders() if int(folder.name) < ctx.claim_version]
        self._notes = {
            note.name: (note, folder) for folder in reversed(self._earlier) for note in _read_notes(folder / NOTES_FILE)
        }
        self._file: BinaryIO | None = None
        self._bytes_done = 0
        self._result = FetchResult()

    def fetch_rows(self, rows: Iterable[ManifestRow], promised: Payload | None = None) -> FetchResult:
        """`promised`: the payload, if it is the only row, with everything that was promised of it."""
        urls: dict[str, str] = {}

        def list_fetches() -> Iterator[DownloadRequest]:
            for row in rows:
                self._ctx.check()
                if self._reuse_earlier(row):
                    continue
                if payload.is_upload(row.url) and promised is not None:
                    size, sha256 = payload.copy_upload(self._ctx, promised, self._into / row.name, self._count_bytes)
                    self._add_fetched(DownloadResult(row.name, True, size, sha256), row.url)
                else:
                    urls[row.name] = row.url
                    digests = promised.digests if promised is not None else row.digests
                    yield DownloadRequest(row.url, row.name, size=row.size, digests=digests)

        try:
            earlier = [folder / self._into.name for folder in self._earlier]
            for fetched in payload.fetch_files(
                self._ctx,
                list_fetches(),
                self._into,
                earlier=earlier,
                is_full=self._is_full,
                progress=self._report_progress,
                accept_size=self._accept_size,
            ):
                self._add_fetched(fetched, urls.pop(fetched.name, ""))
        finally:
            if self._file is not None:
                self._file.close()
        self._ctx.check()
        unfinished = self._into / PARTIAL_FOLDER
        if not self._result.failures and unfinished.exists():
            shutil.rmtree(unfinished)
        return self._result

    def _report_progress(self, progress: DownloadProgress) -> None:
        self._on_bytes(self._bytes_done + progress.bytes)

    def _count_bytes(self, count: int) -> None:
        self._bytes_done += count
        self._on_bytes(self._bytes_done)

    def _add_fetched(self, fetched: DownloadResult, url: str) -> None:
        if not fetched.ok:
            self._result.failures.append(fetched)
            return
        self._result.files[fetched.name] = FetchedFile(fetched.size, fetched.sha256)
        if self._note_all or fetched.size >= MIN_NOTED_BYTES:
            self._write_note(FetchedFileNote(fetched.name, url, fetched.size, fetched.sha256))

    def _write_note(self, note: FetchedFileNote) -> None:
        # In the folder of this attempt: a second run reads it, and writes its own.
        if self._file is None:
            self._file = open(self._ctx.workdir / NOTES_FILE, "ab", buffering=0)  # noqa: SIM115 - closed at the end of fetch_rows
        self._file.write(_encode(note) + b"\n")

    def _reuse_earlier(self, row: ManifestRow) -> bool:
        """Reuse the file of an earlier attempt, if it still has the digest that was compared; whether that was done."""
        note, folder = self._notes.get(row.name, (None, None))
        if note is None or folder is None or note.url != row.url or row.size not in (None, note.size):
            return False
        target = self._into / row.name
        if not _link_file(folder / self._into.name / row.name, target):
            return False
        digests = Digests(row.digests)
        with open(target, "rb") as file:
            while chunk := file.read(_CHUNK):
                self._ctx.check()
                digests.update(chunk)
        if digests.find_mismatch(note.size, {"sha256": note.sha256, **row.digests}):
            target.unlink()
            return False
        self._result.files[row.name] = FetchedFile(note.size, note.sha256)
        self._accept_size(note.name, note.size)  # it counts towards what the job needs
        self._write_note(note)
        self._count_bytes(note.size)
        return True


def count_finished_bytes(ctx: StepContext) -> int:
    """The bytes of files that earlier attempts have finished, and that are not fetched again."""
    notes = {
        note.name: note.size
        for folder in ctx.list_earlier_folders()
        if int(folder.name) < ctx.claim_version
        for note in _read_notes(folder / NOTES_FILE)
    }
    return sum(notes.values())


def _read_notes(path: Path) -> Iterator[FetchedFileNote]:
    try:
        with open(path, "rb") as file:
            for line in file:
                try:
                    yield _decode_note(line)
                except msgspec.DecodeError:
                    return  # the writer was killed while writing it
    except FileNotFoundError:
        return


def _link_file(source: Path, target: Path) -> bool:
    if source.is_symlink() or not source.is_file():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without links
        shutil.copyfile(source, target, follow_symlinks=False)
    return True
