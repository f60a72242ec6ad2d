"""VERIFY_GETTING: every archive is asked for, and read back from the storage through SHA-256.

    asked for -> the batch is closed -> (another run) -> polled until all can be read -> read, one after the other

What was read goes into the catalogue; VERIFYING compares it. Nothing is kept of the bytes. A run that was killed goes on with
the next archive. An archive that the storage does not have is read as nothing, so VERIFYING does not find it proven.
"""

from __future__ import annotations

from waybill.apps.archive.machine import Progress
from waybill.apps.archive.reading import poll_batch, read_archives_back, request_archives
from waybill.apps.archive.stages import Stage, run_stage
from waybill.record import Record
from waybill.step import Done, Fail, Outcome, StepContext, Wait


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _verify_getting)


def _verify_getting(stage: Stage) -> Outcome:
    progress = stage.progress
    if progress.batch is None:
        raise Fail("The read-back has no batch on the storage; resume the request.")
    if not progress.is_closed:
        with stage.open_tables() as tables:
            rows = tables.iter_archives(stage.request.migration_number, -1)
            request_archives(stage, stage.storage, progress.batch, rows, forgive_missing=True)
        return Wait(
            0,
            "All archives are asked for.",
            documents=(Progress(batch=progress.batch, is_closed=True, last_archive=-1),),
        )
    if (wait := poll_batch(stage, stage.storage, progress.batch)) is not None:
        return wait
    read_archives_back(stage, stage.storage, progress)
    stage.storage.end_batch(progress.batch)
    return Done(remove=(Progress,))
