"""Storing: storage writes a version of what Processing has prepared. A state of its own only where the settings want
it.

A job that was processed here is described anew from its record, so that nothing depends on files that lay about
meanwhile. One that another service has processed says in its document `store` where the storage manifest is, and its
files are fetched from there:

    {"manifest_url": "http://.../mrt-manifest.txt", "mode": "update/9502/ark:/99999/fk4x", "delete":
    "http://.../mrt-delete.txt"}
"""

from __future__ import annotations

from waybill.apps.ingest import submission
from waybill.apps.ingest.describing import Kept, describe
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.steps import depositing, foreign
from waybill.apps.ingest.steps.keeping import kept_of
from waybill.apps.ingest.steps.working import told_of
from waybill.apps.ingest.storage import Deposit, Stored
from waybill.record import Record
from waybill.step import Context, Done, Fail


def storing(job: Record, ctx: Context) -> Done:
    outfit = outfit_of(ctx)
    said = submission.of_job(job)
    if "downloaded" not in job.docs and foreign.told(job.docs.get("store"), "manifest_url"):
        return Done(depositing.documents(job, ctx, _store_foreign(job, ctx)))
    if not said.primary_id:
        raise Fail("This job has no ARK yet, so nothing can be stored: `restart` begins it again.")
    depositing.check_kept_here(outfit, said.primary_id)
    told = told_of(job, ctx)
    prepared = depositing.prepare(job, ctx, outfit.profile(ctx, said), said.primary_id, told)
    return Done(depositing.documents(job, ctx, depositing.write(job, ctx, prepared)))


def _store_foreign(job: Record, ctx: Context) -> Stored:
    """What another service has prepared. Safe to repeat: the same request is answered with the version that it made."""
    outfit, said, asked = outfit_of(ctx), submission.of_job(job), job.docs["store"]
    word, _, rest = foreign.told(asked, "mode").partition("/")
    ark = rest.partition("/")[2] or said.primary_id
    if word not in ("add", "update") or not ark:
        raise Fail(
            f"The job asks storage for {foreign.told(asked, 'mode')[:100]!r}, which is not add or update, a node and an ARK."
        )
    if said.primary_id and said.primary_id != ark:
        raise Fail(f"The job is for {said.primary_id}, and asks storage to write {ark}.")
    depositing.check_kept_here(outfit, ark)
    delete = foreign.told(asked, "delete")
    files = list(foreign.files_to_store(ctx, foreign.rows_at(ctx, asked["manifest_url"])))
    update, request, profile = word == "update", depositing.request_of(job), outfit.profile(ctx, said)
    deletions = foreign.deletions_at(ctx, delete) if delete and update else ()
    gone = {file.path for file in files}.union(deletions)
    kept = kept_of(outfit, ark, said.owner or profile.owner, request, gone) if update else Kept()
    deposit = Deposit(
        object=ark,
        request=request,
        files=files,
        mode="update" if update else "add",
        deletions=(*deletions, *kept.papers),
        message=said.note,
        user=said.submitter or "waybill",
        about=describe(said, profile, ark, kept=kept).about,
    )
    return depositing.stored(ctx, deposit)
