"""GET_RESTORE: hard links across archives, owners, modes, and the times of directories. Safe to repeat: it sets what the list says."""

from __future__ import annotations

from msgspec.structs import replace

from waybill.apps.archive.files import FileFailure
from waybill.apps.archive.restoring import Restore
from waybill.apps.archive.stages import Stage, describe_failures, limit_report, report_of, run_stage, write_failures
from waybill.record import Record
from waybill.step import Done, Fail, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _get_restore)


def _get_restore(stage: Stage) -> Outcome:
    restore, failures = Restore(stage), list[FileFailure]()
    with stage.open_access() as access:
        target = restore.make_target(access)
        access.finish_restore(target, restore.iter_all_entries(), restore.options, limit_report(failures))
    if failed := [each for each in failures if not each.is_remark]:
        raise Fail(f"Some files could not be restored as they were: {describe_failures(failed)}.")
    if not failures:
        return Done()
    report = replace(report_of(stage), failures=write_failures(stage, failures), dropped=len(failures))
    return Done((report,), message=f"{len(failures)} files without their owner or special bits")
