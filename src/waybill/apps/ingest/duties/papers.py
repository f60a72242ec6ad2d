"""Papers: lists and reports that lie beside records in the objects go when their record has gone.

    ingest/lists/<kind>/<id>/<attempt>/...      rows of a job or a batch
    ingest/reports/<batch>/<attempt>/...        what a batch's reports were made of

A paper is younger than its record, and its record is removed by retention or with its batch. One that is a day old and whose record is not
there is needed by nobody: a step that writes one holds its record. A look that fails removes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from waybill.duties import Hand
from waybill.objects import NotFound as NoObject
from waybill.objects import ObjectInfo
from waybill.record import Finding, NotFound, Ref

PORTION = 5000  # objects looked at in one round
PLACES = ("ingest/lists", "ingest/reports")


@dataclass(frozen=True)
class Papers:
    age: float = 86400.0  # seconds
    name: str = "ingest-papers"
    doc: str = "Removes lists and reports of batches and jobs that are gone."
    every: float = 3600.0
    per_host: bool = False

    def check(self, hand: Hand) -> Iterator[Finding]:
        """A portion of each place with each round; the next one goes on where this one ended."""
        if hand.objects is None:
            return
        for place in PLACES:
            seen, last, known = 0, str(hand.memory.get(place, "")), dict[Ref, bool]()
            for info in hand.objects.list(place, after=last, limit=PORTION):
                if hand.stop():
                    return
                seen, last, ref = seen + 1, info.name, whose(info.name)
                if ref is None or not self._old(info):
                    continue
                if ref not in known:  # names come in order, so one answer is enough for all papers of a record
                    known = {ref: _is_there(hand, ref)}
                if not known[ref]:
                    yield Finding("paper without a record", info.name, f"{info.name} belongs to {ref}, which is gone.", "remove it")
            hand.memory[place] = last if seen == PORTION else ""

    def mend(self, hand: Hand, finding: Finding) -> bool:
        ref = whose(finding.where)
        if hand.objects is None or ref is None:
            return False
        try:
            info = hand.objects.head(finding.where)
        except NoObject:
            return False
        # Looked at again. Safe to repeat: there is nothing left then.
        return self._old(info) and not _is_there(hand, ref) and hand.objects.delete(finding.where)

    def _old(self, info: ObjectInfo) -> bool:
        return time.time() - info.modified.timestamp() > self.age


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
