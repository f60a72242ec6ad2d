"""The store's own consistency rules, checked slowly over a connection of its own. What violates them in two rounds in a
row is repaired.

Once is not enough: other services write a ZooKeeper tree in many small steps, and a rule may not hold for a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from waybill.maintenance.routine import MAX_FINDINGS, MaintenanceContext
from waybill.record import Finding


@dataclass(frozen=True)
class ConsistencyRoutine:
    name: str = "consistency"
    description: str = "Checks the store against its own rules and repairs what stays wrong."
    poll_interval: float = 3600.0
    per_host: bool = False
    has_routine_findings: bool = True

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        if context.open_store is None:
            return
        previous = set(context.memory.get("findings", ()))
        found: list[str] = []
        with closing(context.open_store()) as store:
            for finding in store.check():
                if context.stop() or len(found) >= MAX_FINDINGS:
                    break
                name = f"{finding.rule} {finding.where}"
                found.append(name)
                if name in previous:
                    yield finding
        context.memory["findings"] = found[:200]

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        return context.store.repair(finding)
