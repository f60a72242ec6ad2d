"""MOVE_VERIFYING: every copy is read back and compared; then, in one commit, the migration is on the other storage."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from waybill.apps.archive.machine import MigrationCharge, MoveCharge, MoveRequest, Progress
from waybill.apps.archive.reading import poll_batch, read_archive, request_archives
from waybill.apps.archive.service.quotas import quota_ref
from waybill.apps.archive.stages import Stage, run_stage
from waybill.record import Record
from waybill.step import Act, Done, Fail, Outcome, StepContext, Wait


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _move_verifying)


def _move_verifying(stage: Stage) -> Outcome:
    asked, progress = stage.record.document(MoveRequest), stage.progress
    target = stage.resources.open_storage(asked.to_storage)
    if (batch := progress.batch) is None:
        batch = target.open_batch("get", asked.container, stage.batch_token("move-verify"))
        with stage.open_tables() as tables:
            rows = tables.iter_archives(stage.migration.number, -1)
            request_archives(stage, target, batch, rows, forgive_missing=True)
        return Wait(0, "All copies are asked for.", documents=(Progress(batch=batch, is_closed=True, last_archive=-1),))
    if (wait := poll_batch(stage, target, batch)) is not None:
        return wait
    proven, done = list[int](), 0
    with stage.open_tables() as tables:
        for row in tables.iter_archives(stage.migration.number, -1):
            if row.number > progress.last_archive:
                read = read_archive(stage, target, batch, row.name, done, stage.files.bytes)
                if not row.sha256 or (read.size, read.sha256) != (row.size, row.sha256):
                    raise Fail(
                        f"The copy of {row.name} on {target.name} is not what was sent; the migration stays on {stage.storage.name}."
                    )
                progress = replace(progress, last_archive=row.number)
                stage.save_progress(progress)
            proven.append(row.number)
            done += row.size
    if proven != list(range(stage.files.archives + 1)):
        raise Fail("The catalogue lacks archives of this migration, so nothing is proven; it stays where it is.")
    target.end_batch(batch)
    return Done(remove=(Progress, MoveCharge), acts=_move_migration(stage, asked))


def _move_migration(stage: Stage, asked: MoveRequest) -> tuple[Act, ...]:
    """Both quotas and the migration. It cannot happen twice: the request leaves this stage in the same commit."""
    workspace, charge = stage.migration.workspace, stage.migration_record.document(MigrationCharge)
    reserved = stage.record.document(MoveCharge).reserved
    moved = MigrationCharge(asked.to_storage, used=reserved)
    return (
        stage.act_on_migration(
            "move", storage=asked.to_storage, container=asked.container, charge=msgspec.to_builtins(moved)
        ),
        Act(quota_ref(workspace, asked.to_storage), "settle", {"reserved": reserved, "used": reserved}),
        Act(quota_ref(workspace, charge.storage), "give_back", {"reserved": charge.reserved, "used": charge.used}),
    )
