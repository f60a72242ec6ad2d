"""`GET /api/v1/trace`: the whole way of a thing, of what the caller may see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from waybill.http.api_services import ApiServices
from waybill.http.authentication import require_role
from waybill.http.json_io import to_json_response
from waybill.http.machines import SVG_POLICY
from waybill.tokens import Identity
from waybill.tracing import (
    TraceNode,
    TraceView,
    open_tracers,
    render_trace_svg,
    to_open_lineage,
    to_prov,
    to_trace_view,
    trace_thing,
)
from waybill.tracing.graph import MAX_TEXT

TraceFormat = Literal["json", "svg", "openlineage", "prov"]


def make_visibility_check(identity: Identity) -> Callable[[TraceNode], bool]:
    """A node is visible as the record of its application, owner and scope would be."""

    def is_visible(node: TraceNode) -> bool:
        return identity.role_of(node.owner, node.scope, node.application) != ""

    return is_visible


def build_router(services: ApiServices) -> APIRouter:
    routes = services.build_router("trace")

    @routes.get(
        "/trace",
        summary="The way of a thing through all applications",
        response_model=TraceView,
        responses={200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}}},
    )
    def trace(
        identity: Annotated[Identity, require_role("reader", somewhere=True)],
        of: Annotated[
            str,
            Query(
                min_length=1,
                max_length=MAX_TEXT,
                description="An ARK, a local id, a lot, or the id of a deposit, run, job or migration.",
            ),
        ],
        format: Annotated[
            TraceFormat, Query(description="`openlineage` and `prov` are JSON for other tools, `svg` a picture.")
        ] = "json",
    ) -> Response:
        """What the caller may not see is left out."""
        with services.connections.open_store() as store:
            graph = trace_thing(open_tracers(services.environment, store), of, make_visibility_check(identity))
        if format == "svg":
            headers = {"Content-Security-Policy": SVG_POLICY}
            return Response(render_trace_svg(graph), headers=headers, media_type="image/svg+xml")
        shapes = {"json": to_trace_view, "openlineage": to_open_lineage, "prov": to_prov}
        return to_json_response(shapes[format](graph))

    return routes
