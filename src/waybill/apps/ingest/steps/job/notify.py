"""Notify: the callback of the profile is called when a job is stored and recorded.

    POST <callback url>/mc/<jobID>          {"job:jobState": {"job:jobID": ..., "job:jobStatus": "COMPLETED", "job:primaryID": ...}}

The form is that of Merritt's services, so that receivers need not change. By the time of the call the object is in the
inventory. A receiver that cannot be reached, or answers 5xx, is tried again as often as the state allows; after that,
and at once if it refuses the call (4xx), the job fails, and resume calls again. There is no call for a failed job: it
may be repaired, and then there is one call, as completed; until then the report of its batch and the event name it.

Whoever subscribes gets an event for every completed job, written in the commit that completes it.
"""

from __future__ import annotations

import base64
import time
from typing import Any
from urllib.parse import quote

from waybill.apps.ingest import events, job_warnings
from waybill.apps.ingest.documents import CallbackAnswer
from waybill.apps.ingest.machine.job import JOB
from waybill.apps.ingest.profile import ProfileCallback
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.storage import StoredVersion
from waybill.apps.ingest.submission import Submission
from waybill.events import Event
from waybill.masking import mask_foreign_url
from waybill.record import Record, encode_document
from waybill.step import Done, Fail, Outcome, StepContext
from waybill.transfer import TransferError

NAMESPACE = "http://uc3.cdlib.org/ontology/mrt/ingest/job"


def run_step(job: Record, ctx: StepContext) -> Outcome:
    resources, submission, at = resources_of(ctx), Submission.from_job(job), ctx.now()
    profile = resources.get_profile(ctx, submission)
    callback = profile.callback
    answers = (_call_receiver(job, ctx, callback, at),) if callback.url and not _was_called(job) else ()
    data = {
        "job": job.id,
        "jobID": submission.job_id,
        "batch": job.parent.id if job.parent else "",
        "batchID": submission.batch_id,
        "status": JOB.completed,
        "profile": submission.profile,
        "primary_id": submission.primary_id,
        "local_id": list(submission.local_ids),
        "version": _version_of(job),
        # what others do with it: they ask for its files by `key` and `version`
        "key": submission.primary_id,
        "label": submission.title or submission.primary_id,
        "dataset": profile.dataset,
        "archive": profile.archive,
    }
    # Safe to repeat: the event is created in this commit alone.
    recorded = Event(events.OBJECT_RECORDED, submission.primary_id or job.id, data)
    return Done(answers, message=job_warnings.format_message(job), events=(recorded,))


def _call_receiver(job: Record, ctx: StepContext, callback: ProfileCallback, at: float) -> CallbackAnswer:
    """Call the receiver. A second run after a crash calls again, with the same job in the same state at the same URL."""
    resources, submission = resources_of(ctx), Submission.from_job(job)
    url = f"{callback.url.rstrip('/')}/mc/{quote(submission.job_id, safe='')}"
    headers = {"content-type": "application/json; charset=utf-8", "idempotency-key": submission.job_id}
    if callback.user or callback.password:
        headers["authorization"] = "Basic " + base64.b64encode(f"{callback.user}:{callback.password}".encode()).decode()
    try:
        answer = resources.post(
            url,
            encode_document(job_state_of(job, at)),
            headers,
            reach=resources.address_policy,
            timeout=resources.settings.notifications.callback_timeout,
        )
    except TransferError as error:
        message = f"The callback to {mask_foreign_url(callback.url)} failed: {error}"
        if not error.is_retryable:
            raise Fail(f"{message} Correct the receiver or the profile, then resume.") from None
        raise TransferError(message) from None
    return CallbackAnswer(answer.status, at, _version_of(job))


def _was_called(job: Record) -> bool:
    """Whether the receiver was called for this version: then the job was stopped after the call, and resumed."""
    answer = job.find_document(CallbackAnswer)
    return answer is not None and answer.version is not None and answer.version == _version_of(job)


def job_state_of(job: Record, at: float) -> dict[str, Any]:
    """The job in the form that receivers expect, without empty fields."""
    submission = Submission.from_job(job)
    fields = {
        "xmlns:job": NAMESPACE,
        "job:jobID": submission.job_id,
        "job:batchID": submission.batch_id,
        "job:jobStatus": "COMPLETED",
        "job:primaryID": submission.primary_id,
        "job:localID": "; ".join(submission.local_ids),
        "job:packageName": mask_foreign_url(submission.filename),
        "job:objectCreator": submission.creator,
        "job:objectTitle": submission.title,
        "job:objectDate": submission.date,
        "job:note": submission.note,
        "job:submissionDate": submission.submitted_at,
        "job:completionDate": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(at)),
        "job:updateFlag": submission.update,
        "job:versionID": _version_of(job),
    }
    return {"job:jobState": {name: value for name, value in fields.items() if value not in ("", None)}}


def _version_of(job: Record) -> int | None:
    stored = job.find_document(StoredVersion)
    return stored.version if stored is not None else None
