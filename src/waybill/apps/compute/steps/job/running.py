"""Running: makes a record for each phase, and waits for them."""

from __future__ import annotations

from waybill.apps.compute.machine import PHASE, JobDocument, PhaseDocument
from waybill.apps.compute.resources import resources_of
from waybill.record import Record
from waybill.step import Done, New, Outcome, SpawnedChildren, StepContext, Wait


def run_step(job: Record, ctx: StepContext) -> Outcome:
    spawned = job.find_document(SpawnedChildren)
    if spawned is not None and spawned.whole:
        return Done()
    row = resources_of(ctx).find_job(job.id)
    if row is None:  # removed by an operator: there is nothing to run
        return Wait(0, documents=(SpawnedChildren(0, True),))
    # A page of named children and its count are one commit: a second run goes on after it.
    ctx.spawn_each(
        New(
            PHASE.name,
            (PhaseDocument(job.id, number, phase.is_reduce, phase.count),),
            id=f"{job.id}.{number}",
            owner=job.document(JobDocument).account,
        )
        for number, phase in enumerate(row.read_manifest().phases)
    )
    return Wait(0)
