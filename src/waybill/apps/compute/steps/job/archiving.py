"""Archiving: the lists of a job become objects; then nothing of its tasks is left in the store."""

from __future__ import annotations

import json

from waybill.apps.compute.archive import JobArchiver
from waybill.apps.compute.events import JOB_DONE, JOB_FAILED
from waybill.apps.compute.machine import PHASE
from waybill.apps.compute.resources import ComputeResources, resources_of
from waybill.notify import make_webhook_deliveries
from waybill.record import Record
from waybill.step import Done, New, Outcome, StepContext, Wait


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
    return Done(spawn=_make_deliveries(job, ctx, resources))


def _make_deliveries(job: Record, ctx: StepContext, resources: ComputeResources) -> tuple[New, ...]:
    """The event is made in the commit that ends the job. Its row is gone if its user has removed it: then nobody hears."""
    row = resources.find_job(job.id)
    if row is None or not row.archived:
        return ()
    status = json.loads(row.stats)
    failed = bool(status["cancelled"] or status["stats"]["errors"])
    return make_webhook_deliveries(
        resources.environment.config.webhooks,
        event_type=JOB_FAILED if failed else JOB_DONE,
        source=f"/compute/{row.account}",
        subject=row.job,
        data={name: status[name] for name in ("id", "name", "cancelled", "stats")} | {"account": row.account},
        key=row.job,
        at=ctx.now(),
    )
