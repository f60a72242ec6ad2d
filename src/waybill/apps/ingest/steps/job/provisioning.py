"""Provisioning: a job waits until disk space is reserved for it.

    1. While an earlier row of its manifest is in progress for the same object, it waits for that row (batch_jobs.py).
    2. It reserves the space that it needs (job_space.py). If it is granted, the working folder is made, and the job goes on.
    3. If it is refused, the job waits, without a claim, and says for what. All jobs that wait try again at each poll.

A job that can never fit says so, and waits for a larger disk.
"""

from __future__ import annotations

from waybill.apps.ingest.batch_jobs import wait_for_rows_above
from waybill.apps.ingest.disk_space import DISK_FULL_MESSAGE, ignore_full_disk
from waybill.apps.ingest.job_space import cleared_space_documents, reserve_space, space_needed_of, wait_for_space
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(job: Record, ctx: StepContext) -> Outcome:
    if (wait_for_row := wait_for_rows_above(job, ctx)) is not None:
        return wait_for_row
    with ignore_full_disk():
        wait = reserve_space(job, ctx, space_needed_of(job))
        if not wait:
            ctx.make_folder()  # safe to repeat: the job has one folder
        return wait or Done(cleared_space_documents(job))
    since = job.documents.get("disk_space", {}).get("since", ctx.now())
    return wait_for_space(job, ctx, {"since": since, "message": DISK_FULL_MESSAGE, "never_fits": False})
