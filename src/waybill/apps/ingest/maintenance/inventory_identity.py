"""Notices an inventory that is new, older than the store knows, or another store's; and lets both grow older together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.apps.ingest.inventory import identity
from waybill.apps.ingest.resources import IngestResources
from waybill.maintenance import MaintenanceContext
from waybill.record import Finding


@dataclass(frozen=True)
class InventoryIdentityRoutine:
    name: str = identity.NAME
    description: str = "Notices an inventory that is new, older than the store knows, or another store's."
    poll_interval: float = 60.0
    per_host: bool = False
    has_routine_findings: bool = False

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        resources: IngestResources = context.resources_of("ingest")
        known = int(context.memory.get("epoch", 0))
        problem = identity.find_problem(
            resources.inventory,
            resources.storage,
            lambda id: context.store.remember(identity.NAME, id),
            known,
            resources.draw_random_bytes,
        )
        if problem:
            yield Finding("incomplete inventory", "the inventory", problem, identity.REMEDY, repairable=False)
        else:
            context.memory["epoch"] = identity.raise_epoch(
                resources.inventory
            )  # the store knows it when the round ends

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        return False  # it reads all of storage: an operator starts it
