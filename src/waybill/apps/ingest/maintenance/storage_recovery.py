"""Finishes or removes what interrupted writes left in storage, some objects in each round, all of them in turn.

Running writes are not disturbed: only leftovers older than any write can take are removed, and only what the object's
own root inventory says is written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.storage import OcflStorage
from waybill.maintenance import MaintenanceContext
from waybill.record import Finding

DAY = 86400.0
_REMEDY = (
    "`waybill ingest rebuild --all` restores a lost inventory.json from the newest version; anything else from a copy"
)


@dataclass(frozen=True)
class StorageRecoveryRoutine:
    older_than: float = 7 * DAY  # seconds; no client waits longer for a write
    round_size: int = 200  # objects in one round
    name: str = "ingest-recovery"
    description: str = "Finishes or removes what interrupted writes left in storage."
    poll_interval: float = 600.0
    per_host: bool = False
    has_routine_findings: bool = False

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        resources: IngestResources = context.resources_of("ingest")
        storage = resources.storage
        if not isinstance(storage, OcflStorage):
            return  # another service recovers its own storage
        # Finds and repairs in one, as the store's own maintenance. Safe to repeat: then nothing is left to do.
        cursor, done = storage.recover_page(
            self.older_than, str(context.memory.get("cursor", "")), limit=self.round_size
        )
        context.memory["cursor"] = cursor  # empty: start again
        for field, count in (
            ("repaired", sum(len(d.repaired_places) for _, d in done)),
            ("removed", sum(len(d.removed_places) for _, d in done)),
        ):
            if count:
                context.memory[field] = int(context.memory.get(field, 0)) + count
        for at, recovered in done:
            if recovered.error:
                yield Finding("damaged object", at, recovered.error, _REMEDY, repairable=False)

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        return False
