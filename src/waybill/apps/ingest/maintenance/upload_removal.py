"""Removes uploads that no batch needs any more.

An upload is stored below ingest/payloads/<batchID>.<random>/: its name leads to its batch, and the batch names the
upload that is its payload. It is removed

    at once         if its batch is Completed or Deleted: no work is left
    after a day     if there is no such batch, or the batch has another payload: the client gave up, or sent it twice

Failed and open batches keep their payload. A failing read removes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from waybill.apps.ingest.maintenance.object_removal import ObjectRemovalRoutine
from waybill.apps.ingest.payload import UPLOADS_FOLDER
from waybill.apps.ingest.storage.sources import OBJECT_SCHEME
from waybill.apps.ingest.submission import Submission
from waybill.maintenance import MaintenanceContext
from waybill.objects import ObjectInfo
from waybill.record import RecordNotFound

ENDED_STATES = ("Completed", "Deleted")


@dataclass(frozen=True)
class UploadRemovalRoutine(ObjectRemovalRoutine):
    name: str = "ingest-uploads"
    description: str = "Removes uploads that no batch needs any more."
    rule: ClassVar[str] = "upload without a batch"
    places: ClassVar[tuple[str, ...]] = (UPLOADS_FOLDER,)

    def explain_unneeded(self, context: MaintenanceContext, info: ObjectInfo) -> str | None:
        batch_id, dot, _ = info.name.removeprefix(f"{UPLOADS_FOLDER}/").partition("/")[0].rpartition(".")
        if not dot:
            return None  # not named by us
        try:
            batch = context.store.get_by_idempotency_key("batch", batch_id)
        except RecordNotFound:
            return "belongs to no batch" if self.is_old(context, info) else None
        if Submission.from_batch(batch).url != f"{OBJECT_SCHEME}{info.name}":
            return f"is not the one that {batch.ref} was made with" if self.is_old(context, info) else None
        return f"belongs to {batch.ref}, which is {batch.state}" if batch.state in ENDED_STATES else None
