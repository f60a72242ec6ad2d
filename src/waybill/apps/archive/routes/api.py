"""Archive over HTTP.

    POST /api/v1/archive/requests                       PUT, MIGRATE, GET, DELETE or MOVE
    GET  /api/v1/archive/requests/<number>
    POST /api/v1/archive/requests/<number>/cancel, /resume
    GET  /api/v1/archive/migrations                     the newest first
    GET  /api/v1/archive/migrations/<number>            with its requests
    GET  /api/v1/archive/migrations/<number>/files      a page of its files
    POST /api/v1/archive/migrations/<number>/undelete
    PUT  /api/v1/archive/migrations/<number>/label, /tags
    GET  /api/v1/archive/files                          files of all migrations by path, name or digest
    GET  /api/v1/archive/quotas, /storages, /findings

Files are read and written as the user whose name the token has.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import Header, Path, Query
from pydantic import BaseModel, Field

from waybill import views
from waybill.apps.archive.catalogue import decode_path
from waybill.apps.archive.files import to_printable
from waybill.apps.archive.resources import ArchiveResources
from waybill.apps.archive.service.access import Caller
from waybill.apps.archive.service.migrations import ArchiveMigrations
from waybill.apps.archive.service.requests import MAX_PATHS, ArchiveRequests
from waybill.errors import InputError
from waybill.http.errors import WRITE_STATUSES, describe_responses
from waybill.http.request_context import RouteContext, declare_role, make_router
from waybill.record import Record
from waybill.rules import IDEMPOTENCY_KEY_PATTERN

router = make_router("/api/v1/archive", "archive")

Number = Annotated[int, Path(ge=1, le=2**53)]
Text = Annotated[str, Field(max_length=4096)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", pattern=IDEMPOTENCY_KEY_PATTERN)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Name = Annotated[str, Query(max_length=200)]


class NewRequest(BaseModel, extra="forbid"):
    """A request. `paths`: what is archived, or what is restored; the fields that a kind does not need are left out."""

    kind: Literal["PUT", "MIGRATE", "GET", "DELETE", "MOVE"]
    migration: Annotated[int, Field(ge=1, le=2**53)] | None = None
    paths: Annotated[list[Text], Field(max_length=MAX_PATHS)] = []
    exclude: Annotated[list[Text], Field(max_length=1000)] = []
    workspace: Annotated[str, Field(max_length=64)] = ""
    storage: Annotated[str, Field(max_length=64)] = ""
    label: Annotated[str, Field(max_length=200)] = ""
    target: Text | None = None
    globs: Annotated[list[Text], Field(max_length=1000)] = []
    regexes: Annotated[list[Text], Field(max_length=1000)] = []
    overwrite: bool = False
    only_copy: bool = False
    grace: Annotated[float, Field(ge=0, le=1e9)] | None = None
    notify: Annotated[list[Annotated[str, Field(max_length=320)]], Field(max_length=20)] = []


class NewLabel(BaseModel, extra="forbid"):
    label: Annotated[str, Field(min_length=1, max_length=200)]


class TagChanges(BaseModel, extra="forbid"):
    add: Annotated[list[Annotated[str, Field(max_length=401)]], Field(max_length=100)] = []
    remove: Annotated[list[Annotated[str, Field(max_length=401)]], Field(max_length=100)] = []


def _resources(context: RouteContext) -> ArchiveResources:
    resources: ArchiveResources = context.environment.resources_of("archive")
    return resources


def _requests(context: RouteContext) -> ArchiveRequests:
    return ArchiveRequests(_resources(context), context.open_engine, context.who)


def _migrations(context: RouteContext) -> ArchiveMigrations:
    return ArchiveMigrations(_resources(context), context.open_engine)


def _caller(context: RouteContext) -> Caller:
    identity = context.identity
    return Caller(context.who, is_operator=identity is not None and identity.has_role("operator"))


def _show(context: RouteContext, record: Record) -> dict[str, Any]:
    context.notify_change()
    return _migrations(context).show_request(record)


@router.post(
    "/requests",
    summary="Ask for something",
    status_code=201,
    responses=describe_responses(*WRITE_STATUSES),
    **declare_role("submitter"),
)
def make_request(context: RouteContext, body: NewRequest, idempotency_key: Key = None) -> dict[str, Any]:
    requests, caller = _requests(context), _caller(context)
    if body.kind in ("PUT", "MIGRATE"):
        record = requests.put(
            caller, body.paths, kind=body.kind, workspace=body.workspace, storage=body.storage, label=body.label, exclude=body.exclude,
            notify=body.notify, idempotency_key=idempotency_key,
        )  # fmt: skip
        return _show(context, record)
    if body.migration is None:
        raise InputError(f"A {body.kind} needs the number of a migration.")
    if body.kind == "GET":
        if body.target is None:
            raise InputError('A GET needs a target: an absolute path, or "" for where the files were.')
        record = requests.get(
            caller, body.migration, body.target, globs=body.globs, regexes=body.regexes, paths=body.paths, overwrite=body.overwrite,
            notify=body.notify, idempotency_key=idempotency_key,
        )  # fmt: skip
    elif body.kind == "DELETE":
        record = requests.delete(
            caller,
            body.migration,
            only_copy=body.only_copy,
            grace=body.grace,
            notify=body.notify,
            idempotency_key=idempotency_key,
        )
    else:
        if not body.storage:
            raise InputError("A MOVE needs the storage that it goes to.")
        record = requests.move(
            caller, body.migration, body.storage, notify=body.notify, idempotency_key=idempotency_key
        )
    return _show(context, record)


@router.get("/requests/{number}", summary="A request", **declare_role("reader"))
def show_request(context: RouteContext, number: Number) -> dict[str, Any]:
    record = _get_request(context, number)
    failures = islice(_migrations(context).iter_failures(record), 1000)
    return {
        **_migrations(context).show_request(record),
        "failed_files": [{"path": f.path, "reason": f.reason} for f in failures],
    }


def _get_request(context: RouteContext, number: int) -> Record:
    """Raises NotFound, or ActionRefused for one of a migration that the caller may not see."""
    requests = _requests(context)
    with context.open_engine() as engine:
        record = requests.get_request(engine, number)
    _migrations(context).find(_caller(context), int(record.parent.id.removeprefix("mig")) if record.parent else 0)
    return record


@router.post(
    "/requests/{number}/cancel",
    summary="End a request and clean up",
    responses=describe_responses(*WRITE_STATUSES),
    **declare_role("submitter"),
)
def cancel_request(context: RouteContext, number: Number) -> dict[str, Any]:
    return _show(context, _requests(context).cancel(_caller(context), number))


@router.post(
    "/requests/{number}/resume",
    summary="Let a failed request go on",
    responses=describe_responses(*WRITE_STATUSES),
    **declare_role("submitter"),
)
def resume_request(context: RouteContext, number: Number) -> dict[str, Any]:
    return _show(context, _requests(context).resume(_caller(context), number))


@router.get("/migrations", summary="Migrations, the newest first", **declare_role("reader"))
def list_migrations(
    context: RouteContext, workspace: Name = "", owner: Name = "", label: Name = "", tag: Annotated[str, Query(max_length=401)] = "",
    limit: Limit = 100,
) -> dict[str, Any]:  # fmt: skip
    service = _migrations(context)
    rows = service.iter_visible(_caller(context), workspace=workspace, owner=owner, label=label, tag=tag, newest=True)
    return {"migrations": service.list_views(rows, limit)}


@router.get("/migrations/{number}", summary="A migration with its requests", **declare_role("reader"))
def show_migration(context: RouteContext, number: Number) -> dict[str, Any]:
    return _migrations(context).show(_caller(context), number)


@router.get("/migrations/{number}/files", summary="A page of the files of a migration", **declare_role("reader"))
def list_files(
    context: RouteContext, number: Number, after: Annotated[int, Query(ge=0, le=2**62)] = 0, limit: Limit = 1000
) -> dict[str, Any]:
    _migrations(context).find(_caller(context), number)
    with _resources(context).connections.open() as tables:
        rows = tables.list_files(number, after=after, limit=limit)
    files = [
        {
            "archive": row.archive,
            "path": to_printable(decode_path(row.path)),
            "kind": row.kind,
            "size": row.size,
            "mtime": views.format_time(row.mtime),
            "sha256": row.sha256 or None,
        }
        for row in rows
    ]
    return {"files": files, "after": rows[-1].number if len(rows) == limit else None}


@router.post(
    "/migrations/{number}/undelete",
    summary="Take back a DELETE",
    responses=describe_responses(*WRITE_STATUSES),
    **declare_role("submitter"),
)
def undelete(context: RouteContext, number: Number) -> dict[str, Any]:
    result = _requests(context).undelete(_caller(context), number)
    context.notify_change()
    return {"migration": number, "pending": result.pending}


@router.put(
    "/migrations/{number}/label",
    summary="Give another label",
    responses=describe_responses(*WRITE_STATUSES),
    **declare_role("submitter"),
)
def set_label(context: RouteContext, number: Number, body: NewLabel) -> dict[str, Any]:
    return {"migration": number, "label": _migrations(context).set_label(_caller(context), number, body.label)}


@router.put(
    "/migrations/{number}/tags",
    summary="Add and remove tags",
    responses=describe_responses(*WRITE_STATUSES),
    **declare_role("submitter"),
)
def change_tags(context: RouteContext, number: Number, body: TagChanges) -> dict[str, Any]:
    return {
        "migration": number,
        "tags": _migrations(context).change_tags(_caller(context), number, body.add, body.remove),
    }


@router.get("/files", summary="Files of all migrations", **declare_role("reader"))
def find_files(
    context: RouteContext,
    text: Annotated[str, Query(min_length=1, max_length=4096)],
    by: Annotated[Literal["path", "name", "digest"], Query()] = "path",
    limit: Limit = 100,
) -> dict[str, Any]:
    return {"files": list(islice(_migrations(context).search(_caller(context), by, text), limit))}


@router.get("/quotas", summary="What workspaces have used and reserved", **declare_role("reader"))
def list_quotas(context: RouteContext, workspace: Name = "") -> dict[str, Any]:
    return {"quotas": _migrations(context).list_quotas(_caller(context), workspace)}


@router.get("/storages", summary="The storages", **declare_role("reader"))
def list_storages(context: RouteContext) -> dict[str, Any]:
    storages = _resources(context).settings.storages
    return {
        "storages": [
            {"storage": name, "type": each.type, "title": each.title or name} for name, each in sorted(storages.items())
        ]
    }


@router.get("/findings", summary="Archives that are not what was put there", **declare_role("reader"))
def list_findings(context: RouteContext) -> dict[str, Any]:
    return {"findings": _migrations(context).list_findings(_caller(context))}
