"""Storing: storage writes a version of what Processing has prepared. The state exists only with the setting storing_state.

A job that was processed here is described again from its record, so that nothing depends on files that were left on the
disk meanwhile. One that another service has processed says in its document `store` where the storage manifest is, and
its files are fetched from there:

    {"manifest_url": "http://.../mrt-manifest.txt", "mode": "update/9502/ark:/99999/fk4x", "delete":
    "http://.../mrt-delete.txt"}
"""

from __future__ import annotations

from waybill.apps.ingest import object_versions
from waybill.apps.ingest.description import PreviousMetadata, describe_object
from waybill.apps.ingest.documents import DownloadedFiles, StoreRequest
from waybill.apps.ingest.merritt import foreign_records
from waybill.apps.ingest.object_versions import read_previous_metadata
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.storage import Deposit, StoredVersion
from waybill.apps.ingest.submission import Submission
from waybill.apps.ingest.working_files import read_embedded_metadata_of
from waybill.record import Record
from waybill.step import Done, Fail, StepContext


def run_step(job: Record, ctx: StepContext) -> Done:
    resources = resources_of(ctx)
    submission = Submission.from_job(job)
    request = job.find_document(StoreRequest)
    if request is not None and request.manifest_url and job.find_document(DownloadedFiles) is None:
        return object_versions.finish_version(job, ctx, _store_foreign_object(job, ctx, request))
    if not submission.primary_id:
        raise Fail("This job has no ARK yet, so nothing can be stored: `restart` starts it again.")
    object_versions.check_stored_here(resources, submission.primary_id)
    embedded = read_embedded_metadata_of(job, ctx)
    prepared = object_versions.prepare_object(
        job, ctx, resources.get_profile(ctx, submission), submission.primary_id, embedded
    )
    return object_versions.finish_version(job, ctx, object_versions.write_version(job, ctx, prepared))


def _store_foreign_object(job: Record, ctx: StepContext, store_request: StoreRequest) -> StoredVersion:
    """Store what another service has prepared. Safe to repeat: for the same request storage returns the version it wrote."""
    resources, submission = resources_of(ctx), Submission.from_job(job)
    mode_word, _, rest = store_request.mode.partition("/")
    ark = rest.partition("/")[2] or submission.primary_id
    if mode_word not in ("add", "update") or not ark:
        raise Fail(
            f"The job asks storage for {store_request.mode[:100]!r}, which is not add or update, a node and an ARK."
        )
    if submission.primary_id and submission.primary_id != ark:
        raise Fail(f"The job is for {submission.primary_id}, and asks storage to write {ark}.")
    object_versions.check_stored_here(resources, ark)
    delete = store_request.delete
    files = list(
        foreign_records.list_foreign_files(ctx, foreign_records.read_foreign_manifest(ctx, store_request.manifest_url))
    )
    is_update, request, profile = (
        mode_word == "update",
        object_versions.storage_request_of(job),
        resources.get_profile(ctx, submission),
    )
    deletions = foreign_records.read_foreign_deletions(ctx, delete) if delete and is_update else ()
    replaced_paths = {file.path for file in files}.union(deletions)
    previous = (
        read_previous_metadata(resources, ark, submission.owner or profile.owner, request, replaced_paths)
        if is_update
        else PreviousMetadata()
    )
    deposit = Deposit(
        object=ark,
        request=request,
        files=files,
        mode="update" if is_update else "add",
        deletions=(*deletions, *previous.obsolete_files),
        message=submission.note,
        user=submission.submitter or "waybill",
        about=describe_object(submission, profile, ark, previous=previous).about,
    )
    return object_versions.store_deposit(ctx, deposit)
