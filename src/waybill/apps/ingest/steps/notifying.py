"""Notify: whoever the profile names is called when a job is stored and recorded.

    POST <callback url>/mc/<jobID>          {"job:jobState": {"job:jobID": ..., "job:jobStatus": "COMPLETED", "job:primaryID": ...}}

The form is that of the services this was built beside, so that receivers need not change. By the time of the call the
object is in the inventory. A receiver that cannot be reached, or answers 5xx, is tried again as often as the state
says; then, and at once for what it refuses (4xx), the job fails, and resume calls again. Failed jobs are not called
about: they may yet be mended, and are then called about once, as completed; until then the report of their batch and
its event tell of them.

Webhooks are told of every completed job by an event, in the commit that completes it.
"""

from __future__ import annotations

import base64
import time
from typing import Any
from urllib.parse import quote

from waybill.apps.ingest import caveats, submission
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.profile import Callback
from waybill.apps.ingest.report import announced
from waybill.apps.ingest.signatures import without_secrets
from waybill.notify import NotPosted
from waybill.record import Record, encode
from waybill.step import Context, Done, Fail, Outcome

NAMESPACE = "http://uc3.cdlib.org/ontology/mrt/ingest/job"


def notify(job: Record, ctx: Context) -> Outcome:
    outfit, said, at = outfit_of(ctx), submission.of_job(job), ctx.now()
    callback = outfit.profile(ctx, said).callback
    docs: dict[str, Any] = {}
    if callback.url and not _was_called(job):
        docs["called"] = _called(job, ctx, callback, at)
    data = {
        "job": job.id,
        "jobID": said.job_id,
        "batch": job.parent.id if job.parent else "",
        "batchID": said.batch_id,
        "status": "Completed",
        "profile": said.profile,
        "primary_id": said.primary_id,
        "local_id": list(said.local_ids),
        "version": _version(job),
    }
    # Safe to repeat: the events are made in this commit alone, and their ids follow from the job.
    spawn = announced(outfit, "org.waybill.ingest.job.completed", said.job_id, data, f"{job.ref} {said.job_id}", at)
    return Done(docs, message=caveats.message(job), spawn=spawn)


def _called(job: Record, ctx: Context, callback: Callback, at: float) -> dict[str, Any]:
    """Call. A second run after a crash calls again: the receiver gets the same job in the same state, under the same
    address.
    """
    outfit, said = outfit_of(ctx), submission.of_job(job)
    url = f"{callback.url.rstrip('/')}/mc/{quote(said.job_id, safe='')}"
    headers = {"content-type": "application/json; charset=utf-8", "idempotency-key": said.job_id}
    if callback.user or callback.password:
        headers["authorization"] = "Basic " + base64.b64encode(f"{callback.user}:{callback.password}".encode()).decode()
    try:
        answer = outfit.post(
            url, encode(state_of(job, at)), headers, reach=outfit.reach, timeout=outfit.settings.tell.callback_timeout
        )
    except NotPosted as error:
        words = f"The callback to {without_secrets(callback.url)} failed: {error}"
        if error.permanent:
            raise Fail(f"{words} Mend the receiver or the profile, then resume.") from None
        raise NotPosted(words, permanent=False) from None
    return {"status": answer.status, "at": at, "version": _version(job)}


def _was_called(job: Record) -> bool:
    """Whether the receiver knows of this very version: then somebody stopped the job after the call, and resumed it."""
    called = job.docs.get("called")
    return isinstance(called, dict) and called.get("version") is not None and called["version"] == _version(job)


def state_of(job: Record, at: float) -> dict[str, Any]:
    """The job's state as receivers know it; without what is empty."""
    said = submission.of_job(job)
    fields = {
        "xmlns:job": NAMESPACE,
        "job:jobID": said.job_id,
        "job:batchID": said.batch_id,
        "job:jobStatus": "COMPLETED",
        "job:primaryID": said.primary_id,
        "job:localID": "; ".join(said.local_ids),
        "job:packageName": without_secrets(said.filename),
        "job:objectCreator": said.creator,
        "job:objectTitle": said.title,
        "job:objectDate": said.date,
        "job:note": said.note,
        "job:submissionDate": said.submitted,
        "job:completionDate": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(at)),
        "job:updateFlag": said.update,
        "job:versionID": _version(job),
    }
    return {"job:jobState": {name: value for name, value in fields.items() if value not in ("", None)}}


def _version(job: Record) -> int | None:
    stored = job.docs.get("stored")
    found = stored.get("version") if isinstance(stored, dict) else None
    return found if isinstance(found, int) else None
