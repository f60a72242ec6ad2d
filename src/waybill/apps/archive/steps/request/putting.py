"""PUTTING: archive after archive is sent, then the batch is closed and polled until the storage has them.

    for each archive: put -> its digest and its files are in the catalogue -> last_archive is saved
    the catalogue file is put -> the batch is closed -> (another run) -> polled -> done

Inside an archive the storage's own checkpoint is saved after each part. A run that was killed goes on with the next archive,
or in the middle of one: the source is read again from its start, and what is stored is only sent again if it differs. A file
that changed sends the request back to PUT_START.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from waybill.apps.archive.catalogue import ArchiveRow, ArchiveTables
from waybill.apps.archive.files import FileEntry, write_entry_list
from waybill.apps.archive.machine import Progress
from waybill.apps.archive.packed_archives import (
    CATALOGUE_NUMBER,
    hash_source,
    make_file_rows,
    open_source,
    staged_path,
    write_catalogue_file,
)
from waybill.apps.archive.stages import Stage, WatchedSource, run_stage
from waybill.apps.archive.storages import ExternalStorageDamaged, FileSource, UploadCheckpoint
from waybill.record import Record
from waybill.step import Done, Fail, Outcome, StepContext, Wait


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _putting)


def _putting(stage: Stage) -> Outcome:
    progress = stage.progress
    if progress.batch is None:
        raise Fail("The upload has no batch on the storage; resume the request.")
    if not progress.is_closed:
        return _send(stage, progress)
    status = stage.storage.poll(progress.batch)
    if status.failures:
        name, sentence = status.failures[0]
        _send_again(stage, [failed for failed, _ in status.failures])
        raise Fail(f"The storage could not store {len(status.failures)} archives: {name}: {sentence}")
    if not status.is_done:
        return stage.wait_for_storage(f"The storage has not stored {status.waiting or 'all'} archives yet.")
    stage.storage.end_batch(progress.batch)  # what was stored stays; a second call finds nothing to end
    return Done(remove=(Progress,))


def _send(stage: Stage, progress: Progress) -> Outcome:
    number, total = stage.request.migration_number, stage.files.bytes
    sent, batch = 0, progress.batch
    assert batch is not None
    with stage.open_tables() as tables:
        for row in tables.iter_archives(number):
            if row.number > progress.last_archive:
                progress = _send_archive(stage, tables, row, progress, sent, total)
            sent += row.size
        _send_catalogue(stage, tables, progress)
    stage.storage.close_batch(batch)
    return Wait(0, "All archives are sent.", documents=(replace(progress, is_closed=True, upload=None),))


def _send_archive(
    stage: Stage, tables: ArchiveTables, row: ArchiveRow, progress: Progress, sent: int, total: int
) -> Progress:
    ctx, storage = stage.ctx, stage.storage
    assert progress.batch is not None
    is_staged = storage.traits.wants_whole_files
    source = open_source(stage, row)
    if is_staged:
        # The catalogue has the digest of the staged file, which nobody else writes.
        put_source = WatchedSource(FileSource.of(staged_path(stage, row)), stage, sent, total)
    else:
        put_source = WatchedSource(source, stage, sent, total)
        if row.sha256 and hash_source(WatchedSource(source, stage, sent, total)) == row.sha256:
            # It was sent before: by a run that was killed before it could say so, or before the request was resumed.
            return _note_sent(stage, tables, row, row.sha256, source.entries, progress)

    current = progress

    def save(checkpoint: UploadCheckpoint) -> None:
        nonlocal current
        current = replace(current, upload=checkpoint)
        stage.save_progress(current)

    stored = storage.put(progress.batch, row.name, put_source, resume=progress.upload, save=save)
    if stored.size != row.size or (is_staged and stored.sha256 != row.sha256):
        raise ExternalStorageDamaged(f"The storage says that it stored something else than was sent of {row.name}.")
    if is_staged:
        progress = replace(progress, last_archive=row.number, upload=None)
        ctx.save((progress,))
        return progress
    return _note_sent(stage, tables, row, stored.sha256, source.entries, progress)


def _note_sent(
    stage: Stage, tables: ArchiveTables, row: ArchiveRow, sha256: str, entries: Sequence[FileEntry], progress: Progress
) -> Progress:
    """The row first, then the checkpoint: a run that dies in between hashes the archive again and finds it sent."""
    written = write_entry_list(stage.ctx.objects, stage.list_name(f"sent-{row.number:010d}"), entries)
    tables.note_sent(row, row.size, sha256, written, make_file_rows(stage, row, entries))
    progress = replace(progress, last_archive=row.number, upload=None)
    stage.save_progress(progress)
    return progress


def _send_catalogue(stage: Stage, tables: ArchiveTables, progress: Progress) -> None:
    """The catalogue file goes last, so a container that has one is whole. Safe to repeat: it replaces itself."""
    assert progress.batch is not None
    path = write_catalogue_file(stage, tables)
    stored = stage.storage.put(progress.batch, path.name, FileSource.of(path))
    row = ArchiveRow(
        stage.request.migration_number, CATALOGUE_NUMBER, path.name, stage.files.plan, stored.size, 0, "", stored.sha256
    )
    tables.enter_archives([row])


def _send_again(stage: Stage, names: list[str]) -> None:
    with stage.open_tables() as tables:
        for row in tables.iter_archives(stage.request.migration_number):
            if row.name in names:
                tables.note_not_sent(row.migration, row.number)
