"""Pending: prepares a batch for its jobs. Nothing is fetched here; whatever is large about a batch comes later."""

from __future__ import annotations

from typing import Any

from waybill.apps.ingest.merritt.foreign_records import find_collections_document, wait_on_hold
from waybill.apps.ingest.submission import Submission
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(batch: Record, ctx: StepContext) -> Outcome:
    collections = find_collections_document(batch, ctx)
    if (wait := wait_on_hold(collections, ctx)) is not None:
        return wait
    documents = {**_reset_documents(batch), **collections}
    if "spawned" in batch.documents:  # another service has started it again
        return Done(documents)
    if not Submission.from_batch(batch).url or ctx.count_by_state("job", parent=batch.ref):
        return Done(documents, message="The service that created it creates its jobs.")
    return Done({"spawned": {"count": 0, "whole": False}, **documents})


def _reset_documents(batch: Record) -> dict[str, Any]:
    """The documents of a batch that failed and starts again: the failure is removed, and no job is created twice."""
    if "failure" not in batch.documents:
        return {}
    count = batch.documents.get("spawned", {}).get("count", 0)
    documents: dict[str, Any] = {"failure": None}
    if "spawned" in batch.documents:
        documents["spawned"] = {"count": count, "whole": False}
    if "plan" in batch.documents and not count:  # the payload is read again, or the first job awaited again
        documents["plan"] = None
    return documents
