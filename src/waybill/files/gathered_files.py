"""Gathers many files into the folder of this attempt, several at a time, and compares each with what was promised.

    FileGatherer(ctx, into, download, meter).gather(requests)  ->  the files by name, and why the others did not come

A file is downloaded, or copied by a function that the application gives. Files that earlier attempts have finished are
reused: a note beside them (`gathered.jsonl`) holds the URL and the digest of each, and a file counts only if it still has
that digest. Unfinished downloads are resumed by `transfer`. What is written is counted by a `SpaceMeter`, which stops
everything when the disk has no more space.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from waybill.digests import Digests, normalize_digests
from waybill.disk_space import SpaceMeter
from waybill.files.folders import list_earlier_attempts
from waybill.files.names import quote_text
from waybill.step import StepContext
from waybill.transfer import DownloadProgress, DownloadRequest, DownloadResult
from waybill.transfer.partial_file import PARTIAL_FOLDER

NOTES_FILE = "gathered.jsonl"
MIN_NOTED_BYTES = 2**20  # bytes: fetching a smaller file again is cheaper than noting it
_CHUNK = 2**20


class Download(Protocol):
    """`waybill.transfer.download` with the limits of an application."""

    def __call__(
        self,
        requests: Iterable[DownloadRequest],
        folder: Path,
        /,
        *,
        earlier_folders: Sequence[Path],
        stop: Callable[[], bool],
        progress: Callable[[DownloadProgress], None],
        accept_size: Callable[[str, int], bool],
    ) -> Iterator[DownloadResult]: ...


# Copies a file to a path, reports the bytes of each chunk, and returns size and SHA-256; None: it must be downloaded.
FileCopier = Callable[[DownloadRequest, Path, Callable[[int], None]], tuple[int, str] | None]


class GatheredFileNote(msgspec.Struct, frozen=True):
    """A file that is complete, in the attempt whose folder holds this note."""

    name: str
    url: str
    size: int
    sha256: str


class GatheredFile(msgspec.Struct, frozen=True):
    size: int
    sha256: str


class GatheredFiles(msgspec.Struct):
    """The files by name, and the failures; no more than were requested."""

    files: dict[str, GatheredFile] = {}
    failures: list[DownloadResult] = []

    @property
    def reasons(self) -> list[str]:
        return [f"{quote_text(each.name)}: {each.reason}" for each in self.failures]


_encode = msgspec.json.Encoder().encode
_decode_note = msgspec.json.Decoder(GatheredFileNote).decode


class FileGatherer:
    """`note_all`: all files are noted, not only large ones."""

    def __init__(
        self, ctx: StepContext, into: Path, download: Download, meter: SpaceMeter, *, note_all: bool = False
    ) -> None:
        self._ctx, self._into, self._download, self._meter, self._note_all = ctx, into, download, meter, note_all
        self._earlier = list_earlier_attempts(ctx)
        self._notes = {
            note.name: (note, folder) for folder in reversed(self._earlier) for note in _read_notes(folder / NOTES_FILE)
        }
        self._notes_file: BinaryIO | None = None
        self._bytes_done = 0
        self._result = GatheredFiles()

    def gather(
        self, requests: Iterable[DownloadRequest], copy: FileCopier = lambda request, path, on_bytes: None
    ) -> GatheredFiles:
        """Safe to repeat: each attempt has a folder of its own, and begins with what earlier ones have finished."""
        urls: dict[str, str] = {}

        def list_downloads() -> Iterator[DownloadRequest]:
            for request in requests:
                self._ctx.check()
                if self._reuse_earlier(request):
                    continue
                copied = copy(request, self._into / request.name, self._count_bytes)
                if copied is not None:
                    self._add_result(DownloadResult(request.name, True, *copied), request.url)
                else:
                    urls[request.name] = request.url
                    yield request

        try:
            for result in self._download(
                list_downloads(),
                self._into,
                earlier_folders=[folder / self._into.name for folder in self._earlier],
                stop=lambda: self._ctx.stop or self._meter.must_stop,
                progress=lambda progress: self._meter.report_bytes(self._bytes_done + progress.bytes),
                accept_size=self._meter.accept_size,
            ):
                self._add_result(result, urls.pop(result.name, ""))
        finally:
            if self._notes_file is not None:
                self._notes_file.close()
        self._ctx.check()
        unfinished = self._into / PARTIAL_FOLDER
        if not self._result.failures and unfinished.exists():
            shutil.rmtree(unfinished)
        return self._result

    def _count_bytes(self, count: int) -> None:
        self._bytes_done += count
        self._meter.report_bytes(self._bytes_done)

    def _add_result(self, result: DownloadResult, url: str) -> None:
        if not result.ok:
            self._result.failures.append(result)
            return
        self._result.files[result.name] = GatheredFile(result.size, result.sha256)
        if self._note_all or result.size >= MIN_NOTED_BYTES:
            self._write_note(GatheredFileNote(result.name, url, result.size, result.sha256))

    def _write_note(self, note: GatheredFileNote) -> None:
        # In the folder of this attempt: a second run reads it, and writes its own.
        if self._notes_file is None:
            self._notes_file = open(self._ctx.workdir / NOTES_FILE, "ab", buffering=0)  # noqa: SIM115 - closed by `gather`
        self._notes_file.write(_encode(note) + b"\n")

    def _reuse_earlier(self, request: DownloadRequest) -> bool:
        """Reuse the file of an earlier attempt, if it still has the digest that was compared; whether that was done."""
        note, folder = self._notes.get(request.name, (None, None))
        if note is None or folder is None or note.url != request.url or request.size not in (None, note.size):
            return False
        target = self._into / request.name
        if not _link_file(folder / self._into.name / request.name, target):
            return False
        expected = {"sha256": note.sha256, **normalize_digests(request.digests)}
        digests = Digests(expected)
        with open(target, "rb") as file:
            while chunk := file.read(_CHUNK):
                self._ctx.check()
                digests.update(chunk)
        if digests.find_mismatch(note.size, expected):
            target.unlink()
            return False
        self._result.files[request.name] = GatheredFile(note.size, note.sha256)
        self._meter.accept_size(note.name, note.size)  # it counts towards what the record needs
        self._write_note(note)
        self._count_bytes(note.size)
        return True


def count_gathered_bytes(ctx: StepContext) -> int:
    """The bytes of files that earlier attempts have finished, and that do not come again."""
    notes = {note.name: note.size for folder in list_earlier_attempts(ctx) for note in _read_notes(folder / NOTES_FILE)}
    return sum(notes.values())


def _read_notes(path: Path) -> Iterator[GatheredFileNote]:
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
