"""Reading archives of a storage: asked for, polled, read back.

The batch of a get is asked for everything that is needed and closed; then it is polled, and when it is done the archives are
read one after the other. A storage on disks is done at once, a tape library when it has mounted what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from waybill.apps.archive.catalogue import ArchiveRow
from waybill.apps.archive.machine import Progress
from waybill.apps.archive.storages import (
    ArchiveNotFound,
    Batch,
    ExternalStorageDamaged,
    Storage,
    StoredArchive,
    read_back,
)
from waybill.step import Wait

if TYPE_CHECKING:
    from waybill.apps.archive.stages import Stage


def request_archives(
    stage: Stage, storage: Storage, batch: Batch, rows: Iterable[ArchiveRow], *, forgive_missing: bool = False
) -> None:
    """Ask for archives, and close the batch. Safe to repeat: what was asked for is asked for."""
    for row in rows:
        stage.ctx.check()
        try:
            storage.request(batch, row.name)
        except ArchiveNotFound:
            if not forgive_missing:
                raise
    storage.close_batch(batch)


def poll_batch(stage: Stage, storage: Storage, batch: Batch) -> Wait | None:
    """None when the batch is done. What it could not do is found when it is read."""
    status = storage.poll(batch)
    if status.is_done:
        return None
    return stage.wait_for_storage(f"The storage is fetching {status.waiting or 'the'} archives.")


def read_archives_back(stage: Stage, storage: Storage, progress: Progress) -> None:
    """Read every archive through SHA-256, the catalogue file first, and write down what was read."""
    number, total = stage.request.migration_number, stage.files.bytes
    assert progress.batch is not None
    passed = 0
    with stage.open_tables() as tables:
        for row in tables.iter_archives(number, -1):
            if row.number <= progress.last_archive:
                passed += row.size
                continue
            read = read_archive(stage, storage, progress.batch, row.name, passed, total)
            tables.note_read(number, row.number, read.size, read.sha256)
            passed += row.size
            progress = replace(progress, last_archive=row.number)
            stage.save_progress(progress)


def read_archive(stage: Stage, storage: Storage, batch: Batch, name: str, passed: int, total: int) -> StoredArchive:
    """What a storage holds under a name; nothing at all where it has no such archive, or cannot read it to its end."""
    ctx, count = stage.ctx, passed

    def watch(size: int) -> None:
        nonlocal count
        ctx.check()
        count += size
        ctx.report_progress(count, total, "bytes")

    try:
        return read_back(storage, batch, name, watch)
    except (ArchiveNotFound, ExternalStorageDamaged):
        return StoredArchive(name, 0, "")
