"""Tokens over HTTP: the identity of a request; the tokens, for admins, and for users their own."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response
from pydantic import Field
from typing_extensions import TypedDict

from waybill import views
from waybill.accounts import Grant
from waybill.accounts.roles import check_role_name
from waybill.engine import Engine
from waybill.http.accounts import check_may_change_user, check_may_see_user
from waybill.http.api_services import ApiServices
from waybill.http.authentication import check_role, require_role
from waybill.http.errors import WRITE_STATUSES, HttpProblem, describe_responses
from waybill.http.json_io import Name, RequestBody, to_json_response
from waybill.record import MAX_PAGE, Record, RecordNotFound, Ref
from waybill.rules import find_id_problem
from waybill.sign_in import DAY
from waybill.tokens import MAX_NAME, TOKEN, Identity, Role, TokenDocument, TokenView, issue, revoke, token_view_of


class NewTokenBody(RequestBody):
    name: Annotated[Name, Field(max_length=MAX_NAME, description="The holder: a person, a program.")]
    role: Role
    scope: Annotated[str, Field(max_length=200)] = Field("", description="Where the role holds; empty: everywhere.")
    user: Annotated[str, Field(max_length=200)] = Field(
        "", description="Whose it is: it then allows no more than this user may."
    )
    days: Annotated[float, Field(gt=0, le=3650)] | None = Field(None, description="Days until it expires.")


class GrantView(TypedDict):
    role: Role
    scope: str


class IdentityView(TypedDict):
    name: str
    role: str  # everywhere; empty: none
    grants: list[GrantView]
    owners: list[str]
    user: str
    token: str | None


class TokensView(TypedDict):
    tokens: list[TokenView]
    next: str | None


class IssuedTokenView(TokenView):
    token: str  # shown this once


def build_router(services: ApiServices) -> APIRouter:
    routes = services.build_router("tokens")

    @routes.get("/me", summary="Who am I?", response_model=IdentityView)
    def get_identity(identity: Annotated[Identity, require_role("reader", somewhere=True)]) -> Response:
        """`role` holds everywhere; `grants` are all, each with its scope; `owners` the names whose records are its own."""
        grants = identity.grants or (Grant(check_role_name(identity.role)),)
        return to_json_response(
            {
                "name": identity.name,
                "role": identity.role,
                "grants": [{"role": grant.role, "scope": grant.scope} for grant in grants],
                "owners": list(identity.owners),
                "user": identity.user,
                "token": identity.token,
            }
        )

    @routes.get("/tokens", summary="All tokens", response_model=TokensView)
    def list_tokens(
        identity: Annotated[Identity, require_role("reader", somewhere=True)],
        state: Annotated[Literal["Active", "Revoked"] | None, Query()] = None,
        user: Annotated[Name | None, Query(description="Only those of this user.")] = None,
        page_token: Annotated[str | None, Query(description="The `next` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> Response:
        """Never their secrets, which are not stored. A user may list its own."""
        if user is None:
            check_role(identity, "admin")
        else:
            check_may_see_user(identity, user)
            if state is not None:
                raise HttpProblem("bad-query", "A list has at most one filter.", "Give only one of state and user.")
        with services.connections.open_store() as store:
            page, next_token = views.find_page(
                store,
                views.ListQuery(TOKEN.name, state, owner=user),
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
    def create_token(
        identity: Annotated[Identity, require_role("reader", somewhere=True)], body: NewTokenBody
    ) -> Response:
        """`token` is what its holder sends. It is in this response only, and is not stored. A user may make tokens of its own."""
        if not body.user:
            check_role(identity, "admin")
        else:
            check_may_change_user(identity, body.user)
        lifetime = body.days * DAY if body.days is not None else None
        with services.connections.open_engine() as engine:
            issued = issue(
                engine, body.name, body.role, scope=body.scope, user=body.user, lifetime=lifetime, who=identity.name
            )
            record = engine.store.get(*issued.record.ref)
        return to_json_response({**token_view_of(record), "token": issued.token}, 201)

    @routes.delete(
        "/tokens/{id}",
        summary="Revoke a token",
        response_model=TokenView,
        responses=describe_responses(*WRITE_STATUSES),
    )
    def revoke_token(
        identity: Annotated[Identity, require_role("reader", somewhere=True)], id: Annotated[Name, Path()]
    ) -> Response:
        """Not that of the last admin. A user may revoke its own, and everybody the one that it sends."""
        if problem := find_id_problem(id):
            raise RecordNotFound(f"There is no token of this id: {problem}")
        with services.connections.open_engine() as engine:
            if id != identity.token and not identity.has_role("admin"):
                record = find_token_record(engine, id)
                if record is None or not identity.user or record.document(TokenDocument).user != identity.user:
                    check_role(identity, "admin")
            revoke(engine, id, who=identity.name)
            return to_json_response(token_view_of(engine.store.get(TOKEN.name, id)))

    return routes


def find_token_record(engine: Engine, id: str) -> Record | None:
    return engine.store.get_many([Ref(TOKEN.name, id)]).get(Ref(TOKEN.name, id))
