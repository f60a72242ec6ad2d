"""The machines: what kinds of record there are, and all that their tables say."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response
from typing_extensions import TypedDict

from waybill import drawing, views
from waybill.http.errors import responses
from waybill.http.front import Front, Kind, Parent
from waybill.http.guard import need
from waybill.http.wire import answer
from waybill.tokens import Identity
from waybill.views.shapes import MachineView, TallyView

SVG_POLICY = "default-src 'none'; frame-ancestors 'none'"  # the picture needs nothing: its colours are attributes


class MachinesView(TypedDict):
    machines: list[MachineView]


def router(front: Front) -> APIRouter:
    routes = front.router("machines")
    machines = front.depot.machines

    @routes.get(
        "/machines",
        summary="All machines with their tables",
        response_model=MachinesView,
        responses=responses(401, 403, 503),
    )
    def every(identity: Annotated[Identity, need("reader")]) -> Response:
        return answer({"machines": [views.machine(m) for _, m in sorted(machines.items())]})

    @routes.get(
        "/machines/{kind}",
        summary="One machine",
        response_model=MachineView,
        responses=responses(401, 403, 404, 422, 503),
    )
    def one(identity: Annotated[Identity, need("reader")], kind: Annotated[Kind, Path()]) -> Response:
        return answer(views.machine(machines[kind]))

    @routes.get(
        "/machines/{kind}/figure.svg",
        summary="A machine as a picture",
        response_class=Response,
        responses=responses(
            401,
            403,
            404,
            422,
            503,
            also={200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}, "description": "The figure."}},
        ),
    )
    def figure(identity: Annotated[Identity, need("reader")], kind: Annotated[Kind, Path()]) -> Response:
        headers = {"Content-Security-Policy": SVG_POLICY, "Cache-Control": "private, max-age=300"}
        return Response(drawing.svg(machines[kind]), headers=headers, media_type="image/svg+xml")

    @routes.get(
        "/tally/{kind}",
        summary="How many records are in each state",
        response_model=TallyView,
        responses=responses(400, 401, 403, 404, 422, 503),
    )
    def tally(
        identity: Annotated[Identity, need("reader")],
        kind: Annotated[Kind, Path()],
        parent: Annotated[Parent | None, Query(description="KIND:ID: only the children of this record.")] = None,
    ) -> Response:
        machine = front.shown_kind(kind)
        above = front.parse_ref(parent) if parent is not None else None
        with front.connections.store() as store:
            return answer(views.tally(machine, store.tally(kind, parent=above), above))

    return routes
