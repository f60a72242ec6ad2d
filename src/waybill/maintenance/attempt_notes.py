"""Removes notes about failed attempts (waybill.worker.attempts): of records that are removed, and all after a month."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.maintenance.routine import MaintenanceContext
from waybill.objects import ObjectInfo, ObjectNotFound
from waybill.record import Finding
from waybill.worker import attempts

ROUND_SIZE = 2000  # notes that one round looks at
DAY = 86400.0


@dataclass(frozen=True)
class AttemptNoteRoutine:
    keep: float = 30 * DAY
    name: str = "attempt-notes"
    description: str = "Removes notes about failed attempts, of removed records and after a month."
    poll_interval: float = 3600.0
    per_host: bool = False
    has_routine_findings: bool = True

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        """Each round continues where the last one ended."""
        if context.objects is None:
            return
        seen, last = 0, str(context.memory.get("after", ""))
        for info in context.objects.list(attempts.FOLDER, after=last, limit=ROUND_SIZE):
            if context.stop():
                break
            seen, last = seen + 1, info.name
            if self._is_unneeded(context, info):
                yield Finding(
                    "notes are needed", info.name, f"{info.name} is old, or its record is removed.", "remove it"
                )
        context.memory["after"] = last if seen == ROUND_SIZE else ""

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        if context.objects is None or not finding.where.startswith(f"{attempts.FOLDER}/"):
            return False
        try:
            info = context.objects.head(finding.where)
        except ObjectNotFound:
            return False
        # Checked again. Safe to repeat: then there is nothing left.
        return self._is_unneeded(context, info) and context.objects.delete(info.name)

    def _is_unneeded(self, context: MaintenanceContext, info: ObjectInfo) -> bool:
        age = context.store.now() - info.modified.timestamp()
        ref = attempts.owner_of(info.name)
        return age > self.keep or (age > DAY and ref is not None and not context.has_record(ref))
