"""Tokens over HTTP: the identity of a request, and, for admins, the list of tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response
from pydantic import Field
from typing_extensions import TypedDict

from waybill import views
from waybill.http.api_services import ApiServices
from waybill.http.authentication import require_role
from waybill.http.errors import WRITE_STATUSES, describe_responses
from waybill.http.json_io import Name, RequestBody, to_json_response
from waybill.record import MAX_PAGE, RecordNotFound
from waybill.rules import find_id_problem
from waybill.tokens import MAX_NAME, TOKEN, Identity, Role, TokenView, issue, revoke, token_view_of


class NewTokenBody(RequestBody):
    name: Annotated[Name, Field(max_length=MAX_NAME, description="The holder: a person, a program.")]
    role: Role


class IdentityView(TypedDict):
    name: str
    role: Role
    token: str | None


class TokensView(TypedDict):
    tokens: list[TokenView]
    next: str | None


class IssuedTokenView(TokenView):
    token: str  # shown this once


def build_router(services: ApiServices) -> APIRouter:
    routes = services.build_router("tokens")

    @routes.get("/me", summary="Who am I?", response_model=IdentityView)
    def get_identity(identity: Annotated[Identity, require_role("reader")]) -> Response:
        return to_json_response({"name": identity.name, "role": identity.role, "token": identity.token})

    @routes.get("/tokens", summary="All tokens", response_model=TokensView)
    def list_tokens(
        identity: Annotated[Identity, require_role("admin")],
        state: Annotated[Literal["Active", "Revoked"] | None, Query()] = None,
        page_token: Annotated[str | None, Query(description="The `next` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> Response:
        """Never their secrets, which are not stored."""
        with services.connections.open_store() as store:
            page, next_token = views.find_page(
                store,
                views.ListQuery(TOKEN.name, state),
                page_token,
                limit=limit,
                documents=True,
                tokens_of=services.get_page_tokens,
            )
            return to_json_response({"tokens": [token_view_of(r) for r in page.records], "next": next_token})

    @routes.post(
        "/tokens",
        summary="Create a token",
        status_code=201,
        response_model=IssuedTokenView,
        responses=describe_responses(*WRITE_STATUSES),
    )
    def create_token(identity: Annotated[Identity, require_role("admin")], body: NewTokenBody) -> Response:
        """`token` is what its holder sends. It is in this response only, and is not stored."""
        with services.connections.open_engine() as engine:
            issued = issue(engine, body.name, body.role, who=identity.name)
            record = engine.store.get(*issued.record.ref)
        return to_json_response({**token_view_of(record), "token": issued.token}, 201)

    @routes.delete(
        "/tokens/{id}",
        summary="Revoke a token",
        response_model=TokenView,
        responses=describe_responses(*WRITE_STATUSES),
    )
    def revoke_token(identity: Annotated[Identity, require_role("admin")], id: Annotated[Name, Path()]) -> Response:
        if problem := find_id_problem(id):
            raise RecordNotFound(f"There is no token of this id: {problem}")
        with services.connections.open_engine() as engine:
            revoke(engine, id, who=identity.name)
            return to_json_response(token_view_of(engine.store.get(TOKEN.name, id)))

    return routes
