"""VERIFYING: what was read back is compared with what was sent; only this commit makes the migration ON_STORAGE.

Every row of the catalogue must say that exactly the bytes that were sent have been read. A row that is missing, was not sent
or was not read is no proof. An archive that differs is sent again when the request is resumed.
"""

from __future__ import annotations

from waybill.apps.archive.events import make_stored_event
from waybill.apps.archive.machine import Progress
from waybill.apps.archive.stages import Stage, run_stage
from waybill.record import Record
from waybill.step import Done, Fail, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _verifying)


def _verifying(stage: Stage) -> Outcome:
    number, files = stage.request.migration_number, stage.files
    wrong: list[str] = []
    proven: list[int] = []
    with stage.open_tables() as tables:
        for row in tables.iter_archives(number, -1):
            if row.is_proven and row.plan == files.plan:
                proven.append(row.number)
            else:
                wrong.append(row.name)
                tables.note_not_sent(number, row.number)  # it is sent again when the request is resumed
        if not wrong and proven != list(range(files.archives + 1)):
            raise Fail("The catalogue lacks archives of this migration, so nothing is proven. Nothing was removed.")
        if wrong:
            raise Fail(
                f"What was read back from the storage is not what was sent: {', '.join(wrong[:5])}"
                f"{f' and {len(wrong) - 5} more' if len(wrong) > 5 else ''}. Nothing was removed; resume to send them again."
            )
        for archive in proven:
            tables.note_checked(number, archive, stage.ctx.now())
    return Done(
        remove=(Progress,),
        acts=(stage.act_on_migration("store"),),
        events=(make_stored_event(stage),),
        message=f"{files.archives} archives proven",
    )
