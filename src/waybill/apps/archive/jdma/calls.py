"""What each call of JDMA's API answers: names, numbers and texts are its own.

A call gets the parameters of the query and the fields of the body, and returns the fields of the answer; JdmaError has the
status and the text of a refusal. All of them block.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from waybill.apps.archive.catalogue import MigrationRow, decode_path, encode_path
from waybill.apps.archive.files import to_printable
from waybill.apps.archive.jdma.numbers import FAILED, FAILED_COMPLETED, KINDS, MIGRATION_STAGES, REQUEST_STAGES
from waybill.apps.archive.machine import REQUEST, GetRequest, MigrationDocument, RequestDocument
from waybill.apps.archive.service.access import Caller, can_read
from waybill.apps.archive.service.migrations import ArchiveMigrations
from waybill.apps.archive.service.quotas import ensure_quota
from waybill.apps.archive.service.requests import ArchiveRequests, migration_ref, request_ref
from waybill.apps.archive.storages import ExternalStorageError
from waybill.engine import Engine
from waybill.errors import ActionRefused, NotFound, WaybillError
from waybill.manifests.record_lists import read_list
from waybill.record import Record, RecordNotFound

if TYPE_CHECKING:
    from waybill.apps.archive.resources import ArchiveResources

MAX_LISTED = 10_000
Fields = Mapping[str, Any]


class JdmaError(WaybillError):
    """A refusal, with the status and the text that JDMA has for it."""

    code = "invalid-request"

    def __init__(self, text: str, status: int = 404) -> None:
        super().__init__(text)
        self.status = status


class JdmaCalls:
    def __init__(self, resources: ArchiveResources, open_engine: Callable[[], AbstractContextManager[Engine]]) -> None:
        self._resources = resources
        self._open_engine = open_engine

    # --- user

    def get_user(self, query: Fields) -> dict[str, Any]:
        name = _name_of(query, "No name supplied")
        email, notify = self._find_person(name)
        return {"name": name, "email": email, "notify": notify}

    def make_user(self, body: Fields) -> dict[str, Any]:
        name = _name_of(body, "No name supplied")
        if not (email := _text(body, "email")):
            raise JdmaError("No email supplied")
        with self._resources.connections.open() as tables:
            if tables.find_person(name) is not None:
                raise JdmaError("JDMA already initialized for this user.", 403)
            tables.enter_person(name, email, True)
        return {"name": name, "email": email}

    def change_user(self, query: Fields, body: Fields) -> dict[str, Any]:
        name = _name_of(query, "No name supplied.")
        email, notify = self._find_person(name)
        if "email" not in body and "notify" not in body:
            raise JdmaError("No email supplied.")
        email = _text(body, "email") or email
        notify = bool(body.get("notify", notify))
        with self._resources.connections.open() as tables:
            tables.enter_person(name, email, notify)
        return {"name": name, "email": email, "notify": notify}

    def _find_person(self, name: str) -> tuple[str, bool]:
        with self._resources.connections.open() as tables:
            person = tables.find_person(name)
        if person is None:
            raise JdmaError(f"User {name} not initialised yet.  Run jdma.py init first.", 403)
        return person

    # --- requests

    def get_requests(self, query: Fields) -> dict[str, Any]:
        name = _name_of(query, "No name supplied.")
        self._find_person(name)
        caller = Caller(name)
        with self._open_engine() as engine:
            if _text(query, "request_id"):
                record = self._get_request(engine, caller, _number(query, "request_id", "Request not found."))
                return self._describe_request(record, is_alone=True)
            workspace = self._workspace_of(query, caller, "requests")
            of_workspace = query.get("filter") == "workspace"
            found = engine.store.each(REQUEST.name, owner=None if of_workspace else name, documents=True, newest=True)
            chosen = (r for r in found if workspace in ("", r.document(RequestDocument).workspace))
            records = sorted(islice(chosen, MAX_LISTED), key=lambda r: r.document(RequestDocument).number)
            return {"requests": [self._describe_request(record) for record in records]}

    def _get_request(self, engine: Engine, caller: Caller, number: int) -> Record:
        try:
            record = engine.store.get(*request_ref(number))
        except RecordNotFound:
            raise JdmaError("Request not found.") from None
        if record.owner != caller.name and not can_read(
            self._resources, caller, self._find_row(record.document(RequestDocument).migration_number)
        ):
            raise JdmaError("Request not found.")
        return record

    def _workspace_of(self, query: Fields, caller: Caller, what: str) -> str:
        workspace = _text(query, "workspace")
        if query.get("filter") == "workspace" and not workspace:
            raise JdmaError("No workspace supplied and filter=workspace.")
        if workspace and workspace not in self._resources.settings.workspaces:
            raise JdmaError("Workspace not found.")
        if workspace and not self._resources.is_member(caller.name, workspace):
            verb = "list requests" if what == "requests" else "view batches"
            raise JdmaError(f"User does not have permission to {verb} in the workspace", 403)
        return workspace

    def _describe_request(self, record: Record, *, is_alone: bool = False) -> dict[str, Any]:
        asked = record.document(RequestDocument)
        row = self._find_row(asked.migration_number)
        stage = REQUEST_STAGES[record.state]
        shown: dict[str, Any] = {
            "request_id": asked.number,
            "user": record.owner,
            "request_type": KINDS[asked.kind],
            "migration_id": asked.migration_number,
            "label": row.label,
            "workspace": asked.workspace,
            "storage": asked.storage,
            "stage": stage,
            "date": _iso(record.created),
        }
        if is_alone:
            if asked.paths is not None:
                shown["filelist"] = self._read_paths(asked)
            if stage in (FAILED, FAILED_COMPLETED):
                shown["failure_reason"] = record.message
        return shown

    def _read_paths(self, asked: RequestDocument) -> list[str]:
        assert asked.paths is not None
        return [to_printable(decode_path(path)) for path in read_list(self._resources.objects, asked.paths, str)]

    def make_request(self, body: Fields) -> dict[str, Any]:
        name = _name_of(body, "No name supplied")
        if not (kind := _text(body, "request_type")):
            raise JdmaError("No request type supplied")
        if kind not in ("PUT", "MIGRATE", "GET", "DELETE"):
            raise JdmaError("Invalid request method")
        email, notify = self._find_person(name)
        requests = ArchiveRequests(self._resources, self._open_engine, name)
        to = [email] if notify else []
        try:
            if kind in ("PUT", "MIGRATE"):
                return self._put(requests, Caller(name), kind, body, to)
            if kind == "GET":
                return self._get(requests, Caller(name), body, to)
            return self._delete(requests, Caller(name), body, to)
        except JdmaError:
            raise
        except NotFound as error:
            raise JdmaError(str(error)) from None
        except (ActionRefused, WaybillError) as error:
            raise JdmaError(str(error), 403 if isinstance(error, ActionRefused) else 404) from None

    def _put(self, requests: ArchiveRequests, caller: Caller, kind: str, body: Fields, to: list[str]) -> dict[str, Any]:
        resources, name = self._resources, caller.name
        if not (workspace := _text(body, "workspace")):
            raise JdmaError("No workspace supplied")
        if workspace not in resources.settings.workspaces:
            raise JdmaError(f"Workspace {workspace} has no associated groupworkspace quota set")
        if "filelist" not in body:
            raise JdmaError("No directory path or filelist supplied")
        paths = _paths(body)
        if not paths:
            raise JdmaError("Filelist is empty")
        if not (storage := _text(body, "storage")):
            raise JdmaError("External storage not specified in PUT / MIGRATE request")
        if missing := [path for path in paths if not os.path.lexists(path)]:
            raise JdmaError(" ".join(f"Path {to_printable(path)} does not exist" for path in missing[:100]))
        self._check_storage(workspace, storage)
        if not resources.is_member(name, workspace):
            raise JdmaError(
                f"User: {name} does not have write permissions or the workspace: {workspace} does not exist "
                f"for external storage: {storage}",
                403,
            )
        with self._open_engine() as engine:
            quota, limit = (
                ensure_quota(engine, resources, workspace, storage, who=name),
                resources.get_limit(workspace, storage),
            )
        if limit and quota.used + quota.reserved >= limit:
            raise JdmaError(
                f"User: {name} has insufficient quota remaining for workspace: {workspace} for external storage: {storage}",
                403,
            )
        try:
            record = requests.put(
                caller, paths, kind="MIGRATE" if kind == "MIGRATE" else "PUT", workspace=workspace, storage=storage,
                label=_text(body, "label"), notify=to,
            )  # fmt: skip
        except ActionRefused as error:
            if error.code == "paths-in-use":
                raise JdmaError(f"Filelist or directory is already in a migration: {error}", 403) from None
            raise
        return self._echo(body, record, filelist=[to_printable(path) for path in paths], error="")

    def _check_storage(self, workspace: str, storage: str) -> None:
        resources = self._resources
        if storage not in resources.settings.storages:
            raise JdmaError(f"External storage: {storage} does not exist")
        allowed = resources.get_workspace(workspace).storages
        if allowed and storage not in allowed:
            raise JdmaError(f"External storage: {storage} has not been attached to the groupworkspace: {workspace}")
        try:
            resources.open_storage(storage).check()
        except ExternalStorageError as error:
            raise JdmaError(f"External storage: {storage} is not connecting.  Reason is: {error}") from None

    def _get(self, requests: ArchiveRequests, caller: Caller, body: Fields, to: list[str]) -> dict[str, Any]:
        number, row = self._batch_of(body)
        if not can_read(self._resources, caller, row):
            raise JdmaError(f"User {caller.name} does not have permission to request batch {number}", 403)
        target = _text(body, "target_path")
        if not target:
            raise JdmaError("Target path not supplied")
        parent = os.path.dirname(os.path.normpath(target))
        if not os.path.isdir(parent):
            raise JdmaError(f"Parent of target path {to_printable(target)} does not exist: {to_printable(parent)}")
        paths = _paths(body) if body.get("filelist") else []
        if paths and not self._has_any(number, paths):
            raise JdmaError(f"Requested file list contains zero files that belong to batch {number}")
        with self._open_engine() as engine:
            state = self._state_of(engine, number)
            if state != "ON_STORAGE":
                raise JdmaError(f"Batch stage is: {state}.  Cannot retrieve (GET) until stage is ON_STORAGE", 403)
            for record in engine.store.each(REQUEST.name, parent=migration_ref(number), documents=True):
                get = record.find_document(GetRequest)
                if (
                    get is not None
                    and record.open
                    and record.state != "FAILED"
                    and get.target == os.path.normpath(target)
                ):
                    raise JdmaError(
                        f"Duplicate GET request made: batch: {number}, Target path: {to_printable(target)}", 403
                    )
        record = requests.get(caller, number, target, paths=paths, notify=to)
        return self._echo(body, record, filelist=[to_printable(path) for path in paths], target_path=target)

    def _has_any(self, number: int, paths: list[str]) -> bool:
        with self._resources.connections.open() as tables:
            return any(tables.has_file(number, encode_path(path.rstrip("/"))) for path in paths)

    def _delete(self, requests: ArchiveRequests, caller: Caller, body: Fields, to: list[str]) -> dict[str, Any]:
        number, row = self._batch_of(body)
        manager = row.workspace in self._resources.settings.workspaces and self._resources.is_manager(
            caller.name, row.workspace
        )
        if caller.name != row.owner and not manager:
            raise JdmaError(f"User {caller.name} does not have permission to delete batch: {number}", 403)
        with self._open_engine() as engine:
            if self._state_of(engine, number) in ("DELETING", "DELETED"):
                raise JdmaError(f"Duplicate DELETE request made: batch: {number}", 403)
        # Its client has asked the user; an only copy has its grace all the same.
        record = requests.delete(caller, number, only_copy=True, notify=to)
        return self._echo(body, record)

    def _batch_of(self, body: Fields) -> tuple[int, MigrationRow]:
        if body.get("migration_id") in (None, ""):
            raise JdmaError("No batch id supplied")
        number = _number(body, "migration_id", "Batch not found")
        with self._resources.connections.open() as tables:
            row = tables.find_migration(number)
        if row is None:
            raise JdmaError("Batch not found")
        return number, row

    def _echo(self, body: Fields, record: Record, **more: Any) -> dict[str, Any]:
        """The input, without credentials, and what was made of it."""
        asked = record.document(RequestDocument)
        return {
            **body,
            "credentials": {},
            "request_id": asked.number,
            "request_type": KINDS[asked.kind],
            "batch_id": asked.migration_number,
            "workspace": asked.workspace,
            "storage": asked.storage,
            "stage": REQUEST_STAGES[record.state],
            "registered_date": _iso(record.created),
            "label": self._find_row(asked.migration_number).label,
            **more,
        }

    # --- migrations

    def get_migrations(self, query: Fields) -> dict[str, Any]:
        name = _name_of(query, "No name supplied.")
        caller, label = Caller(name), _text(query, "label")
        with self._open_engine() as engine:
            if _text(query, "migration_id"):
                number = _number(query, "migration_id", "Batch not found.")
                with self._resources.connections.open() as tables:
                    row = tables.find_migration(number)
                return self._describe_one(engine, caller, row)
            if label:
                with self._resources.connections.open() as tables:
                    rows = list(
                        islice(
                            (r for r in tables.iter_migrations(label=label) if can_read(self._resources, caller, r)),
                            100,
                        )
                    )
                rows.sort(key=lambda r: MIGRATION_STAGES[self._state_of(engine, r.number)])
                return self._describe_one(engine, caller, rows[0] if rows else None)
            workspace = self._workspace_of(query, caller, "batches")
            owner = "" if query.get("filter") == "workspace" else name
            with self._resources.connections.open() as tables:
                found = tables.list_newest_migrations(MAX_LISTED, owner=owner, workspace=workspace)
            return {"migrations": [self._describe_migration(engine, row) for row in reversed(found)]}

    def _describe_one(self, engine: Engine, caller: Caller, row: MigrationRow | None) -> dict[str, Any]:
        if row is None or not can_read(self._resources, caller, row):
            raise JdmaError("Batch not found.")
        try:
            document = engine.store.get(*migration_ref(row.number)).document(MigrationDocument)
        except RecordNotFound:
            raise JdmaError("Batch not found.") from None
        shown = self._describe_migration(engine, row)
        return {
            **shown,
            "external_id": document.container,
            **({"failure_reason": document.failure} if shown["stage"] == 3 else {}),
        }

    def _describe_migration(self, engine: Engine, row: MigrationRow) -> dict[str, Any]:
        return {
            "migration_id": row.number,
            "user": row.owner,
            "workspace": row.workspace,
            "label": row.label,
            "stage": MIGRATION_STAGES[self._state_of(engine, row.number)],
            "storage": row.storage,
            "registered_date": _iso(row.made),
        }

    def change_label(self, query: Fields, body: Fields) -> dict[str, Any]:
        name = _name_of(query, "No name supplied.")
        if not _text(query, "migration_id"):
            raise JdmaError("No batch id supplied.")
        number = _number(query, "migration_id", "Batch not found.")
        if not (label := _text(body, "label")):
            raise JdmaError("No label supplied.")
        with self._resources.connections.open() as tables:
            row = tables.find_migration(number)
        if row is None:
            raise JdmaError("Batch not found.")
        if row.owner != name:
            raise JdmaError(f"User {name} cannot edit this batch as they do not own it!", 403)
        ArchiveMigrations(self._resources, self._open_engine).set_label(Caller(name), number, label)
        return {**body, "name": name, "migration_id": number, "label": label}

    def list_backends(self, query: Fields) -> dict[str, Any]:
        return {name: each.title or name for name, each in sorted(self._resources.settings.storages.items())}

    # --- shared

    def list_rows(self, query: Fields) -> list[MigrationRow]:
        """The migrations of which files or archives are listed."""
        name = _name_of(query, "No name supplied.")
        caller = Caller(name)
        if _text(query, "migration_id"):
            with self._resources.connections.open() as tables:
                row = tables.find_migration(_number(query, "migration_id", "Batch not found."))
            if row is None or not can_read(self._resources, caller, row):
                raise JdmaError("Batch not found.")
            return [row]
        workspace = self._workspace_of(query, caller, "batches")
        owner = "" if query.get("filter") == "workspace" else name
        with self._resources.connections.open() as tables:
            found = tables.list_newest_migrations(MAX_LISTED, owner=owner, workspace=workspace)
        return list(reversed(found))

    def _find_row(self, number: int) -> MigrationRow:
        with self._resources.connections.open() as tables:
            row = tables.find_migration(number)
        if row is None:
            raise JdmaError("Batch not found.")
        return row

    def _state_of(self, engine: Engine, number: int) -> str:
        found = engine.store.get_many([migration_ref(number)]).get(migration_ref(number))
        return found.state if found is not None else "DELETED"


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def _name_of(fields: Fields, missing: str) -> str:
    if not (name := _text(fields, "name")):
        raise JdmaError(missing)
    if not name.isprintable() or len(name) > 200:
        raise JdmaError("Error with name parameter.")
    return name


def _number(fields: Fields, name: str, wrong: str) -> int:
    try:
        number = int(fields[name])
    except (TypeError, ValueError):
        raise JdmaError(wrong) from None
    if not 0 < number < 2**62:
        raise JdmaError(wrong)
    return number


def _paths(body: Fields) -> list[str]:
    found = body.get("filelist")
    if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
        raise JdmaError("No directory path or filelist supplied")
    return found


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
