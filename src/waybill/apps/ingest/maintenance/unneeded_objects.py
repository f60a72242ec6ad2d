"""Removes what ingest has put among the objects and nobody needs any more.

Uploads are below ingest/payloads/<batchID>.<random>/: the name leads to the batch, and the batch names the upload that
is its payload. An upload is removed

    at once         if its batch has ended: no work is left
    after a day     if there is no such batch, or the batch has another payload: the client gave up, or sent it twice

Lists and reports are removed with their records, by retention or with their batch:

    ingest/lists/<kind>/<id>/<claim version>/...      rows of a job or a batch
    ingest/reports/<batch>/<claim version>/...        the rows of the batch's reports

Staged bytes of deposits are below ingest/staged/, each deposit at its own place, until the deposit is stored
(storage/http_server.py). A place in which nothing was written for a day belongs to a client that gave up; if it returns,
it sends the bytes again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from waybill.apps.ingest.machine.batch import BATCH
from waybill.apps.ingest.payload import UPLOADS_FOLDER
from waybill.apps.ingest.storage.protocol import STAGED_PREFIX
from waybill.apps.ingest.storage.sources import OBJECT_SCHEME
from waybill.apps.ingest.submission import Submission
from waybill.files.staged_uploads import upload_key_of
from waybill.files.unneeded_objects import AbandonedFolderRoutine, OrphanedObjectRoutine, UnneededObjectRoutine
from waybill.maintenance import MaintenanceContext
from waybill.objects import ObjectInfo
from waybill.record import RecordNotFound, Ref

ENDED_STATES = BATCH.ended  # failed and open batches keep their payload


@dataclass(frozen=True)
class UploadRemovalRoutine(UnneededObjectRoutine):
    name: str = "ingest-uploads"
    description: str = "Removes uploads that no batch needs any more."
    rule: ClassVar[str] = "upload without a batch"
    prefixes: ClassVar[tuple[str, ...]] = (UPLOADS_FOLDER,)

    def explain_unneeded(self, context: MaintenanceContext, info: ObjectInfo) -> str | None:
        batch_id = upload_key_of(UPLOADS_FOLDER, info.name)
        if not batch_id:
            return None  # not named by us
        try:
            batch = context.store.get_by_idempotency_key("batch", batch_id)
        except RecordNotFound:
            return "belongs to no batch" if self.is_old(context, info) else None
        if Submission.from_batch(batch).url != f"{OBJECT_SCHEME}{info.name}":
            return f"is not the one that {batch.ref} was made with" if self.is_old(context, info) else None
        return f"belongs to {batch.ref}, which is {batch.state}" if batch.state in ENDED_STATES else None


@dataclass(frozen=True)
class ListRemovalRoutine(OrphanedObjectRoutine):
    name: str = "ingest-lists"
    description: str = "Removes lists and reports of removed batches and jobs."
    rule: ClassVar[str] = "list without a record"
    prefixes: ClassVar[tuple[str, ...]] = ("ingest/lists", "ingest/reports")

    def owner_of(self, name: str) -> Ref | None:
        return list_owner_of(name)


def list_owner_of(name: str) -> Ref | None:
    """Return the record that a list belongs to; None if the name is not one of ours."""
    match name.split("/"):
        case ["ingest", "lists", ("batch" | "job") as kind, id, _, *_]:
            return Ref(kind, id)
        case ["ingest", "reports", id, _, *_]:
            return Ref("batch", id)
    return None


@dataclass(frozen=True)
class StagingRemovalRoutine(AbandonedFolderRoutine):
    name: str = "ingest-staging"
    description: str = "Removes staged bytes of deposits that other services never finished."
    rule: ClassVar[str] = "staged bytes without a deposit"
    problem: ClassVar[str] = "was sent and never stored"
    prefixes: ClassVar[tuple[str, ...]] = (STAGED_PREFIX,)
