"""What users see: migrations with their requests, files, labels, tags, quotas, findings; as plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Any

from waybill import views
from waybill.apps.archive.catalogue import ArchiveRow, FileRow, MigrationRow, decode_path
from waybill.apps.archive.catalogue.tables import SearchBy
from waybill.apps.archive.files import FileFailure, to_printable
from waybill.apps.archive.machine import (
    REQUEST,
    DeleteRequest,
    GetRequest,
    MigrationCharge,
    MigrationDocument,
    MigrationFiles,
    MoveRequest,
    QuotaDocument,
    RequestDocument,
    RequestReport,
)
from waybill.apps.archive.machine.request import FLOWS, stage_of
from waybill.apps.archive.service.access import Caller, can_read, check_read, check_write
from waybill.apps.archive.service.quotas import quota_ref
from waybill.apps.archive.service.requests import check_label, migration_ref
from waybill.engine import Engine
from waybill.errors import InputError, NotFound
from waybill.manifests.record_lists import read_list
from waybill.record import Record

if TYPE_CHECKING:
    from waybill.apps.archive.resources import ArchiveResources

MAX_TAG = 200
MAX_PAGE = 1000


class ArchiveMigrations:
    """All calls block."""

    def __init__(self, resources: ArchiveResources, open_engine: Callable[[], AbstractContextManager[Engine]]) -> None:
        self._resources = resources
        self._open_engine = open_engine

    # --- migrations

    def find(self, caller: Caller, number: int) -> MigrationRow:
        """Raises NotFound, or ActionRefused for one that the caller may not see."""
        with self._resources.connections.open() as tables:
            row = tables.find_migration(number)
        if row is None:
            raise NotFound(f"There is no migration {number}.", code="unknown-migration")
        check_read(self._resources, caller, row)
        return row

    def iter_visible(
        self,
        caller: Caller,
        *,
        workspace: str = "",
        owner: str = "",
        label: str = "",
        tag: str = "",
        newest: bool = False,
    ) -> Iterator[MigrationRow]:
        """Those that the caller may see. `tag`: "key" or "key=value"."""
        key, _, value = tag.partition("=")
        with self._resources.connections.open() as tables:
            if key:
                rows: Iterator[MigrationRow] = (
                    row
                    for row in tables.iter_migrations_by_tag(key, value)
                    if owner in ("", row.owner) and workspace in ("", row.workspace) and label in ("", row.label)
                )
            elif newest:
                rows = _iter_newest(
                    lambda before: tables.list_newest_migrations(
                        100, before=before, owner=owner, workspace=workspace, label=label
                    )
                )
            else:
                rows = tables.iter_migrations(owner=owner, workspace=workspace, label=label)
            yield from (row for row in rows if can_read(self._resources, caller, row))

    def list_views(self, rows: Iterator[MigrationRow], limit: int) -> list[dict[str, Any]]:
        """The first of these, with the states of their records."""
        chosen = list(islice(rows, min(limit, MAX_PAGE)))
        with self._open_engine() as engine:
            records = engine.store.get_many([migration_ref(row.number) for row in chosen]) if chosen else {}
        return [describe_migration(row, records.get(migration_ref(row.number))) for row in chosen]

    def show(self, caller: Caller, number: int) -> dict[str, Any]:
        """A migration with its requests, the latest first."""
        row = self.find(caller, number)
        with self._open_engine() as engine:
            record = engine.store.get_many([migration_ref(number)]).get(migration_ref(number))
            progress = views.progress_of(views.list_live_sessions(engine.store))
            found = engine.store.each(REQUEST.name, parent=migration_ref(number), documents=True, newest=True)
            requests = [describe_request(each, progress) for each in islice(found, 100)]
        with self._resources.connections.open() as tables:
            tags = tables.list_tags(number)
        shown = describe_migration(row, record)
        return {**shown, "tags": [f"{key}={value}" if value else key for key, value in tags], "requests": requests}

    def show_request(self, record: Record) -> dict[str, Any]:
        with self._open_engine() as engine:
            return describe_request(record, views.progress_of(views.list_live_sessions(engine.store)))

    def iter_failures(self, record: Record) -> Iterator[FileFailure]:
        """What a request says of single files."""
        report = record.find_document(RequestReport)
        if report is not None and report.failures is not None:
            yield from read_list(self._resources.objects, report.failures, FileFailure)

    # --- files

    def iter_files(self, caller: Caller, number: int) -> Iterator[FileRow]:
        self.find(caller, number)
        with self._resources.connections.open() as tables:
            yield from tables.iter_files(number)

    def iter_archives(self, caller: Caller, number: int) -> Iterator[ArchiveRow]:
        self.find(caller, number)
        with self._resources.connections.open() as tables:
            yield from tables.iter_archives(number)

    def search(self, caller: Caller, by: SearchBy, text: str) -> Iterator[dict[str, Any]]:
        """Files of the migrations that the caller may see."""
        if not text:
            raise InputError("Say what to search for.")
        with self._resources.connections.open() as tables:
            for row in tables.iter_found(by, text):
                if can_read(self._resources, caller, _owner_of_found(row)):
                    yield {
                        "migration": row["migration"],
                        "label": row["label"],
                        "path": to_printable(decode_path(row["path"])),
                        "kind": row["kind"],
                        "size": row["size"],
                        "sha256": row["sha256"],
                        "mtime": views.format_time(row["mtime"]),
                    }

    # --- labels and tags

    def set_label(self, caller: Caller, number: int, label: str) -> str:
        check_write(self._resources, caller, self.find(caller, number))
        text = check_label(label)
        with self._resources.connections.open() as tables:
            tables.change_label(number, text)
        return text

    def change_tags(self, caller: Caller, number: int, add: list[str], remove: list[str]) -> list[str]:
        """Add and remove tags, each "key=value" or "key"; returns those that it has then."""
        check_write(self._resources, caller, self.find(caller, number))
        with self._resources.connections.open() as tables, tables.transaction():
            for tag in remove:
                key, value = _parse_tag(tag)
                tables.remove_tag(number, key, value)
            for tag in add:
                tables.add_tag(number, *_parse_tag(tag))
            return [f"{key}={value}" if value else key for key, value in tables.list_tags(number)]

    # --- quotas and findings

    def list_quotas(self, caller: Caller, workspace: str = "") -> list[dict[str, Any]]:
        """The quotas of the workspaces that the caller is in."""
        resources = self._resources
        found = []
        with self._open_engine() as engine:
            for name, settings in sorted(resources.settings.workspaces.items()):
                if workspace not in ("", name) or not (caller.is_operator or resources.is_member(caller.name, name)):
                    continue
                storages = settings.storages or tuple(sorted(resources.settings.storages))
                records = engine.store.get_many([quota_ref(name, storage) for storage in storages])
                for storage in storages:
                    record = records.get(quota_ref(name, storage))
                    quota = record.document(QuotaDocument) if record is not None else QuotaDocument(name, storage)
                    found.append(
                        {
                            "workspace": name,
                            "storage": storage,
                            "limit": resources.get_limit(name, storage) or None,
                            "used": quota.used,
                            "reserved": quota.reserved,
                        }
                    )
        return found

    def list_findings(self, caller: Caller) -> list[dict[str, Any]]:
        """Archives that are not what was put there, as the scrub or a `verify` has found."""
        with self._resources.connections.open() as tables:
            rows = list(islice(tables.iter_findings(), MAX_PAGE))
        return [
            {
                "migration": row["migration"],
                "archive": row["archive"],
                "storage": row["storage"],
                "found": views.format_time(row["found"]),
                "problem": row["problem"],
            }
            for row in rows
            if caller.is_operator or can_read(self._resources, caller, _owner_of_found(row))
        ]


def _owner_of_found(row: dict[str, Any]) -> MigrationRow:
    """As much of a migration as says who may see it."""
    return MigrationRow(
        row["migration"], row["id"], "", row["owner"], row["workspace"], row["storage"], row["label"], "", 0.0
    )


def _iter_newest(read_page: Callable[[int], list[MigrationRow]]) -> Iterator[MigrationRow]:
    before = 2**62
    while page := read_page(before):
        yield from page
        before = page[-1].number


def _parse_tag(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not 1 <= len(key) <= MAX_TAG or len(value) > MAX_TAG or not (key + value).isprintable():
        raise InputError(
            f"{to_printable(text)} is no tag: write KEY or KEY=VALUE, each of at most {MAX_TAG} printable characters."
        )
    return key, value


# --- JSON


def describe_migration(row: MigrationRow, record: Record | None) -> dict[str, Any]:
    document = record.document(MigrationDocument) if record is not None else None
    files = record.find_document(MigrationFiles) if record is not None else None
    charge = record.find_document(MigrationCharge) if record is not None else None
    return {
        "migration": row.number,
        "state": record.state if record is not None else "DELETED" if row.removed else "unknown",
        "label": row.label,
        "owner": row.owner,
        "workspace": row.workspace,
        "storage": document.storage if document is not None else row.storage,
        "common_path": to_printable(decode_path(row.common_path)),
        "files": files.files if files is not None else 0,
        "archives": files.archives if files is not None else 0,
        "bytes": charge.used or charge.reserved if charge is not None else 0,
        "only_copy": document.is_only_copy if document is not None else False,
        "failure": document.failure if document is not None and record is not None and record.state == "FAILED" else "",
        "made": views.format_time(row.made),
        "removed": views.format_time(row.removed) if row.removed else None,
    }


def describe_request(record: Record, progress: dict[str, Any]) -> dict[str, Any]:
    asked = record.document(RequestDocument)
    report = record.find_document(RequestReport)
    get, move, delete = (record.find_document(kind) for kind in (GetRequest, MoveRequest, DeleteRequest))
    flow = FLOWS[asked.kind]
    stage = stage_of(record)
    shown = progress.get(str(record.ref))
    return {
        "request": asked.number,
        "kind": asked.kind,
        "state": record.state,
        "stage": flow.index(stage) + 1 if stage in flow else None,
        "stages": len(flow),
        "migration": asked.migration_number,
        "owner": record.owner,
        "message": record.message,
        "target": get.target if isinstance(get, GetRequest) else None,
        "to_storage": move.to_storage if isinstance(move, MoveRequest) else None,
        "not_before": views.format_time(delete.not_before) if isinstance(delete, DeleteRequest) else None,
        "kept": report.kept if report is not None else 0,
        "removed": report.removed if report is not None else 0,
        "restored": report.restored if report is not None else 0,
        "dropped": report.dropped if report is not None else 0,
        "failures": report.failures.count if report is not None and report.failures is not None else 0,
        "progress": {"done": shown[0], "total": shown[1], "unit": shown[2]} if shown else None,
        "made": views.format_time(record.created),
        "changed": views.format_time(record.updated),
    }
