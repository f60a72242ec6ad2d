"""The inventory: objects, their versions and files with the last fixity check of each, and archives of them on request."""

from __future__ import annotations

import time
from typing import Annotated, NamedTuple, cast, get_args

from fastapi import APIRouter, Query, Response

from waybill.apps.ingest.access import AssemblyRequest, request_assembly, tokens
from waybill.apps.ingest.documents import ArchiveForm, AssemblyOrder, AssemblyToken, PackedArchive, to_rfc3339
from waybill.apps.ingest.embargo import explain_closed
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.machine.access import ASSEMBLY
from waybill.apps.ingest.pages.context import object_url, resources_of
from waybill.apps.ingest.routes.context import file_path_of, version_path_of
from waybill.apps.ingest.routes.objects import Ark, check_embargo
from waybill.engine import Engine
from waybill.errors import InputError
from waybill.files.names import quote_text
from waybill.http.request_context import declare_role
from waybill.index import Row
from waybill.pages import PageContext, PageRequest
from waybill.record import Record, RecordNotFound

PAGE_LENGTH = 50  # objects
FILES_SHOWN = 200
MAX_VERSIONS = 100
MAX_ASSEMBLIES = 20
SearchText = Annotated[str, Query(max_length=1000)]


class AssemblyRow(NamedTuple):
    """An archive that somebody requested."""

    record: Record
    order: AssemblyOrder
    url: str  # "": it is not ready, or of somebody else
    ready_at: str
    size: int | None
    expires: str


def add_routes(router: APIRouter) -> None:
    @router.get("/objects", **declare_role("reader"))
    def search(
        context: PageRequest,
        text: SearchText = "",
        local_id: SearchText = "",
        collection: SearchText = "",
        owner: SearchText = "",
        after: SearchText = "",
    ) -> Response:
        fields = {"text": text, "local_id": local_id, "collection": collection, "owner": owner}
        given = {name: clean(value.strip()) for name, value in fields.items()}
        page = resources_of(context).inventory.search(**given, after=clean(after), limit=PAGE_LENGTH)
        return context.render(
            "ingest/objects.html",
            rows=page.rows,
            next=page.next,
            fields=given,
            is_filtered=any(given.values()),
            object_url=object_url,
        )

    @router.get("/damaged", **declare_role("operator"))
    def show_damaged(context: PageRequest) -> Response:
        rows = resources_of(context).inventory.list_damaged(limit=FILES_SHOWN)
        return context.render("ingest/damaged.html", rows=rows, object_url=object_url)

    @router.get("/objects/{ark:ark}", **declare_role("reader"))
    def show_object(
        context: PageRequest, ark: Ark, version: Annotated[int, Query(ge=0, le=2**31)] = 0, after: SearchText = ""
    ) -> Response:
        inventory = resources_of(context).inventory
        row = find_object(inventory, ark)
        versions = inventory.list_versions(ark, limit=MAX_VERSIONS)
        number = version or int(row["head"])
        shown = next(iter(inventory.list_versions(ark, after=number - 1, limit=1)), None)
        if shown is None or shown["number"] != number:
            raise RecordNotFound(f"{ark} has no version {number}; its newest is {row['head']}.")
        files = inventory.list_checked_files(ark, number, after=clean(after), limit=FILES_SHOWN)
        with context.open_engine() as engine:
            assemblies = find_assemblies(engine, context, ark)
        _, why_closed = explain_closed(ark, row, time.time())
        return context.render(
            "ingest/object.html",
            row=row,
            versions=versions,
            version=shown,
            files=files.rows,
            next=files.next,
            object_url=object_url,
            manifest_url=f"{version_path_of(ark, number)}/manifest",
            file_url=lambda path: file_path_of(ark, number, path),
            damaged=inventory.list_damaged_of(ark),
            why_closed=why_closed,
            can_read=not why_closed or context.can("operator"),
            assemblies=assemblies,
            forms=get_args(ArchiveForm),
        )

    @router.post("/assemblies", **declare_role("reader"))
    def make_assembly(context: PageRequest) -> Response:
        ark, form = context.get_field("object"), context.get_field("form", "zip")
        version = context.get_field("version")
        if form not in get_args(ArchiveForm) or not (version.isdecimal() or not version):
            raise InputError("This form of an archive is not known: load the page again.")
        assembly_request = AssemblyRequest(
            object=ark,
            version=int(version) if version else None,
            form=cast(ArchiveForm, form),
            files=tuple(context.form.get("file", [])),
        )
        check_embargo(context.identity, ark, resources_of(context).inventory.get_object(ark))
        with context.open_engine() as engine:
            requested = request_assembly(
                engine,
                resources_of(context),
                assembly_request,
                owner=context.who,
                ignores_embargo=context.can("operator"),
            )
        context.notify_change()
        notice = "the archive is being packed" if requested.is_new else "this archive was requested before"
        return context.redirect(object_url(ark), notice)


def find_object(inventory: Inventory, ark: str) -> Row:
    row = inventory.get_object(ark) if ark == clean(ark) else None
    if row is None:
        raise RecordNotFound(f"There is no object {quote_text(ark)} in the inventory.", hint="Search for it above.")
    return row


def clean(text: str) -> str:
    """The text without what the database cannot compare."""
    return text.replace("\0", "").encode(errors="replace").decode()


def find_assemblies(engine: Engine, context: PageContext, ark: str) -> list[AssemblyRow]:
    """The archives of an object that whoever asks has requested, the newest first."""
    rows: list[AssemblyRow] = []
    for kind in tokens.KINDS:
        for record in engine.store.find(kind, owner=context.who, newest=True, limit=100, documents=True).records:
            order = record.find_document(AssemblyOrder)
            if order is not None and order.object == ark and record.state != ASSEMBLY.deleted:
                rows.append(to_assembly_row(record, order))
    return sorted(rows, key=lambda row: -row.record.created)[:MAX_ASSEMBLIES]


def to_assembly_row(record: Record, order: AssemblyOrder) -> AssemblyRow:
    packed, token = record.find_document(PackedArchive), record.find_document(AssemblyToken)
    is_ready = packed is not None and record.state == ASSEMBLY.completed
    return AssemblyRow(
        record,
        order,
        f"/api/v1/ingest/access/{tokens.token_of(record)}" if is_ready else "",
        token.ready_at if token is not None else "",
        packed.size if packed is not None else None,
        to_rfc3339(packed.expires) if packed is not None else "",
    )
