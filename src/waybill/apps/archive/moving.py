"""What the stages of a MOVE share: an archive of one storage as the source of a put to another, and the copies to remove."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.apps.archive.catalogue import ArchiveRow
from waybill.apps.archive.machine import MoveRequest, RequestDocument
from waybill.apps.archive.packed_archives import staged_path
from waybill.apps.archive.storages import ArchiveSource, Batch, ExternalStorageDamaged, FileSource, Storage
from waybill.record import Record

if TYPE_CHECKING:
    from waybill.apps.archive.stages import Stage


@dataclass(frozen=True, slots=True)
class StoredSource:
    """An archive as it is on a storage. Raises ExternalStorageDamaged at its end if it is not what was put there."""

    storage: Storage
    batch: Batch
    row: ArchiveRow
    path: Path | None = None

    @property
    def size(self) -> int:
        return self.row.size

    def iter_chunks(self) -> Iterator[bytes | memoryview]:
        digest, size = hashlib.sha256(), 0
        with closing(self.storage.read(self.batch, self.row.name)) as chunks:
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                yield chunk
        if (size, digest.hexdigest()) != (self.row.size, self.row.sha256):
            raise ExternalStorageDamaged(
                f"{self.row.name} is damaged on {self.storage.name}: it is not what was put there. It is not moved."
            )


def open_copy_source(stage: Stage, source: StoredSource, target: Storage) -> ArchiveSource:
    """The source, or a staged file with its bytes if the other storage wants whole files. Safe to repeat: the file gets its
    name when it is whole.
    """
    if not target.traits.wants_whole_files:
        return source
    path = staged_path(stage, source.row)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        for chunk in source.iter_chunks():
            stage.ctx.check()
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    return FileSource.of(path)


def remove_other_copies(stage: Stage, move: Record) -> None:
    """Remove the container of a MOVE on each of its two storages that is not the migration's. Safe to repeat."""
    asked, request = move.document(MoveRequest), move.document(RequestDocument)
    for name in {request.storage, asked.to_storage} - {stage.migration.storage}:
        stage.resources.open_storage(name).remove_container(asked.container)
