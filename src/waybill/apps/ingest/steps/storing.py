"""Storing: storage writes a version of what Processing has prepared. A state of its own only where the settings want it.

A job that was processed here is described anew from its record, so that nothing depends on files that lay about meanwhile. One that
another service has processed says in its document `store` where the storage manifest is: its files are fetched from the URLs listed there.
"""

from __future__ import annotations

from waybill.apps.ingest import submission
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.steps import depositing
from waybill.record import Record
from waybill.step import Context, Done, Fail


def storing(job: Record, ctx: Context) -> Done:
    outfit = outfit_of(ctx)
    said = submission.of_job(job)
    if not said.primary_id:
        raise Fail("This job has no ARK yet, so nothing can be stored: `restart` begins it again.")
    prepared = depositing.prepare(job, ctx, outfit.profile(ctx, said.profile), said.primary_id)
    return Done(depositing.documents(outfit, depositing.write(job, ctx, prepared)))
