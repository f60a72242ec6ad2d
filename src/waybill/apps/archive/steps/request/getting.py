"""GETTING: the archives that are needed are asked for, and the storage is polled until they can be read.

    asked for -> the batch is closed -> (another run) -> polled -> done

The bytes are read by GET_UNPACKING, from the storage into the target: there is no copy in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from waybill.apps.archive.machine import GetPlan, Progress
from waybill.apps.archive.reading import poll_batch, request_archives
from waybill.apps.archive.stages import Stage, run_stage
from waybill.manifests.record_lists import read_list
from waybill.record import Record
from waybill.step import Done, Fail, Outcome, StepContext, Wait

if TYPE_CHECKING:
    from waybill.apps.archive.catalogue import ArchiveRow, ArchiveTables


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _getting)


def iter_needed_archives(stage: Stage, tables: ArchiveTables, after: int = 0) -> Iterator[ArchiveRow]:
    """The archives that a GET needs. One that the catalogue has lost is damage, not nothing."""
    for number in read_list(stage.ctx.objects, stage.record.document(GetPlan).archives, int):
        if number > after:
            row = tables.find_archive(stage.request.migration_number, number)
            if row is None:
                raise Fail(f"The catalogue has lost archive {number} of migration {stage.migration.number}.")
            yield row


def _getting(stage: Stage) -> Outcome:
    progress = stage.progress
    if progress.batch is None:
        raise Fail("The download has no batch on the storage; resume the request.")
    if not progress.is_closed:
        with stage.open_tables() as tables:
            request_archives(stage, stage.storage, progress.batch, iter_needed_archives(stage, tables))
        return Wait(0, "All archives are asked for.", documents=(Progress(batch=progress.batch, is_closed=True),))
    if (wait := poll_batch(stage, stage.storage, progress.batch)) is not None:
        return wait
    return Done((Progress(batch=progress.batch, is_closed=True),))
