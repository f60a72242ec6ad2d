"""Profiles and collections over HTTP: put, list, show, retire, restore, delete; profiles from Merritt's properties files.

    GET  /api/v1/ingest/profiles                 PUT  /api/v1/ingest/profiles/<name>       GET /api/v1/ingest/profiles/<name>
    POST /api/v1/ingest/profiles/<name>/<act>    POST /api/v1/ingest/profile-imports       and the same for collections

The password of a callback is never shown: a profile that is put without it keeps its password.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Path, Query, Request
from fastapi.responses import Response

from waybill import views
from waybill.apps.ingest import service
from waybill.apps.ingest.merritt import java_properties
from waybill.apps.ingest.routes.context import PREFIX, IngestRequest
from waybill.apps.ingest.routes.schemas import (
    DocumentActionBody,
    ImportedProfileView,
    ManagedDocumentPageView,
    ManagedDocumentView,
)
from waybill.apps.ingest.service.managed_documents import ManagedDocuments
from waybill.engine import Engine
from waybill.http.errors import WRITE_STATUSES, describe_responses
from waybill.http.json_io import read_body, to_json_response
from waybill.http.request_context import declare_role, make_router
from waybill.record import MAX_PAGE, Record

DocumentName = Annotated[str, Path(max_length=128)]
Reason = Annotated[str, Query(max_length=1000, description="Why; written to the history.")]


def build_profile_router() -> APIRouter:
    router = make_router(PREFIX, "ingest profiles")
    for documents in (service.PROFILES, service.COLLECTIONS):
        _add_document_routes(router, documents)
    _add_import_route(router)
    return router


def _add_document_routes(router: APIRouter, documents: ManagedDocuments[Any]) -> None:
    plural = f"{documents.kind}s"

    @router.get(
        f"/{plural}",
        summary=f"The {plural}, page by page",
        name=f"list_{plural}",
        response_model=ManagedDocumentPageView,
        **declare_role("reader"),
    )
    def list_documents(
        context: IngestRequest,
        state: Annotated[Literal["Active", "Retired"] | None, Query()] = None,
        page_token: Annotated[str | None, Query(description="The `next` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> Response:
        with context.open_engine() as engine:
            page, next_token = context.find_page(
                engine.store, views.ListQuery(documents.kind, state), page_token, limit=limit
            )
            found = [_to_view(engine, record) for record in page.records if record.state != "Deleted"]
            return to_json_response({"documents": found, "next": next_token})

    @router.get(
        f"/{plural}/{{name}}",
        summary=f"One {documents.kind}",
        name=f"one_{documents.kind}",
        response_model=ManagedDocumentView,
        **declare_role("reader"),
    )
    def get_document(context: IngestRequest, name: DocumentName) -> Response:
        with context.open_engine() as engine:
            return to_json_response(_to_view(engine, documents.get_record(engine, name)))

    @router.put(
        f"/{plural}/{{name}}",
        summary=f"Add a {documents.kind}, or change it",
        name=f"put_{documents.kind}",
        response_model=ManagedDocumentView,
        responses=describe_responses(
            *WRITE_STATUSES, extra={201: {"model": ManagedDocumentView, "description": "It was added."}}
        ),
        **declare_role("admin"),
    )
    def put_document(
        context: IngestRequest, name: DocumentName, body: Annotated[dict[str, Any], Body()], why: Reason = ""
    ) -> Response:
        with context.open_engine() as engine:
            record, is_new = documents.put(engine, body, name=name, who=context.who, why=why)
            view = _to_view(engine, engine.store.get(*record.ref))
        context.notify_change()
        return to_json_response(view, 201 if is_new else 200)

    @router.post(
        f"/{plural}/{{name}}/{{action}}",
        summary=f"Retire, restore or delete a {documents.kind}",
        name=f"act_{documents.kind}",
        response_model=ManagedDocumentView,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("admin"),
    )
    def act_on_document(
        context: IngestRequest,
        name: DocumentName,
        action: Literal["retire", "restore", "delete"],
        body: DocumentActionBody | None = None,
    ) -> Response:
        body = body if body is not None else DocumentActionBody(confirmed=False)
        with context.open_engine() as engine:
            record = documents.act(engine, name, action, who=context.who, why=body.why, confirmed=body.confirmed)
            view = _to_view(engine, engine.store.get(*record.ref))
        context.notify_change()
        return to_json_response(view)


def _add_import_route(router: APIRouter) -> None:
    @router.post(
        "/profile-imports",
        summary="Import a profile from one of Merritt's properties files",
        response_model=ImportedProfileView,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role(
            "admin", requestBody={"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}}
        ),
    )
    def import_profile(
        context: IngestRequest,
        data: Annotated[bytes, Depends(_read_text)],
        name: Annotated[
            str, Query(max_length=128, description="The name that deposits use; overrides ProfileID.")
        ] = "",
        why: Reason = "",
    ) -> Response:
        with context.open_engine() as engine:
            record, remarks = service.import_profile(engine, data, name, who=context.who, why=why)
            view = {**_to_view(engine, engine.store.get(*record.ref)), "remarks": remarks}
        context.notify_change()
        return to_json_response(view)


async def _read_text(request: Request) -> bytes:
    return await read_body(request, java_properties.MAX_BYTES, "A profile is a small file.")


def _to_view(engine: Engine, record: Record) -> dict[str, Any]:
    shown = views.to_public_documents(engine.machines[record.kind], record.documents)
    return {
        "name": record.id,
        "state": record.state,
        "version": record.version,
        "created": views.format_time(record.created),
        "updated": views.format_time(record.updated),
        "document": shown.get(record.kind),
    }
