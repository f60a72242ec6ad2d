"""The audit: stored content is read again, least recently read first, and compared with its size and SHA-256.

    content that is due -> read -> intact: recorded        damaged: mail to the admins, then recorded as damaged

The inventory records when each content was last read and with which result, so that a round continues where the last
one ended, on whichever host. The mail is created before the damage is recorded: a crash in between repeats it, which
creates the same mail once, and never loses it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.storage import NotInStorage, StorageDamaged, StorageFinding
from waybill.engine import Engine
from waybill.index import Row
from waybill.maintenance import MaintenanceContext
from waybill.notify import make_mail, parse_recipients
from waybill.objects import ObjectsError
from waybill.record import Finding

DAY = 86400.0
MAX_BYTES = 20 * 2**30  # per round, so that workers can be stopped and other routines run
MAX_PATHS = 3  # files listed per damaged content
MAX_REPORTED = 100  # damaged contents listed in one mail

log = logging.getLogger("waybill.ingest")


class DamagedContent(NamedTuple):
    """Damaged content, and the files that use it."""

    ark: str
    place: str
    problem: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        files = f" It is {', '.join(self.files)}." if self.files else ""
        return f"{self.ark}: {self.problem}{files}"


class AuditProgress(NamedTuple):
    """The result of one round; `files` 0: nothing was due."""

    files: int = 0
    bytes: int = 0
    damaged: tuple[DamagedContent, ...] = ()


def audit_next(
    resources: IngestResources,
    engine: Engine,
    *,
    before: float | None = None,
    limit: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    who: str = "audit",
) -> AuditProgress:
    """Read some of the content that was last read before `before`, by default the configured number of days ago."""
    settings, inventory = resources.settings.audit, resources.inventory
    now = engine.store.now()
    due = datetime.fromtimestamp(now - settings.days * DAY if before is None else before, UTC)
    when = datetime.fromtimestamp(now, UTC)
    files, size, findings = 0, 0, list[tuple[Row, StorageFinding]]()
    for row, finding in _read_all(
        resources, inventory.list_due_audits(due, limit=settings.files_per_round if limit is None else limit)
    ):
        files, size = files + 1, size + int(row["size"])
        if finding is None:
            inventory.record_audit(row, None, when)  # safe to repeat: it has the time of the read
        else:
            findings.append((row, finding))
        if stop() or size >= MAX_BYTES:
            break
    damaged = tuple(_describe(resources, row, finding) for row, finding in findings)
    if damaged:
        _report_damage(resources, engine, damaged, [str(row["audited"]) for row, _ in findings], now, who)
    for row, finding in findings:
        inventory.record_audit(row, finding, when)  # safe to repeat; after the mail was created
    return AuditProgress(files, size, damaged)


def _read_all(resources: IngestResources, rows: list[Row]) -> Iterator[tuple[Row, StorageFinding | None]]:
    """Yield each row with its finding.

    Content that cannot be read is retried at the end, to tell a damaged file from unavailable storage.
    """
    unreadable: list[Row] = []
    checked_objects: set[str] = set()
    for row in rows:
        try:
            yield row, _check_row(resources, row, checked_objects)
        except ObjectsError:
            unreadable.append(row)
    for row in unreadable:
        try:
            yield row, _check_row(resources, row, checked_objects)
        except ObjectsError as error:
            # If nothing can be read, the storage is unavailable and this raises. If only this cannot be read, it is
            # damaged, for example by a bad block of the disk.
            next(iter(resources.objects.list(limit=1)), None)
            yield (
                row,
                StorageFinding(kind="missing", place=row["place"], message=f"{row['place']} cannot be read: {error}"),
            )


def _check_row(resources: IngestResources, row: Row, checked_objects: set[str]) -> StorageFinding | None:
    """Compare one place; and once for each object, whether its own inventory is there and valid."""
    ark = row["ark"]
    if found := resources.storage.check(ark, row["place"], row["size"], row["sha256"]):
        return found
    if ark not in checked_objects:
        checked_objects.add(ark)
        try:
            resources.storage.get_version(ark)
        except (StorageDamaged, NotInStorage) as error:
            return StorageFinding(kind="inventory", place=row["place"], message=str(error))
    return None


def _describe(resources: IngestResources, row: Row, finding: StorageFinding) -> DamagedContent:
    paths = resources.inventory.tables.query("paths_of", ark=row["ark"], place=row["place"], row_limit=MAX_PATHS)
    return DamagedContent(
        row["ark"], row["place"], finding.message, tuple(f"v{path['number']} {path['path']}" for path in paths)
    )


def _report_damage(
    resources: IngestResources,
    engine: Engine,
    damaged: tuple[DamagedContent, ...],
    before: list[str],
    now: float,
    who: str,
) -> None:
    for each in damaged:
        log.error("damaged content: %s", each)
    admins = parse_recipients(*resources.settings.notifications.admins)
    if not admins:
        return
    # The same damage, last read at the same time, gives the same key: the mail is created once.
    identity = "\n".join(f"{each.ark} {each.place} {at}" for each, at in zip(damaged, before, strict=True))
    key = f"audit/{hashlib.sha256(identity.encode()).hexdigest()}"
    lines = [str(each) for each in damaged[:MAX_REPORTED]]
    rest = f"\n... and {len(damaged) - MAX_REPORTED} more" if len(damaged) > MAX_REPORTED else ""
    text = (
        "Stored content was read again and is damaged:\n\n"
        + "\n".join(lines)
        + rest
        + "\n\nRestore it from a copy, then audit it again: waybill ingest audit OBJECT"
    )
    count = f"{len(damaged)} files" if len(damaged) > 1 else f"a file of {damaged[0].ark}"
    new = make_mail(to=admins, subject=f"DAMAGED: {count}", text=text, key=key, at=now)
    engine.submit(dataclasses.replace(new, idempotency_key=key), who=who)  # safe to repeat: by its idempotency key


def iter_known_damage(resources: IngestResources) -> Iterator[DamagedContent]:
    """Yield what the last audits found damaged and was not restored since."""
    after = ("", "")
    while rows := resources.inventory.list_damaged(after=after):
        for row in rows:
            yield DamagedContent(row["ark"], row["place"], row["result"], tuple(row["files"][:MAX_PATHS]))
        after = (rows[-1]["ark"], rows[-1]["place"])


@dataclass(frozen=True)
class ContentAuditRoutine:
    name: str = "ingest-audit"
    description: str = "Reads stored content again, some of it in each round, and reports what is damaged."
    poll_interval: float = 60.0
    per_host: bool = False
    has_routine_findings: bool = False

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        resources: IngestResources = context.resources_of("ingest")
        progress = audit_next(resources, context.engine, stop=context.stop, who=context.who)
        before = context.memory
        if progress.files:
            context.memory.update(
                files=before.get("files", 0) + progress.files,
                bytes=before.get("bytes", 0) + progress.bytes,
                damaged=before.get("damaged", 0) + len(progress.damaged),
            )
        for each in iter_known_damage(resources):
            remedy = f"restore it from a copy, then `waybill ingest audit {each.ark}`"
            yield Finding("damaged content", f"{each.ark} {each.place}", str(each), remedy, repairable=False)

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        return False  # only a copy has the right bytes
