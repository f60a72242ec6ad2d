"""The events of archive, told in the commits of what they report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.apps.archive.machine import MigrationDocument
from waybill.events import Event, EventType
from waybill.record import Record

if TYPE_CHECKING:
    from waybill.apps.archive.stages import Stage

STORED = EventType(
    "archive.migration.stored", "Every archive of a migration was read back from the storage, and is what was sent."
)
DELETED = EventType("archive.migration.deleted", "A migration was removed from its storage.")
ROTTEN = EventType("archive.migration.rotten", "An archive on a storage is no longer what was put there.")
EVENTS = (STORED, DELETED, ROTTEN)


def make_stored_event(stage: Stage) -> Event:
    files = stage.files
    return _make_event(stage, STORED, {"archives": files.archives, "files": files.files, "bytes": files.bytes})


def make_deleted_event(stage: Stage) -> Event:
    return _make_event(stage, DELETED, {})


def make_rotten_event(record: Record, archive: int, problem: str) -> Event:
    migration = record.document(MigrationDocument)
    data = {
        "migration": migration.number,
        "owner": record.owner,
        "workspace": migration.workspace,
        "storage": migration.storage,
        "archive": archive,
        "problem": problem,
    }
    return Event(ROTTEN, str(migration.number), data)


def _make_event(stage: Stage, event_type: EventType, more: dict[str, int]) -> Event:
    migration = stage.migration
    data = {
        "migration": migration.number,
        "owner": stage.record.owner,
        "workspace": migration.workspace,
        "storage": migration.storage,
        "label": migration.label,
        **more,
    }
    return Event(event_type, str(migration.number), data)
