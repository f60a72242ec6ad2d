"""Archiving: the lists of a job become objects; then nothing of its tasks is left in the store."""

from __future__ import annotations

from waybill.apps.compute.archive import JobArchiver
from waybill.apps.compute.events import make_job_event
from waybill.apps.compute.machine import PHASE
from waybill.apps.compute.resources import resources_of
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext, Wait


def run_step(job: Record, ctx: StepContext) -> Outcome:
    resources = resources_of(ctx)
    if resources.find_job(job.id) is not None:
        row = resources.start_archive(job.id)
        archiver = JobArchiver(resources, row, ctx.check)
        if not row.archived:
            archiver.write_all()  # every file is replaced by the same when this runs again
        archiver.remove_sources()
    if ctx.remove_children(PHASE.name):
        return Wait(1.0, "a worker still has a record of its tasks")
    # The event is in the commit that ends the job. Its row is gone if its user has removed it: then nobody hears.
    ended = resources.find_job(job.id)
    return Done(events=(make_job_event(ended),) if ended is not None and ended.archived else ())
