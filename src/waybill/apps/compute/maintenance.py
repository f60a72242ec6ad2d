"""What is removed without anybody asking: bytes that no entry names.

An entry that is replaced or removed notes its bytes as garbage in the same transaction; they are removed a few minutes
later, unless a link names them still. Bytes that were stored and never named, because the server ended in between, are
found by a walk over all of them, a day later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from waybill.apps.compute.entries import Entries
from waybill.apps.compute.storage import CONTENT_PREFIX, now_ms
from waybill.files.unneeded_objects import UnneededObjectRoutine
from waybill.maintenance import MaintenanceContext
from waybill.objects import ObjectInfo
from waybill.record import Finding

if TYPE_CHECKING:
    from waybill.apps.compute.resources import ComputeResources

ROUND_SIZE = 1000
DAY = 86400.0


def _resources_of(context: MaintenanceContext) -> ComputeResources:
    found: ComputeResources = context.resources_of("compute")
    return found


@dataclass(frozen=True)
class GarbageRemovalRoutine:
    """Safe to repeat and to interrupt: the bytes are removed first, and the note about them last."""

    name: str = "compute-garbage"
    description: str = "Removes bytes of objects that were replaced or removed."
    poll_interval: float = 60.0
    per_host: bool = False
    has_routine_findings: bool = True
    rule: ClassVar[str] = "bytes of a removed object"

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        resources = _resources_of(context)
        before = now_ms() - int(resources.settings.garbage_seconds * 1000)
        with resources.connections.open() as tables:
            rows = tables.query("garbage", before=before, row_limit=ROUND_SIZE)
        for row in rows:
            yield Finding(self.rule, row["content"], f"No entry needs {row['content']} any more.", "remove it")

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        resources = _resources_of(context)
        with resources.connections.open() as tables:
            if not Entries(tables).is_named(finding.where):
                resources.storage.objects.delete(finding.where)
            tables.execute("forget_garbage", content=finding.where)
        return True


@dataclass(frozen=True)
class UnnamedContentRoutine(UnneededObjectRoutine):
    name: str = "compute-unnamed"
    description: str = "Removes bytes of objects whose server ended before it had named them."
    age: float = DAY
    rule: ClassVar[str] = "bytes without an entry"
    prefixes: ClassVar[tuple[str, ...]] = (CONTENT_PREFIX,)

    def explain_unneeded(self, context: MaintenanceContext, info: ObjectInfo) -> str | None:
        if not self.is_old(context, info):
            return None
        with _resources_of(context).connections.open() as tables:
            return None if Entries(tables).is_named(info.name) else "is named by no entry"


ROUTINES = (GarbageRemovalRoutine(), UnnamedContentRoutine())
