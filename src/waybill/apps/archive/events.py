"""The events of archive, sent to the webhooks that subscribe to them, from the commits of what they report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.application import EventType
from waybill.apps.archive.machine import MigrationDocument
from waybill.notify import make_webhook_deliveries
from waybill.record import Record
from waybill.step import New

if TYPE_CHECKING:
    from waybill.apps.archive.resources import ArchiveResources
    from waybill.apps.archive.stages import Stage

STORED = EventType(
    "archive.migration.stored", "Every archive of a migration was read back from the storage, and is what was sent."
)
DELETED = EventType("archive.migration.deleted", "A migration was removed from its storage.")
ROTTEN = EventType("archive.migration.rotten", "An archive on a storage is no longer what was put there.")
EVENTS = (STORED, DELETED, ROTTEN)


def make_stored_events(stage: Stage) -> tuple[New, ...]:
    return _make_events(
        stage, STORED, {"archives": stage.files.archives, "files": stage.files.files, "bytes": stage.files.bytes}
    )


def make_deleted_events(stage: Stage) -> tuple[New, ...]:
    return _make_events(stage, DELETED, {})


def make_rotten_events(
    resources: ArchiveResources, record: Record, archive: int, problem: str, *, at: float
) -> tuple[New, ...]:
    """One for each day on which an archive is found to be rotten: the same key is the same event."""
    migration = record.document(MigrationDocument)
    return make_webhook_deliveries(
        resources.environment.config.webhooks,
        event_type=ROTTEN,
        source="/archive",
        subject=str(migration.number),
        data={
            "migration": migration.number,
            "owner": record.owner,
            "workspace": migration.workspace,
            "storage": migration.storage,
            "archive": archive,
            "problem": problem,
        },
        key=f"{record.ref} {archive} {int(at // 86400)}",
        at=at,
    )


def _make_events(stage: Stage, event_type: EventType, more: dict[str, int]) -> tuple[New, ...]:
    migration = stage.migration
    return make_webhook_deliveries(
        stage.resources.environment.config.webhooks,
        event_type=event_type,
        source="/archive",
        subject=str(migration.number),
        data={
            "migration": migration.number,
            "owner": stage.record.owner,
            "workspace": migration.workspace,
            "storage": migration.storage,
            "label": migration.label,
            **more,
        },
        key=f"{stage.record.ref} {event_type.name}",
        at=stage.ctx.now(),
    )
