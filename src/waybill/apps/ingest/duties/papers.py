"""Papers: lists and reports that lie beside records in the objects go when their record has gone.

    ingest/lists/<kind>/<id>/<attempt>/...      rows of a job or a batch
    ingest/reports/<batch>/<attempt>/...        what a batch's reports were made of

A paper is younger than its record, and its record is removed by retention or with its batch. One that is a day old and
whose record is not there is needed by nobody: a step that writes one holds its record. A look that fails removes
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from waybill.apps.ingest.duties.sweeping import Sweep
from waybill.duties import Hand
from waybill.objects import ObjectInfo
from waybill.record import NotFound, Ref


@dataclass(frozen=True)
class Papers(Sweep):
    name: str = "ingest-papers"
    doc: str = "Removes lists and reports of batches and jobs that are gone."
    rule: ClassVar[str] = "paper without a record"
    places: ClassVar[tuple[str, ...]] = ("ingest/lists", "ingest/reports")

    def needless(self, hand: Hand, info: ObjectInfo) -> str | None:
        ref = whose(info.name)
        gone = ref is not None and self.old(hand, info) and not _is_there(hand, ref)
        return f"belongs to {ref}, which is gone" if gone else None


def whose(name: str) -> Ref | None:
    """The record that a paper belongs to; None: it is none of ours."""
    match name.split("/"):
        case ["ingest", "lists", ("batch" | "job") as kind, id, _, *_]:
            return Ref(kind, id)
        case ["ingest", "reports", id, _, *_]:
            return Ref("batch", id)
    return None


def _is_there(hand: Hand, ref: Ref) -> bool:
    try:
        hand.store.get(*ref)
    except NotFound:
        return False
    return True
