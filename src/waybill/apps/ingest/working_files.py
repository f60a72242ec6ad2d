"""The working files of a job: what was fetched for it, as its document `downloaded` lists it, and what the depositor's
own files say of the object.

    list_working_files           the fetched files; those of a job that another service fetched are found in the folder
    read_embedded_metadata_of    the descriptions among them, after the files were compared with the depositor's own list
    find_changed_files           the files that are not what was fetched

A working folder can be replaced at any moment by a worker that was believed dead. So each file is compared with its
digest whenever it is read: the few that are read here, here; all of them by storage while it copies.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from waybill.apps.ingest.description import (
    DESCRIPTION_FILES,
    MAX_DESCRIPTION_BYTES,
    PRODUCER_PREFIX,
    EmbeddedMetadata,
    read_embedded_metadata,
)
from waybill.apps.ingest.documents import DownloadedFiles
from waybill.apps.ingest.formats.checkm import BadManifest, ManifestKind, ManifestRow, read_manifest
from waybill.apps.ingest.object_paths import PRODUCER
from waybill.apps.ingest.storage.sources import SourceMissing, open_working_file
from waybill.digests import Digests
from waybill.errors import FormatError
from waybill.files.names import quote_text
from waybill.manifests import record_lists
from waybill.objects import ContentMismatch
from waybill.record import Record
from waybill.step import Fail, StepContext

DEPOSITOR_MANIFEST = "mrt-manifest.txt"
_MAX_COMPLAINTS = 5  # faults that the message names
_CHUNK = 1024 * 1024
_TYPES = mimetypes.MimeTypes(filenames=())  # the same on every host: nothing is read from /etc


class StagedFile(msgspec.Struct, frozen=True):
    path: str
    size: int
    sha256: str
    mime: str = ""


def staged_file_of(name: str, size: int, sha256: str, mime: str = "") -> StagedFile:
    """The file of this name below producer/; its MIME type is guessed from the name if it is not declared."""
    return StagedFile(
        f"{PRODUCER}/{name}",
        size,
        sha256,
        mime or _TYPES.guess_type(name, strict=False)[0] or "application/octet-stream",
    )


def list_working_files(job: Record, ctx: StepContext) -> Iterator[StagedFile]:
    """The depositor's files as they were fetched; if another service fetched them, as they are in the folder."""
    if (listed := job.find_document(DownloadedFiles)) is not None:
        return record_lists.read_list(ctx.objects, listed, StagedFile)
    if (ctx.folder / "producer").is_dir():
        return _scan_producer(ctx)
    raise Fail("The files of this job are not in its working folder: `restart` fetches them.")


def read_embedded_metadata_of(job: Record, ctx: StepContext) -> EmbeddedMetadata:
    """What the depositor's own files say of the object; raises Fail if they cannot be read, or if the depositor's list of
    files is not what was fetched.
    """
    try:
        description_files = dict(_read_description_files(job, ctx))
        if DEPOSITOR_MANIFEST in description_files:
            check_depositor_manifest(ctx, description_files[DEPOSITOR_MANIFEST], list_working_files(job, ctx))
        return read_embedded_metadata(description_files)
    except FormatError as error:
        raise Fail(str(error)) from error


def _scan_producer(ctx: StepContext) -> Iterator[StagedFile]:
    top = ctx.folder / "producer"
    for folder, folders, names in os.walk(top):  # links are neither followed nor stored
        folders.sort()
        for name in sorted(names):
            path = (Path(folder) / name).relative_to(ctx.folder).as_posix()
            if not (ctx.folder / path).is_symlink():
                yield StagedFile(path, *_measure_file(ctx, path))


def _measure_file(ctx: StepContext, path: str) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with open_working_file(ctx.folder, path) as file:
        while chunk := file.read(_CHUNK):
            ctx.check()
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def find_changed_files(job: Record, ctx: StepContext) -> Iterator[str]:
    """The paths of the working files that are not what was fetched."""
    for file in list_working_files(job, ctx):
        try:
            if _measure_file(ctx, file.path) != (file.size, file.sha256):
                yield file.path
        except SourceMissing:
            yield file.path


def _read_description_files(job: Record, ctx: StepContext) -> Iterator[tuple[str, bytes]]:
    """The files of the depositor that describe the object, by their names."""
    for staged in list_working_files(job, ctx):
        name = staged.path.removeprefix(PRODUCER_PREFIX)
        if name not in DESCRIPTION_FILES and name != DEPOSITOR_MANIFEST:
            continue
        if staged.size > MAX_DESCRIPTION_BYTES:
            raise FormatError(f"{staged.path} cannot be read: it is longer than {MAX_DESCRIPTION_BYTES:,} bytes.")
        with open_working_file(ctx.folder, staged.path) as file:
            data = file.read(MAX_DESCRIPTION_BYTES + 1)
        if (len(data), hashlib.sha256(data).hexdigest()) != (staged.size, staged.sha256):
            raise ContentMismatch(
                f"The working copy of {staged.path} is not what was fetched: `restart` fetches it again."
            )
        yield name, data


# --- the depositor's own list of files, mrt-manifest.txt


def check_depositor_manifest(ctx: StepContext, manifest: bytes, files: Iterable[StagedFile]) -> None:
    """Raise Fail if the fetched files are not those that the depositor's list names."""
    try:
        rows = {
            row.name.removeprefix(PRODUCER_PREFIX): row
            for row in read_manifest(manifest, kind=ManifestKind.OBJECT).rows
        }
    except BadManifest as error:
        raise Fail(f"{PRODUCER_PREFIX}{DEPOSITOR_MANIFEST} cannot be read: {error}") from error
    faults = list(_find_manifest_faults(ctx, rows, files))
    if faults:
        more = f" And {len(faults) - _MAX_COMPLAINTS} more." if len(faults) > _MAX_COMPLAINTS else ""
        raise Fail(
            f"What came is not what {PRODUCER_PREFIX}{DEPOSITOR_MANIFEST} lists: {' '.join(faults[:_MAX_COMPLAINTS])}{more}"
        )


def _find_manifest_faults(ctx: StepContext, rows: dict[str, ManifestRow], files: Iterable[StagedFile]) -> Iterator[str]:
    for staged in files:
        row = rows.pop(staged.path.removeprefix(PRODUCER_PREFIX), None)
        if row is not None and (fault := _find_row_fault(ctx.folder, row, staged)) is not None:
            yield f"{quote_text(staged.path)}: {fault}."
    for name in rows:
        yield f"{quote_text(name)} did not come."


def _find_row_fault(folder: Path, row: ManifestRow, staged: StagedFile) -> str | None:
    if row.size is not None and row.size != staged.size:
        return f"it has {staged.size} bytes, and {row.size} are listed"
    if not row.digest:
        return None
    found = staged.sha256 if row.algorithm == "sha256" else _compute_digest(folder, staged.path, row.algorithm)
    return None if found == row.digest else f"its {row.algorithm} is {found}, and {row.digest} is listed"


def _compute_digest(folder: Path, path: str, algorithm: str) -> str:
    digests = Digests([algorithm])
    with open_working_file(folder, path) as file:
        while chunk := file.read(_CHUNK):
            digests.update(chunk)
    return digests.values[algorithm]
