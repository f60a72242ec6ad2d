"""What is repaired, removed and read again without anybody asking.

archive-requests      removes requests that ended long ago, of migrations that live
archive-submissions   removes what a PUT entered that never came to be
archive-quotas        compares every quota with what its migrations hold
archive-staging       removes staged archives that no request needs
archive-scrub         reads archives on storage again
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from waybill.apps.archive.catalogue import MigrationRow
from waybill.apps.archive.checking import check_archive
from waybill.apps.archive.events import make_rotten_event
from waybill.apps.archive.machine import (
    INTAKE,
    MIGRATION,
    QUOTA,
    REQUEST,
    MigrationCharge,
    MigrationDocument,
    MoveCharge,
    MoveRequest,
    QuotaDocument,
    RequestDocument,
)
from waybill.apps.archive.resources import ArchiveResources
from waybill.apps.archive.service.requests import migration_ref
from waybill.apps.archive.storages import ExternalStorageError
from waybill.errors import ActionRefused
from waybill.maintenance import MaintenanceContext
from waybill.record import Conflict, Finding, Record, RecordNotFound, Ref

HOUR = 3600.0
SCRUB_BATCH = 20  # archives that one round reads
SCRUB_SECONDS = 300.0  # after which a round begins no other archive


def _resources_of(context: MaintenanceContext) -> ArchiveResources:
    return cast(ArchiveResources, context.resources_of("archive"))


@dataclass(frozen=True)
class EndedRequests:
    """The engine's retention leaves a child to its parent; a migration lives longer than the requests that read it."""

    name: str = "archive-requests"
    description: str = "Removes requests that ended long ago, of migrations that are still there."
    poll_interval: float = HOUR
    per_host: bool = False
    has_routine_findings: bool = True

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        now = context.store.now()
        for state in REQUEST.states:
            keep = context.retention.get(f"{REQUEST.name}.{state.name}", state.keep)
            if keep is None or state.open:
                continue
            for record in context.store.each(REQUEST.name, state=state.name, page_size=500):
                if now - record.updated > keep and record.session is None:
                    yield Finding(
                        "requests are kept for a while",
                        str(record.ref),
                        "it ended long ago",
                        "remove it",
                        ref=record.ref,
                    )

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        assert finding.ref is not None
        try:
            context.engine.remove(finding.ref, who=context.who, why="it ended long ago")
        except (RecordNotFound, ActionRefused, Conflict):
            return False
        return True


@dataclass(frozen=True)
class LostSubmissions:
    """A PUT enters its number, row and paths before its commit; a crash between leaves them."""

    name: str = "archive-submissions"
    description: str = "Removes what a PUT entered in the catalogue that was never submitted."
    poll_interval: float = HOUR
    per_host: bool = False
    has_routine_findings: bool = True

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        before = context.store.now() - HOUR
        page: list[MigrationRow] = []
        with _resources_of(context).connections.open() as tables:
            for row in tables.iter_migrations():
                if row.made < before and row.removed is None:
                    page.append(row)
                if len(page) == 200:
                    yield from self._find_lost(context, page)
                    page = []
            yield from self._find_lost(context, page)

    def _find_lost(self, context: MaintenanceContext, rows: list[MigrationRow]) -> Iterator[Finding]:
        known = context.store.get_many([migration_ref(row.number) for row in rows]) if rows else {}
        for row in rows:
            if (ref := migration_ref(row.number)) not in known:
                yield Finding("migrations have a record", str(ref), "it was never submitted", "remove its row", ref=ref)

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        assert finding.ref is not None
        number = int(finding.ref.id.removeprefix("mig"))
        with _resources_of(context).connections.open() as tables:
            if tables.sum_archives(number)[0]:
                return (
                    False  # it has got further than that: its record was lost otherwise, and nothing of it is removed
                )
            tables.forget_migration(number)
        return True


@dataclass(frozen=True)
class QuotaConsistency:
    """A charge and its quota change in one commit, so a quota that is the same before and after its charges were summed must
    be their sum.
    """

    name: str = "archive-quotas"
    description: str = "Compares quotas with what their migrations hold."
    poll_interval: float = 6 * HOUR
    per_host: bool = False
    has_routine_findings: bool = False

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        quotas = list(context.store.each(QUOTA.name, state="OPEN", documents=True))
        sums = _sum_charges(context)
        now = context.store.get_many([quota.ref for quota in quotas]) if quotas else {}
        for quota in quotas:
            if (again := now.get(quota.ref)) is None or again.version != quota.version:
                continue  # it is in use; the next round compares it
            document = quota.document(QuotaDocument)
            used, reserved = sums.get((document.workspace, document.storage), (0, 0))
            if (used, reserved) != (document.used, document.reserved):
                yield Finding(
                    "a quota is the sum of its migrations",
                    str(quota.ref),
                    f"it says {document.used} used and {document.reserved} reserved; its migrations hold {used} and {reserved}",
                    "write what they hold",
                    ref=quota.ref,
                )

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        assert finding.ref is not None
        for found in self.check(context):
            if found.ref == finding.ref:
                document = context.store.get(*finding.ref).document(QuotaDocument)
                used, reserved = _sum_charges(context).get((document.workspace, document.storage), (0, 0))
                context.engine.act(
                    finding.ref, "correct", who=context.who, args={"used": used, "reserved": reserved}, confirmed=True
                )
                return True
        return False


def _sum_charges(context: MaintenanceContext) -> dict[tuple[str, str], tuple[int, int]]:
    """What migrations and moves hold, by workspace and storage."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}

    def add(workspace: str, storage: str, used: int, reserved: int) -> None:
        have = sums.get((workspace, storage), (0, 0))
        sums[workspace, storage] = have[0] + used, have[1] + reserved

    for record in context.store.each(MIGRATION.name, documents=True):
        if (charge := record.find_document(MigrationCharge)) is not None:
            add(record.document(MigrationDocument).workspace, charge.storage, charge.used, charge.reserved)
    for record in context.store.each(REQUEST.name, documents=True):
        if (move := record.find_document(MoveCharge)) is not None and not _is_deleted(context, record):
            add(record.document(RequestDocument).workspace, record.document(MoveRequest).to_storage, 0, move.reserved)
    return sums


def _is_deleted(context: MaintenanceContext, request: Record) -> bool:
    ref = Ref(MIGRATION.name, request.document(RequestDocument).migration)
    found = context.store.get_many([ref]).get(ref)
    return found is None or found.state == "DELETED"


@dataclass(frozen=True)
class StagingSweep:
    name: str = "archive-staging"
    description: str = "Removes staged archives of migrations that no request is working on."
    poll_interval: float = HOUR
    per_host: bool = False
    has_routine_findings: bool = True

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        staging = _resources_of(context).staging
        for folder in sorted(staging.glob("migration_*")) if staging.is_dir() else ():
            digits = folder.name.removeprefix("migration_")
            if not digits.isdecimal():
                continue
            ref = migration_ref(int(digits))
            found = context.store.find(REQUEST.name, parent=ref, newest=True, limit=1000).records
            if not any(record.open for record in found):
                yield Finding(
                    "staged archives are needed", str(folder), "no request works on its migration", "remove it", ref=ref
                )
        intakes = _resources_of(context).intake_folder
        for folder in sorted(intakes.iterdir()) if intakes.is_dir() else ():
            ref = Ref(INTAKE.name, folder.name)
            if ref not in context.store.get_many([ref]):
                yield Finding("copies are taken in", str(folder), "its intake is gone", "remove it", ref=ref)

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        assert finding.ref is not None
        if finding.ref.kind == INTAKE.name:
            # the objects that it was copied from are where they were
            if finding.ref in context.store.get_many([finding.ref]):
                return False
            shutil.rmtree(_resources_of(context).intake_folder / finding.ref.id)
            return True
        folder = _resources_of(context).staging / f"migration_{finding.ref.id.removeprefix('mig')}"
        found = context.store.find(REQUEST.name, parent=finding.ref, newest=True, limit=1000).records
        if any(record.open for record in found) or not folder.exists():
            return False
        shutil.rmtree(folder)  # archives are packed again by whoever needs them
        return True


@dataclass(frozen=True)
class Scrub:
    """Reads the archives that were not read for the longest time. What it finds is for people: nothing is changed."""

    name: str = "archive-scrub"
    description: str = "Reads archives on storage again, and reports those that are not what was put there."
    poll_interval: float = 600.0
    per_host: bool = False
    has_routine_findings: bool = True

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        resources, now = _resources_of(context), context.store.now()
        if not resources.settings.scrub:
            return
        with resources.connections.open() as tables:
            due = tables.list_archives_to_scrub(now - resources.settings.scrub, SCRUB_BATCH)
        began = time.monotonic()
        for row in due:
            if time.monotonic() - began > SCRUB_SECONDS:
                return
            with suppress(ExternalStorageError):  # a storage that is unavailable is read when it is back
                if self._read(context, row):
                    yield Finding(
                        "archives are what was put there",
                        f"archive {row['number']} of migration {row['migration']}",
                        "it is not",
                        "ask the storage's operator; restore it from another copy",
                        repairable=False,
                    )

    def _read(self, context: MaintenanceContext, row: dict[str, Any]) -> bool:
        """Whether an archive is rotten."""
        resources = _resources_of(context)
        found = context.store.get_many([migration_ref(row["migration"])]).get(migration_ref(row["migration"]))
        if found is None or found.state != "ON_STORAGE":
            return False
        document = found.document(MigrationDocument)
        result = check_archive(
            resources, storage_name=document.storage, container=document.container, migration=row["migration"], number=row["number"],
            name=row["name"], size=row["size"], sha256=row["sha256"], now=context.store.now(),
        )  # fmt: skip
        if result.problem:
            event = make_rotten_event(found, row["number"], result.problem)
            context.engine.submit_all([], events=[event], who=context.who)
        return bool(result.problem)

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        return False


ROUTINES = (EndedRequests(), LostSubmissions(), QuotaConsistency(), StagingSweep(), Scrub())
