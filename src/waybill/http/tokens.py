"""Tokens over HTTP: who am I, and, for admins, who may come in."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response
from pydantic import Field
from typing_extensions import TypedDict

from waybill import views
from waybill.http.errors import responses
from waybill.http.front import Front
from waybill.http.guard import need
from waybill.http.wire import Body, Name, answer
from waybill.record import MAX_PAGE, NotFound, Record
from waybill.rules import bad_id
from waybill.tokens import MAX_NAME, TOKEN, Identity, Role, issue, revoke
from waybill.views import BadToken, moment


class NewToken(Body):
    name: Annotated[Name, Field(max_length=MAX_NAME, description="Who holds it: a person, a program.")]
    role: Role


class MeView(TypedDict):
    name: str
    role: Role
    token: str | None


class TokenView(TypedDict):
    id: str
    name: str
    role: str
    state: str
    created: str | None


class TokensView(TypedDict):
    tokens: list[TokenView]
    next: str | None


class IssuedView(TokenView):
    token: str  # shown this once


def view(record: Record) -> TokenView:
    body = record.docs.get("token") or {}
    return {
        "id": record.id,
        "name": str(body.get("name", "")),
        "role": str(body.get("role", "")),
        "state": record.state,
        "created": moment(record.created),
    }


def router(front: Front) -> APIRouter:
    routes = front.router("tokens")

    @routes.get("/me", summary="Who am I?", response_model=MeView, responses=responses(401, 503))
    def me(identity: Annotated[Identity, need("reader")]) -> Response:
        return answer({"name": identity.name, "role": identity.role, "token": identity.token})

    @routes.get(
        "/tokens", summary="All tokens", response_model=TokensView, responses=responses(400, 401, 403, 422, 503)
    )
    def tokens(
        identity: Annotated[Identity, need("admin")],
        state: Annotated[Literal["Active", "Revoked"] | None, Query()] = None,
        token: Annotated[str | None, Query(description="The `next` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> Response:
        """Never their secrets: those are known to their holders alone."""
        asked = views.Query(TOKEN.name, state)
        with front.connections.store() as store:
            pages, after = front.pages(store), None
            if token is not None:
                query, after = pages.verify(token)
                if query.kind != TOKEN.name or state not in (None, query.state):
                    raise BadToken("This page token belongs to another list.")
                asked = query
            page = store.find(TOKEN.name, state=asked.state, after=after, limit=limit, docs=True)
            return answer({"tokens": [view(r) for r in page.records], "next": pages.sign(asked, page.after)})

    @routes.post(
        "/tokens",
        summary="Make a token",
        status_code=201,
        response_model=IssuedView,
        responses=responses(400, 401, 403, 409, 413, 415, 422, 503, 504),
    )
    def make(identity: Annotated[Identity, need("admin")], body: NewToken) -> Response:
        """`token` is what its holder shows. It is answered this once and kept nowhere."""
        with front.connections.engine() as engine:
            issued = issue(engine, body.name, body.role, who=identity.name)
            record = engine.store.get(*issued.record.ref)
        return answer({**view(record), "token": issued.token}, 201)

    @routes.delete(
        "/tokens/{id}",
        summary="Revoke a token",
        response_model=TokenView,
        responses=responses(401, 403, 404, 409, 422, 503, 504),
    )
    def end(identity: Annotated[Identity, need("admin")], id: Annotated[Name, Path()]) -> Response:
        if problem := bad_id(id):
            raise NotFound(f"There is no token of this id: {problem}")
        with front.connections.engine() as engine:
            revoke(engine, id, who=identity.name)
            return answer(view(engine.store.get(TOKEN.name, id)))

    return routes
