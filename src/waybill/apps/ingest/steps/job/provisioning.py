"""Provisioning: a job waits until disk space is reserved for it.

    1. While an earlier row of its manifest is in progress for the same object, it waits for that row (batch_jobs.py).
    2. It reserves the space that it needs (waybill.disk_space). If it is granted, the working folder is made, and the job goes on.
    3. If it is refused, the job waits, without a claim, and says for what. All jobs that wait try again at each poll.

A job that can never fit says so, and waits for a larger disk.
"""

from __future__ import annotations

from waybill.apps.ingest.batch_jobs import wait_for_rows_above
from waybill.apps.ingest.job_space import space_needed_of
from waybill.apps.ingest.resources import resources_of
from waybill.disk_space import SpaceWait, is_disk_full
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(job: Record, ctx: StepContext) -> Outcome:
    if (wait_for_row := wait_for_rows_above(job, ctx)) is not None:
        return wait_for_row
    disk, need = resources_of(ctx).working_disk, space_needed_of(job)
    try:
        wait = disk.reserve(ctx, need)
        if not wait:
            ctx.make_folder()  # safe to repeat: the job has one folder
    except OSError as error:
        if not is_disk_full(error):
            raise
        wait = disk.wait_for_full_disk(ctx, need)
    return wait or Done(remove=(SpaceWait,))
