"""Removes expired assemblies.

    Completed, expired -> Deleted            Failed for as long -> Deleted            Deleted -> files removed -> record removed

Only assemblies that were requested here are removed, and those imported from old queues, which have no files here and
no time of expiry: they are removed at the age at which others expire. Assemblies of other services are left to them.
Files that a worker with a lost session wrote after its assembly was removed are at a place without a record; they are
removed when they are a day old.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.access.orders import is_imported
from waybill.apps.ingest.documents import AssemblyOrder, PackedArchive
from waybill.apps.ingest.machine.access import ASSEMBLY
from waybill.apps.ingest.resources import IngestResources
from waybill.maintenance import MaintenanceContext, ref_of
from waybill.objects import Objects
from waybill.record import Conflict, Finding, Record, RecordNotFound
from waybill.rules import ActionRefused

DAY = 86400.0
EXPIRED_RULE, DELETED_RULE, STRAY_RULE = "assembly expired", "assembly deleted", "assembly without a record"


@dataclass(frozen=True)
class AssemblyExpiryRoutine:
    age: float = DAY  # seconds after which files without a record are removed
    round_size: int = 1000  # places that are checked in one round
    name: str = "ingest-expiry"
    description: str = "Removes assemblies that have expired or were deleted, and their files."
    poll_interval: float = 300.0
    per_host: bool = False
    has_routine_findings: bool = True

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        keep = _resources_of(context).settings.access.keep_seconds
        for kind in tokens.KINDS:
            for state in (ASSEMBLY.deleted, ASSEMBLY.completed, ASSEMBLY.failed):
                for record in _iter_assemblies(context, kind, state):
                    if state == ASSEMBLY.deleted:
                        yield Finding(
                            DELETED_RULE,
                            str(record.ref),
                            f"{record.ref} is deleted.",
                            "remove it and its files",
                            ref=record.ref,
                        )
                    elif _is_expired(record, context.store.now(), keep):
                        yield Finding(
                            EXPIRED_RULE, str(record.ref), f"{record.ref} has expired.", "delete it", ref=record.ref
                        )
        yield from self._find_strays(context)

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        objects = _resources_of(context).objects
        if finding.rule == STRAY_RULE:
            return _is_stray(context, finding.where) and tokens.remove_files(objects, finding.where) > 0
        try:
            record = context.store.get(*ref_of(finding))
            if not _is_ours(record):
                return False
            if finding.rule == EXPIRED_RULE:
                # Checked again: it may have been packed anew meanwhile. Safe to repeat: the second time it is already
                # Deleted.
                if not _is_expired(record, context.store.now(), _resources_of(context).settings.access.keep_seconds):
                    return False
                context.engine.act(record.ref, "delete", who=context.who, why="expired")
                record = context.store.get(*record.ref)
            if record.state != ASSEMBLY.deleted:
                return False
            if not is_imported(record):
                # safe to repeat: removed files stay removed
                tokens.remove_files(objects, tokens.place_of(tokens.token_of(record)))
            # last, so that after a crash the next round finds the record again
            context.engine.remove(record.ref, who=context.who, why="expired")
        except (RecordNotFound, ActionRefused, Conflict):
            return False
        return True

    def _find_strays(self, context: MaintenanceContext) -> Iterator[Finding]:
        objects, after = _resources_of(context).objects, str(context.memory.get("cursor", ""))
        before = datetime.fromtimestamp(context.store.now() - self.age, UTC)
        places = list(itertools.islice(_iter_places(objects, after), self.round_size))
        for place, modified in places:
            if modified < before and _is_stray(context, place):
                yield Finding(STRAY_RULE, place, f"{place} belongs to no assembly.", "remove it")
        context.memory["cursor"] = places[-1][0] if len(places) == self.round_size else ""


def _resources_of(context: MaintenanceContext) -> IngestResources:
    resources: IngestResources = context.resources_of("ingest")
    return resources


def _iter_assemblies(context: MaintenanceContext, kind: str, state: str) -> Iterator[Record]:
    return (record for record in context.store.each(kind, state=state, documents=True) if _is_ours(record))


def _is_ours(record: Record) -> bool:
    return is_imported(record) or (record.find_document(AssemblyOrder) is not None and bool(tokens.token_of(record)))


def _is_expired(record: Record, now: float, keep: float) -> bool:
    if record.state == ASSEMBLY.completed and not is_imported(record):
        packed = record.find_document(PackedArchive)
        return packed is not None and packed.expires < now
    return record.state in (ASSEMBLY.completed, ASSEMBLY.failed) and record.updated + keep < now


def _iter_places(objects: Objects, after: str) -> Iterator[tuple[str, datetime]]:
    """Yield the places of assemblies after a cursor, each with the modification time of its first object."""
    cursor = f"{after}/~" if after else ""
    while (info := next(iter(objects.list(tokens.ROOT, after=cursor, limit=1)), None)) is not None:
        name = info.name.removeprefix(f"{tokens.ROOT}/").partition("/")[0]
        place = f"{tokens.ROOT}/{name}"
        if tokens.is_place(name):
            yield place, info.modified
        cursor = f"{place}/~"  # every name at a place begins with a digit or a letter


def _is_stray(context: MaintenanceContext, place: str) -> bool:
    ref = tokens.read_pointer(_resources_of(context).objects, place)
    if ref is None:
        return True
    try:
        record = context.store.get(*ref)
    except RecordNotFound:
        return True
    token = tokens.token_of(record)
    return not token or tokens.place_of(token) != place
