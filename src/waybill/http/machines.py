"""The machines: the kinds of record, and everything that their declarations say."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response
from typing_extensions import TypedDict

from waybill import drawing, views
from waybill.http.api_services import ApiServices, KindText, ParentText
from waybill.http.authentication import require_role
from waybill.http.json_io import to_json_response
from waybill.tokens import Identity
from waybill.views.view_types import MachineView, StateCountsView

SVG_POLICY = "default-src 'none'; frame-ancestors 'none'"  # the picture loads nothing: its colours are attributes


class MachinesView(TypedDict):
    machines: list[MachineView]


def build_router(services: ApiServices) -> APIRouter:
    routes = services.build_router("machines")
    machines = services.environment.machines

    @routes.get("/machines", summary="All machines with their states and actions", response_model=MachinesView)
    def list_machines(identity: Annotated[Identity, require_role("reader", somewhere=True)]) -> Response:
        return to_json_response({"machines": [views.to_machine_view(m) for _, m in sorted(machines.items())]})

    @routes.get("/machines/{kind}", summary="One machine", response_model=MachineView)
    def get_machine(
        identity: Annotated[Identity, require_role("reader", somewhere=True)], kind: Annotated[KindText, Path()]
    ) -> Response:
        return to_json_response(views.to_machine_view(machines[kind]))

    @routes.get(
        "/machines/{kind}/figure.svg",
        summary="A machine as a picture",
        response_class=Response,
        responses={200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}, "description": "The figure."}},
    )
    def get_figure(
        identity: Annotated[Identity, require_role("reader", somewhere=True)], kind: Annotated[KindText, Path()]
    ) -> Response:
        headers = {"Content-Security-Policy": SVG_POLICY, "Cache-Control": "private, max-age=300"}
        return Response(drawing.render_svg(machines[kind]), headers=headers, media_type="image/svg+xml")

    @routes.get("/counts/{kind}", summary="How many records are in each state", response_model=StateCountsView)
    def count_by_state(
        identity: Annotated[Identity, require_role("reader", somewhere=True)],
        kind: Annotated[KindText, Path()],
        parent: Annotated[ParentText | None, Query(description="KIND:ID: only the children of this record.")] = None,
    ) -> Response:
        machine = services.get_visible_machine(kind)
        parent_ref = services.parse_ref(parent) if parent is not None else None
        with services.open_store(identity) as store:
            if parent_ref is not None and not identity.has_role("reader"):
                store.get(*parent_ref)  # raises where it may not be seen
            return to_json_response(
                views.to_state_counts_view(machine, store.count_by_state(kind, parent=parent_ref), parent_ref)
            )

    return routes
