"""The pages of archive.

    /archive                      migrations with the stage of their requests, quotas, damaged archives
    /archive/migrations/NUMBER    one migration: its requests, its files to choose from and restore, what can be done with it
    /archive/files                files of all migrations by path, name or digest

All read and act by the services of the API; none has a rule of its own.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

from fastapi import Path, Query, Response

from waybill.apps.archive.catalogue import decode_path
from waybill.apps.archive.files import to_printable
from waybill.apps.archive.resources import ArchiveResources
from waybill.apps.archive.service.access import Caller
from waybill.apps.archive.service.migrations import ArchiveMigrations
from waybill.apps.archive.service.requests import ArchiveRequests
from waybill.errors import InputError
from waybill.http.request_context import declare_role
from waybill.pages import ApplicationPages, FoundLink, NavigationEntry, PageContext, PageRequest, make_page_router

LATEST = 50  # migrations
MAX_FILES = 500  # that a page offers to choose from; a glob names more
MAX_FOUND = 100

router = make_page_router("/archive")

Number = Annotated[int, Path(ge=1, le=2**53)]
Text = Annotated[str, Query(max_length=1000)]


def _resources(context: PageContext) -> ArchiveResources:
    resources: ArchiveResources = context.environment.resources_of("archive")
    return resources


def _caller(context: PageContext) -> Caller:
    return Caller(context.user.name, is_operator=context.can("operator"))


def _migrations(context: PageContext) -> ArchiveMigrations:
    return ArchiveMigrations(_resources(context), context.connections.open_engine)


def _requests(context: PageContext) -> ArchiveRequests:
    return ArchiveRequests(_resources(context), context.connections.open_engine, context.user.name)


@router.get("", **declare_role("reader", somewhere=True))
def show_migrations(context: PageRequest, workspace: Text = "", label: Text = "", tag: Text = "") -> Response:
    service, caller = _migrations(context), _caller(context)
    rows = service.iter_visible(caller, workspace=workspace.strip(), label=label.strip(), tag=tag.strip(), newest=True)
    return context.render(
        "archive/migrations.html",
        migrations=service.list_views(rows, LATEST),
        quotas=service.list_quotas(caller),
        findings=service.list_findings(caller),
        workspace=workspace,
        label=label,
        tag=tag,
    )


@router.get("/migrations/{number}", **declare_role("reader", somewhere=True))
def show_migration(context: PageRequest, number: Number) -> Response:
    service, caller = _migrations(context), _caller(context)
    shown = service.show(caller, number)
    with _resources(context).connections.open() as tables:
        rows = tables.list_files(number, limit=MAX_FILES)
    files = [
        {
            "path": to_printable(decode_path(row.path)),
            "size": row.size,
            "kind": row.kind,
            "sha256": row.sha256,
            "value": row.path,
        }
        for row in rows
    ]
    return context.render(
        "archive/migration.html",
        shown=shown,
        files=files,
        is_cut=len(rows) == MAX_FILES,
        may_act=context.can_somewhere("submitter"),
    )


@router.post("/migrations/{number}/restore", **declare_role("submitter", somewhere=True))
def restore(context: PageRequest, number: Number) -> Response:
    globs = context.get_field("globs").split("\n")
    target = context.get_field("target")
    if not target and not context.get_field("original"):
        raise InputError("Name a target folder, or choose to restore to where the files were.")
    record = _requests(context).get(
        _caller(context),
        number,
        target,
        globs=[glob.strip() for glob in globs if glob.strip()],
        paths=[decode_path(path) for path in context.form.get("path", [])],
        overwrite=bool(context.get_field("overwrite")),
    )
    context.notify_change()
    return context.redirect(f"/archive/migrations/{number}", f"{record.id} restores it.")


@router.post("/migrations/{number}/delete", **declare_role("submitter", somewhere=True))
def delete(context: PageRequest, number: Number) -> Response:
    record = _requests(context).delete(_caller(context), number, only_copy=bool(context.get_field("only_copy")))
    context.notify_change()
    return context.redirect(f"/archive/migrations/{number}", f"{record.id} deletes it.")


@router.post("/migrations/{number}/undelete", **declare_role("submitter", somewhere=True))
def undelete(context: PageRequest, number: Number) -> Response:
    _requests(context).undelete(_caller(context), number)
    context.notify_change()
    return context.redirect(f"/archive/migrations/{number}", "It is kept.")


@router.post("/requests/{number}/cancel", **declare_role("submitter", somewhere=True))
def cancel(context: PageRequest, number: Number) -> Response:
    record = _requests(context).cancel(_caller(context), number)
    context.notify_change()
    return context.redirect("/archive", f"{record.id} is {record.state}.")


@router.post("/requests/{number}/resume", **declare_role("submitter", somewhere=True))
def resume(context: PageRequest, number: Number) -> Response:
    record = _requests(context).resume(_caller(context), number)
    context.notify_change()
    return context.redirect("/archive", f"{record.id} is {record.state}.")


@router.get("/files", **declare_role("reader", somewhere=True))
def find_files(
    context: PageRequest, by: Annotated[str, Query(pattern="^(path|name|digest)$")] = "path", text: Text = ""
) -> Response:
    found: list[dict[str, Any]] = []
    if text.strip():
        found = list(islice(_migrations(context).search(_caller(context), by, text.strip()), MAX_FOUND))  # type: ignore[arg-type]
    return context.render("archive/files.html", by=by, text=text, found=found, is_cut=len(found) == MAX_FOUND)


def find_links(context: PageContext, text: str) -> list[FoundLink]:
    """Migrations with exactly this label, and files with exactly this name: both are one look into an index."""
    service, caller = _migrations(context), _caller(context)
    rows = islice(service.iter_visible(caller, label=text), 10)
    links = [FoundLink(f"{row.label} (migration {row.number})", f"/archive/migrations/{row.number}") for row in rows]
    files = islice(service.search(caller, "name", text), 10)
    return links + [FoundLink(each["path"], f"/archive/migrations/{each['migration']}") for each in files]


def build_pages() -> ApplicationPages:
    return ApplicationPages(
        router,
        navigation=(NavigationEntry("Archive", "/archive"),),
        shortcuts=(NavigationEntry("Find archived files", "/archive/files"),),
        package="waybill.apps.archive.pages",
        search=find_links,
    )
