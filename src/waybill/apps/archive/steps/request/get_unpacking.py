"""GET_UNPACKING: archive after archive is read from the storage, checked, and unpacked into the target as the user.

A file gets its name when its bytes have the digest that it had when it was packed. A run that was killed goes on with the next
archive; in the one where it was killed, files that are there and right are left.
"""

from __future__ import annotations

from collections import deque
from contextlib import closing

from msgspec.structs import replace

from waybill.apps.archive.files import FileFailure
from waybill.apps.archive.restoring import Restore, hashed_chunks
from waybill.apps.archive.stages import Stage, describe_failures, limit_report, report_of, run_stage, write_failures
from waybill.apps.archive.steps.request.getting import iter_needed_archives
from waybill.record import Record
from waybill.step import Done, Fail, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _get_unpacking)


def _get_unpacking(stage: Stage) -> Outcome:
    progress, restore, failures = stage.progress, Restore(stage), list[FileFailure]()
    if progress.batch is None:
        raise Fail("The download has no batch on the storage; resume the request.")
    passed = 0
    report = report_of(stage)
    with stage.open_tables() as tables, stage.open_access() as access:
        target = restore.make_target(access)
        for row in iter_needed_archives(stage, tables):
            if row.number > progress.last_archive:
                entries = tuple(stage.read_entries(row.entry_list))
                with closing(stage.storage.read(progress.batch, row.name)) as chunks:
                    stream = hashed_chunks(stage, chunks, row, passed)
                    counts = access.unpack_archive(stream, entries, target, restore.options, limit_report(failures))
                    deque(stream, maxlen=0)  # what is left behind the last member: all of it is compared
                report = replace(report, restored=report.restored + counts.files, bytes=report.bytes + counts.bytes)
                if failures:
                    report = replace(report, failures=write_failures(stage, failures), skipped=len(failures))
                    stage.ctx.save((report,))
                    raise Fail(f"Some files could not be restored: {describe_failures(failures)}.")
                progress = replace(progress, last_archive=row.number)
                stage.ctx.save((progress, report))
            passed += row.size
    return Done((report, replace(progress, last_archive=0)))
