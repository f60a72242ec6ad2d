"""The list that a document of a record names: its files, its objects. Paged, searched and downloaded, however long it is.

    /records/KIND/ID/lists/DOCUMENT?text=&after=       rows of it, MAX_LOOKED_AT at a time
    /records/KIND/ID/lists/DOCUMENT/download           all of them, one JSON line each

A list is read from its beginning each time, in bounded memory, and never further than the page needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse

from waybill.http.api_services import IdText, KindText
from waybill.http.errors import HttpProblem
from waybill.http.request_context import declare_role
from waybill.machine import Machine
from waybill.manifests.record_lists import RecordList, read_list
from waybill.masking import mask_document
from waybill.pages.figures import tone_of
from waybill.pages.formats import record_url
from waybill.pages.page_context import PageContext, PageRequest
from waybill.pages.page_routes import make_page_router
from waybill.record import Record

PAGE_LENGTH = 100
MAX_LOOKED_AT = 200_000  # rows that one search looks at
DocumentText = Annotated[str, Path(max_length=200)]


class FoundRows(NamedTuple):
    rows: list[tuple[int, str]]  # its number, and it
    next: int | None  # after which row the next page begins


def build_router() -> APIRouter:
    routes = make_page_router()

    @routes.get("/records/{kind}/{id}/lists/{document}", **declare_role("reader", somewhere=True))
    def show_rows(
        context: PageRequest,
        kind: Annotated[KindText, Path()],
        id: Annotated[IdText, Path()],
        document: DocumentText,
        text: Annotated[str, Query(max_length=200)] = "",
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    ) -> Response:
        machine, record, written = find_list(context, kind, id, document)
        found = find_rows(iter_rows(context, written), text, after)
        return context.render(
            "rows.html",
            machine=machine,
            record=record,
            tone=tone_of(machine, record.state),
            document=document,
            count=written.count,
            rows=found.rows,
            text=text,
            after=after,
            next_query=urlencode({"text": text, "after": found.next}) if found.next is not None else None,
        )

    @routes.get("/records/{kind}/{id}/lists/{document}/download", **declare_role("reader", somewhere=True))
    def download_rows(
        context: PageRequest, kind: Annotated[KindText, Path()], id: Annotated[IdText, Path()], document: DocumentText
    ) -> Response:
        _, record, written = find_list(context, kind, id, document)
        lines = (line.encode() + b"\n" for _, line in iter_rows(context, written))
        name = quote(f"{record.id}-{document}.jsonl", safe="")
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)

    return routes


def find_list(context: PageContext, kind: str, id: str, document: str) -> tuple[Machine, Record, RecordList]:
    ref, machine = context.get_ref(kind, id), context.machines[kind]
    with context.open_store() as store:
        record = store.get(*ref)
    if document not in list_names_of(machine, record):
        raise HttpProblem("not-found", f"{ref} has no list {document[:100]!r}.", "Its page shows those that it has.")
    declared = machine.find_document(document)
    assert declared is not None
    assert declared.type is not None
    written = record.document(declared.type)
    assert isinstance(written, RecordList)
    return machine, record, written


def list_names_of(machine: Machine, record: Record) -> list[str]:
    """The documents of a record that are lists."""
    return [
        each.name
        for each in machine.documents
        if isinstance(each.type, type) and issubclass(each.type, RecordList) and each.name in record.documents
    ]


def list_links(machine: Machine, record: Record) -> dict[str, str]:
    """The pages of a record's lists, by the names of their documents."""
    return {name: f"{record_url(*record.ref)}/lists/{quote(name)}" for name in list_names_of(machine, record)}


def iter_rows(context: PageContext, written: RecordList) -> Iterator[tuple[int, str]]:
    """The rows as they are shown, numbered from 1; secrets in URLs are removed."""
    rows: Iterator[Any] = read_list(context.environment.objects, written, object)
    for number, row in enumerate(rows, 1):
        yield number, msgspec.json.encode(mask_document(row)).decode()


def find_rows(rows: Iterator[tuple[int, str]], text: str, after: int) -> FoundRows:
    wanted, found, number = text.casefold(), list[tuple[int, str]](), 0
    for number, row in rows:
        if number <= after:
            continue
        if len(found) == PAGE_LENGTH or number > after + MAX_LOOKED_AT:
            return FoundRows(found, number - 1)
        if wanted in row.casefold():
            found.append((number, row))
    return FoundRows(found, None)
