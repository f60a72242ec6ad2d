"""GET_START: the target is made, as the user; and it is found out which archives hold what was chosen."""

from __future__ import annotations

from collections.abc import Iterator

from waybill.apps.archive.files import read_entry_list
from waybill.apps.archive.machine import GetPlan
from waybill.apps.archive.restoring import Restore
from waybill.apps.archive.stages import Stage, run_stage
from waybill.manifests.record_lists import write_list
from waybill.record import Record
from waybill.step import Done, Fail, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _get_start)


def _get_start(stage: Stage) -> Outcome:
    if stage.migration_record.state != "ON_STORAGE":
        raise Fail(
            f"Migration {stage.migration.number} is {stage.migration_record.state}; only one ON_STORAGE can be restored."
        )
    restore = Restore(stage)
    with stage.open_access() as access:
        restore.make_target(access)  # safe to repeat: a target that is there is found
    files = size = 0

    def iter_needed() -> Iterator[int]:
        nonlocal files, size
        with stage.open_tables() as tables:
            for row in tables.iter_archives(stage.request.migration_number):
                stage.ctx.check()
                chosen = sum(
                    1 for entry in read_entry_list(stage.ctx.objects, row.entry_list) if restore.is_needed(entry)
                )
                if chosen:
                    files, size = files + chosen, size + row.size
                    yield row.number

    archives = write_list(stage.ctx.objects, stage.list_name("needed"), iter_needed())
    if not files:
        raise Fail(f"No file of migration {stage.migration.number} matches what was chosen.")
    return Done((GetPlan(archives, files, size),), message=f"{files} files in {archives.count} archives")
