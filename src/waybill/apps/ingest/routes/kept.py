"""Profiles and collections over HTTP: put, look at, retire, restore, delete; and profiles from Merritt's properties
files.

    GET  /api/v1/ingest/profiles                 PUT  /api/v1/ingest/profiles/<name>       GET /api/v1/ingest/profiles/<name>
    POST /api/v1/ingest/profiles/<name>/<act>    POST /api/v1/ingest/profile-imports       and the same for collections

The password of a callback is written and never shown: a profile that is put without it keeps the one it has.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Path, Query, Request
from fastapi.responses import Response

from waybill import views
from waybill.apps.ingest import properties, service
from waybill.apps.ingest.routes.counter import At, role, router
from waybill.apps.ingest.routes.shapes import Act, ImportedView, KeptPageView, KeptView
from waybill.apps.ingest.service.shelf import Shelf
from waybill.engine import Engine
from waybill.http.errors import Problem, responses
from waybill.http.wire import answer
from waybill.record import MAX_PAGE, Record
from waybill.views import BadToken

KeptName = Annotated[str, Path(max_length=128)]
Reason = Annotated[str, Query(max_length=1000, description="Why; it is written into the history.")]


def routes() -> APIRouter:
    made = router("ingest profiles")
    for shelf in (service.PROFILES, service.COLLECTIONS):
        _of(made, shelf)
    _import(made)
    return made


def _of(made: APIRouter, shelf: Shelf[Any]) -> None:
    plural = f"{shelf.kind}s"

    @made.get(
        f"/{plural}",
        summary=f"The {plural}, page by page",
        name=f"list_{plural}",
        response_model=KeptPageView,
        responses=responses(400, 401, 403, 422, 503),
        **role("reader"),
    )
    def find(
        at: At,
        state: Annotated[Literal["Active", "Retired"] | None, Query()] = None,
        token: Annotated[str | None, Query(description="The `next` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> Response:
        query, after = views.Query(shelf.kind, state), None
        with at.engine() as engine:
            tokens = at.pages(engine.store)
            if token is not None:
                asked, after = tokens.verify(token)
                if asked.kind != shelf.kind or state not in (None, asked.state):
                    raise BadToken
                query = asked
            page = shelf.page(engine, state=query.state, after=after, limit=limit)
            entries = [_view(engine, record) for record in page.records if record.state != "Deleted"]
            return answer({"entries": entries, "next": tokens.sign(query, page.after)})

    @made.get(
        f"/{plural}/{{name}}",
        summary=f"One {shelf.kind}",
        name=f"one_{shelf.kind}",
        response_model=KeptView,
        responses=responses(401, 403, 404, 422, 503),
        **role("reader"),
    )
    def one(at: At, name: KeptName) -> Response:
        with at.engine() as engine:
            return answer(_view(engine, shelf.record(engine, name)))

    @made.put(
        f"/{plural}/{{name}}",
        summary=f"Make a {shelf.kind}, or change it",
        name=f"put_{shelf.kind}",
        response_model=KeptView,
        responses=responses(
            400,
            401,
            403,
            404,
            409,
            413,
            415,
            422,
            503,
            504,
            also={201: {"model": KeptView, "description": "It was made."}},
        ),
        **role("admin"),
    )
    def put(at: At, name: KeptName, body: Annotated[dict[str, Any], Body()], why: Reason = "") -> Response:
        with at.engine() as engine:
            record, fresh = shelf.put(engine, body, name=name, who=at.who, why=why)
            view = _view(engine, engine.store.get(*record.ref))
        at.changed()
        return answer(view, 201 if fresh else 200)

    @made.post(
        f"/{plural}/{{name}}/{{action}}",
        summary=f"Retire, restore or delete a {shelf.kind}",
        name=f"act_{shelf.kind}",
        response_model=KeptView,
        responses=responses(400, 401, 403, 404, 409, 413, 415, 422, 503, 504),
        **role("admin"),
    )
    def act(
        at: At, name: KeptName, action: Literal["retire", "restore", "delete"], body: Act | None = None
    ) -> Response:
        asked = body if body is not None else Act(confirmed=False)
        with at.engine() as engine:
            record = shelf.act(engine, name, action, who=at.who, why=asked.why, confirmed=asked.confirmed)
            view = _view(engine, engine.store.get(*record.ref))
        at.changed()
        return answer(view)


def _import(made: APIRouter) -> None:
    @made.post(
        "/profile-imports",
        summary="Make a profile from one of Merritt's properties files",
        response_model=ImportedView,
        responses=responses(400, 401, 403, 404, 409, 413, 422, 503, 504),
        **role("admin", requestBody={"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}}),
    )
    def import_profile(
        at: At,
        data: Annotated[bytes, Depends(_text)],
        name: Annotated[
            str, Query(max_length=128, description="The file's own, which deposits use; it wins over ProfileID.")
        ] = "",
        why: Reason = "",
    ) -> Response:
        with at.engine() as engine:
            record, remarks = service.import_profile(engine, data, name, who=at.who, why=why)
            view = {**_view(engine, engine.store.get(*record.ref)), "remarks": remarks}
        at.changed()
        return answer(view)


async def _text(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > properties.LIMIT:
            raise Problem(
                413, "too-large", f"The file has more than {properties.LIMIT:,} bytes.", "A profile is a small file."
            )
        parts.append(part)
    return b"".join(parts)


def _view(engine: Engine, record: Record) -> dict[str, Any]:
    shown = views.documents(engine.machines[record.kind], record.docs)
    return {
        "name": record.id,
        "state": record.state,
        "version": record.version,
        "created": views.moment(record.created),
        "updated": views.moment(record.updated),
        "document": shown.get(record.kind),
    }
