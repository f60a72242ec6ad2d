"""The store's own indexes: records that wait for a lock that is free or a hold that is cleared, counters to fold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.maintenance.routine import MaintenanceContext
from waybill.record import Finding


@dataclass(frozen=True)
class StoreIndexRoutine:
    name: str = "store-indexes"
    description: str = "Folds the store's counters and unblocks records that wait for a free lock or a cleared hold."
    poll_interval: float = 10.0
    per_host: bool = False
    has_routine_findings: bool = True

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        # The store finds and repairs in one transaction each, so nothing is reported here; `doctor` runs the store's
        # own check.
        context.memory["maintained"] = context.store.maintain_indexes()
        return iter(())

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        return False
