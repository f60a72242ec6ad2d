"""The archives of a PUT: as sources, in the staging folder, as rows of the catalogue, and the catalogue file beside them.

The catalogue file is a manifest with one line for each file: path, size, digest, owner, mode, in which archive and where. A
container holds everything that is needed to restore without this server.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.apps.archive.catalogue import ArchiveRow, ArchiveTables, FileRow, encode_path
from waybill.apps.archive.files import FileEntry, TarSource, read_entry_list, to_manifest_entry
from waybill.manifests import ManifestEntry, ManifestHeader, ManifestWriter
from waybill.step import Fail

if TYPE_CHECKING:
    from waybill.apps.archive.stages import Stage
    from waybill.apps.archive.storages import ArchiveSource

CATALOGUE_NUMBER = 0  # of the catalogue file, among the archives of a migration
CATALOGUE_NAME = "catalogue.jsonl"


def open_source(stage: Stage, row: ArchiveRow) -> TarSource:
    """The archive as it is read from the files."""
    file_set = stage.files.file_set
    if file_set is None or row.plan != stage.files.plan:
        raise Fail(f"The plan of {row.name} is missing; resume the request.")
    return TarSource(file_set, tuple(stage.read_entries(row.entry_list)))


def hash_source(source: ArchiveSource) -> str:
    digest = hashlib.sha256()
    for chunk in source.iter_chunks():
        digest.update(chunk)
    return digest.hexdigest()


def staging_folder(stage: Stage) -> Path:
    return stage.resources.staging / f"migration_{stage.request.migration_number:010d}"


def staged_path(stage: Stage, row: ArchiveRow) -> Path:
    return staging_folder(stage) / row.name


def remove_staged(stage: Stage) -> None:
    """Remove the staging folder of a migration. Safe to repeat."""
    if staging_folder(stage).exists():
        shutil.rmtree(staging_folder(stage))


def make_file_rows(stage: Stage, row: ArchiveRow, entries: Sequence[FileEntry]) -> Iterator[FileRow]:
    """The rows of the files in an archive. Their numbers are lasting: the archive's, and the place in it."""
    file_set = stage.files.file_set
    assert file_set is not None
    return list_file_rows(row, entries, file_set.folder)


def list_file_rows(row: ArchiveRow, entries: Iterable[FileEntry], folder: str) -> Iterator[FileRow]:
    folder = folder.rstrip("/")
    for place, entry in enumerate(entries, start=1):
        path = folder if entry.path == "." else f"{folder}/{entry.path}"
        text = encode_path(path or "/")
        yield FileRow(
            migration=row.migration,
            number=row.number * FILES_OF_ARCHIVE + place,
            archive=row.number,
            path=text,
            name=text.rpartition("/")[2],
            kind=entry.kind,
            size=entry.size,
            mtime=entry.mtime_ns / 1e9,
            sha256=entry.sha256,
            link=encode_path(entry.target),
        )


FILES_OF_ARCHIVE = 10**8  # more than an archive can have


def write_catalogue_file(stage: Stage, tables: ArchiveTables) -> Path:
    """Write the catalogue file of a migration into the working folder of this run, streaming."""
    path = stage.ctx.workdir / CATALOGUE_NAME
    migration, files = stage.migration, stage.files
    about = {
        "migration": migration.number,
        "owner": stage.record.owner,
        "workspace": migration.workspace,
        "label": migration.label,
        "folder": encode_path(files.file_set.folder) if files.file_set is not None else "",
        "archives": [[row.name, row.size, row.sha256] for row in tables.iter_archives(migration.number)],
    }
    writer = ManifestWriter(ManifestHeader(False, about, True))

    def iter_entries() -> Iterator[ManifestEntry]:
        for row in tables.iter_archives(migration.number):
            for entry in read_entry_list(stage.ctx.objects, row.entry_list):
                yield to_manifest_entry(entry)

    with path.open("wb") as file:
        for chunk in writer.iter_chunks(iter_entries()):
            file.write(chunk)
    return path
