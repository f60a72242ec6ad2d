"""Removes staged bytes of deposits that another service never finished.

They are below ingest/staged/, each deposit at its own place, until the deposit is stored (storage/http_server.py). A
place in which nothing was written for a day belongs to a client that gave up; if it returns, it sends the bytes again.
The newest object of a place decides: an upload may take days, and its first bytes are needed to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from waybill.apps.ingest.maintenance.object_removal import ROUND_SIZE, ObjectRemovalRoutine
from waybill.apps.ingest.storage.protocol import STAGED_PREFIX
from waybill.maintenance import MaintenanceContext
from waybill.objects import ObjectInfo
from waybill.record import Finding


@dataclass(frozen=True)
class StagingRemovalRoutine(ObjectRemovalRoutine):
    name: str = "ingest-staging"
    description: str = "Removes staged bytes of deposits that other services never finished."
    rule: ClassVar[str] = "staged bytes without a deposit"
    places: ClassVar[tuple[str, ...]] = (STAGED_PREFIX,)

    def is_abandoned(self, context: MaintenanceContext, newest: ObjectInfo) -> bool:
        """Whether the place with this newest object is abandoned."""
        return self.is_old(context, newest)

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        """Yield a finding per abandoned place. A place is read to its end; the next round continues after it."""
        if context.objects is None:
            return
        count = 0
        staged = context.objects.list(STAGED_PREFIX, after=str(context.memory.get(STAGED_PREFIX, "")))
        for place, infos in groupby(staged, _place_of):
            newest = last = None
            for last in infos:
                count, newest = count + 1, max(newest or last, last, key=_modified_time_of)
            assert newest is not None
            assert last is not None
            if self.is_abandoned(context, newest):
                yield Finding(self.rule, place, f"{place} was sent and never stored.", "remove it")
            if count >= ROUND_SIZE or context.stop():
                context.memory[STAGED_PREFIX] = last.name
                return
        context.memory[STAGED_PREFIX] = ""

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        """Check again, then remove the place. Safe to repeat and to interrupt: the rest of the place stays old."""
        if context.objects is None or _place_of_name(finding.where) != finding.where:
            return False
        newest = max(context.objects.list(finding.where), key=_modified_time_of, default=None)
        if newest is None or not self.is_abandoned(context, newest):
            return False
        for info in context.objects.list(finding.where):
            if context.stop():
                return False
            context.objects.delete(info.name)
        return True


def _modified_time_of(info: ObjectInfo) -> float:
    return info.modified.timestamp()


def _place_of(info: ObjectInfo) -> str:
    return _place_of_name(info.name)


def _place_of_name(name: str) -> str:
    place, _, _ = name.removeprefix(f"{STAGED_PREFIX}/").partition("/")
    return f"{STAGED_PREFIX}/{place}"
