"""PUT_PACKING: the bytes of every archive are fixed.

Where the storage takes streams, they are fixed already: the plan says which member begins where, and PUTTING reads the files
while it sends them. Where it wants whole files, each archive is written into the staging folder, with its digest.

A run that was killed goes on with the next archive; a staged archive has its name only when it is whole.
"""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from waybill.apps.archive.files import TarSource, write_entry_list
from waybill.apps.archive.machine import Progress
from waybill.apps.archive.packed_archives import make_file_rows, open_source, staged_path
from waybill.apps.archive.stages import Stage, WatchedSource, run_stage
from waybill.apps.archive.storages import FileSource
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _put_packing)


def _put_packing(stage: Stage) -> Outcome:
    if not stage.storage.traits.wants_whole_files:
        return Done(remove=(Progress,))
    from waybill.apps.archive.files.packing import write_staged_archive

    progress, files = stage.progress, stage.files
    with stage.open_tables() as tables:
        done = sum(
            row.size
            for row in tables.iter_archives(stage.request.migration_number)
            if row.number <= progress.last_archive
        )
        for row in tables.iter_archives(stage.request.migration_number, progress.last_archive):
            path = staged_path(stage, row)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            source = open_source(stage, row)
            # Safe to repeat: the file is written under another name and then renamed; the row has the same digest again.
            sha256 = write_staged_archive(path, cast(TarSource, WatchedSource(source, stage, done, files.bytes)))
            entries = write_entry_list(stage.ctx.objects, stage.list_name(f"packed-{row.number:010d}"), source.entries)
            tables.note_sent(row, FileSource.of(path).size, sha256, entries, make_file_rows(stage, row, source.entries))
            done += row.size
            progress = replace(progress, last_archive=row.number)
            stage.save_progress(progress)
    return Done(remove=(Progress,))
