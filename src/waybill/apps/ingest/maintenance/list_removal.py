"""Removes the lists and reports of removed batches and jobs.

    ingest/lists/<kind>/<id>/<claim version>/...      rows of a job or a batch
    ingest/reports/<batch>/<claim version>/...        the rows of the batch's reports

A list is written after its record was created, by a step that has claimed it; records are removed by retention or with
their batch. So a list that is a day old and has no record is not needed. A failing read removes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from waybill.apps.ingest.maintenance.object_removal import ObjectRemovalRoutine
from waybill.maintenance import MaintenanceContext
from waybill.objects import ObjectInfo
from waybill.record import RecordNotFound, Ref


@dataclass(frozen=True)
class ListRemovalRoutine(ObjectRemovalRoutine):
    name: str = "ingest-lists"
    description: str = "Removes lists and reports of removed batches and jobs."
    rule: ClassVar[str] = "list without a record"
    places: ClassVar[tuple[str, ...]] = ("ingest/lists", "ingest/reports")

    def explain_unneeded(self, context: MaintenanceContext, info: ObjectInfo) -> str | None:
        ref = owner_of(info.name)
        unneeded = ref is not None and self.is_old(context, info) and not _has_record(context, ref)
        return f"belongs to {ref}, which is removed" if unneeded else None


def owner_of(name: str) -> Ref | None:
    """Return the record that a list belongs to; None if the name is not one of ours."""
    match name.split("/"):
        case ["ingest", "lists", ("batch" | "job") as kind, id, _, *_]:
            return Ref(kind, id)
        case ["ingest", "reports", id, _, *_]:
            return Ref("batch", id)
    return None


def _has_record(context: MaintenanceContext, ref: Ref) -> bool:
    try:
        context.store.get(*ref)
    except RecordNotFound:
        return False
    return True
