"""The base of the routines that remove unneeded objects below some places, a limited number in each round.

Each routine decides which objects are unneeded (upload_removal.py, list_removal.py, staging_removal.py). It is asked
twice, for the finding and again before the removal, because the object may be needed by then. A failing read removes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from waybill.maintenance import MaintenanceContext
from waybill.objects import ObjectInfo
from waybill.objects import ObjectNotFound as NoObject
from waybill.record import Finding

ROUND_SIZE = 5000  # objects of one place checked in one round


@dataclass(frozen=True)
class ObjectRemovalRoutine:
    age: float = 86400.0  # seconds before an object without a reference is removed
    name: str = ""
    description: str = ""
    poll_interval: float = 3600.0
    per_host: bool = False
    has_routine_findings: bool = True
    rule: ClassVar[str] = ""
    places: ClassVar[tuple[str, ...]] = ()

    def explain_unneeded(self, context: MaintenanceContext, info: ObjectInfo) -> str | None:
        """Return why the object is unneeded, as the end of a sentence; None if it is or may be needed."""
        raise NotImplementedError

    def is_old(self, context: MaintenanceContext, info: ObjectInfo) -> bool:
        return context.store.now() - info.modified.timestamp() > self.age

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        """Each round continues where the last one ended."""
        for place in self.places if context.objects is not None else ():
            assert context.objects is not None
            seen, last = 0, str(context.memory.get(place, ""))
            for info in context.objects.list(place, after=last, limit=ROUND_SIZE):
                if context.stop():
                    break
                seen, last = seen + 1, info.name
                if reason := self.explain_unneeded(context, info):
                    yield Finding(self.rule, info.name, f"{info.name} {reason}.", "remove it")
            context.memory[place] = last if seen == ROUND_SIZE else ""

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        if context.objects is None or not any(finding.where.startswith(f"{place}/") for place in self.places):
            return False
        try:
            info = context.objects.head(finding.where)
        except NoObject:
            return False
        # Checked again. Safe to repeat: then there is nothing left.
        return self.explain_unneeded(context, info) is not None and context.objects.delete(finding.where)
