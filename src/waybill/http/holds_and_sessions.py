"""Holds, and the sessions of workers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.responses import Response
from typing_extensions import TypedDict

from waybill import views
from waybill.http.api_services import ApiServices
from waybill.http.authentication import require_role
from waybill.http.errors import WRITE_STATUSES, HttpProblem, describe_responses
from waybill.http.json_io import Name, RequestBody, Text, to_json_response
from waybill.rules import check_hold_name
from waybill.tokens import Identity
from waybill.views.view_types import SessionView


class ReasonBody(RequestBody):
    why: Text = ""


class ActiveHoldView(TypedDict):
    name: str
    about: str  # who set it, and why


class ActiveHoldsView(TypedDict):
    holds: list[ActiveHoldView]


class SessionsView(TypedDict):
    sessions: list[SessionView]


def build_router(services: ApiServices) -> APIRouter:
    routes = services.build_router("holds and sessions")

    @routes.get("/holds", summary="The holds in force", response_model=ActiveHoldsView)
    def list_holds(identity: Annotated[Identity, require_role("reader")]) -> Response:
        with services.connections.open_store() as store:
            return to_json_response(_holds_view_of(store.list_holds()))

    @routes.put(
        "/holds/{name:path}",
        summary="Set a hold: a collection on hold, a queue paused",
        response_model=ActiveHoldView,
        responses=describe_responses(*WRITE_STATUSES),
    )
    def set_hold(
        identity: Annotated[Identity, require_role("operator")],
        name: Annotated[Name, Path()],
        body: ReasonBody | None = None,
    ) -> Response:
        with services.connections.open_engine() as engine:
            engine.set_hold(name, who=identity.name, why=body.why if body is not None else "")
            about = engine.store.list_holds().get(name, "")
        services.change_feed.notify_changed()
        return to_json_response({"name": name, "about": about})

    @routes.delete(
        "/holds/{name:path}",
        summary="Clear a hold",
        status_code=204,
        response_class=Response,
        responses=describe_responses(*WRITE_STATUSES),
    )
    def clear_hold(identity: Annotated[Identity, require_role("operator")], name: Annotated[Name, Path()]) -> Response:
        """Records that it blocked can be claimed again."""
        check_hold_name(name)
        with services.connections.open_engine() as engine:
            holds = engine.store.list_holds()
            if name not in holds:
                message = f"There is no hold {name!r} in force; there are {', '.join(sorted(holds)[:20]) or 'none'}."
                raise HttpProblem("unknown-hold", message, "GET /api/v1/holds lists them.")
            engine.clear_hold(name)
        services.change_feed.notify_changed()
        return Response(status_code=204)

    @routes.get("/sessions", summary="The workers that are alive, and their progress", response_model=SessionsView)
    def list_sessions(identity: Annotated[Identity, require_role("reader")]) -> Response:
        with services.connections.open_store() as store:
            now = store.now()
            return to_json_response({"sessions": [views.to_session_view(s, now) for s in store.list_sessions()]})

    return routes


def _holds_view_of(holds: dict[str, str]) -> Any:
    return {"holds": [{"name": name, "about": about} for name, about in sorted(holds.items())]}
