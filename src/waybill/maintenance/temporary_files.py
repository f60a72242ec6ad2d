"""Temporary files of uploads that were never completed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.maintenance.routine import MaintenanceContext
from waybill.record import Finding


@dataclass(frozen=True)
class TemporaryFileRoutine:
    min_age: float = 86400.0
    name: str = "temporary-files"
    description: str = "Removes temporary files of uploads that were never completed."
    poll_interval: float = 3600.0
    per_host: bool = False
    has_routine_findings: bool = True

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        if context.objects is not None:
            context.memory["removed"] = context.objects.sweep(self.min_age)
        return iter(())

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        return False
