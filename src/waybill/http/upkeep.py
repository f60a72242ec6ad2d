"""Marks, and who works now."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.responses import Response
from typing_extensions import TypedDict

from waybill import views
from waybill.http.errors import Problem, responses
from waybill.http.front import Front
from waybill.http.guard import need
from waybill.http.wire import Body, Name, Text, answer
from waybill.rules import check_mark
from waybill.tokens import Identity
from waybill.views.shapes import SessionView


class Why(Body):
    why: Text = ""


class MarkView(TypedDict):
    name: str
    about: str  # who set it, and why


class MarksView(TypedDict):
    marks: list[MarkView]


class SessionsView(TypedDict):
    sessions: list[SessionView]


def router(front: Front) -> APIRouter:
    routes = front.router("upkeep")

    @routes.get("/marks", summary="The marks in force", response_model=MarksView, responses=responses(401, 403, 503))
    def marks(identity: Annotated[Identity, need("reader")]) -> Response:
        with front.connections.store() as store:
            return answer(_marks(store.marks()))

    @routes.put(
        "/marks/{name:path}",
        summary="Set a mark: a collection on hold, a queue paused",
        response_model=MarkView,
        responses=responses(400, 401, 403, 404, 413, 415, 422, 503, 504),
    )
    def set_mark(
        identity: Annotated[Identity, need("operator")], name: Annotated[Name, Path()], body: Why | None = None
    ) -> Response:
        with front.connections.engine() as engine:
            engine.hold(name, who=identity.name, why=body.why if body is not None else "")
            about = engine.store.marks().get(name, "")
        front.hub.hint()
        return answer({"name": name, "about": about})

    @routes.delete(
        "/marks/{name:path}",
        summary="Clear a mark",
        status_code=204,
        response_class=Response,
        responses=responses(400, 401, 403, 404, 422, 503, 504),
    )
    def clear_mark(identity: Annotated[Identity, need("operator")], name: Annotated[Name, Path()]) -> Response:
        """Whatever it stopped goes on."""
        check_mark(name)
        with front.connections.engine() as engine:
            there = engine.store.marks()
            if name not in there:
                said = f"There is no mark {name!r} in force; there are {', '.join(sorted(there)[:20]) or 'none'}."
                raise Problem(404, "unknown-mark", said, "GET /api/v1/marks lists them.")
            engine.release(name, who=identity.name)
        front.hub.hint()
        return Response(status_code=204)

    @routes.get(
        "/sessions",
        summary="Who works now, on what, and how far",
        response_model=SessionsView,
        responses=responses(401, 403, 503),
    )
    def sessions(identity: Annotated[Identity, need("reader")]) -> Response:
        with front.connections.store() as store:
            now = store.now()
            return answer({"sessions": [views.session(s, now) for s in store.sessions()]})

    return routes


def _marks(marks: dict[str, str]) -> Any:
    return {"marks": [{"name": name, "about": about} for name, about in sorted(marks.items())]}
