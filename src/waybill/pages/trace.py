"""The page of a trace: the way of a thing as a picture and as a list, with links to all that it passed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from markupsafe import Markup

from waybill.errors import NotFound
from waybill.http.request_context import declare_role
from waybill.http.trace import make_visibility_check
from waybill.pages.page_context import PageRequest
from waybill.pages.page_routes import make_page_router
from waybill.tracing import open_tracers, render_trace_svg, trace_thing
from waybill.tracing.graph import MAX_TEXT


def build_router() -> APIRouter:
    routes = make_page_router()

    @routes.get("/trace", **declare_role("reader", somewhere=True))
    def show_trace(context: PageRequest, of: Annotated[str, Query(max_length=MAX_TEXT)] = "") -> Response:
        graph, figure = None, ""
        if of.strip():
            try:
                with context.connections.open_store() as store:
                    tracers = open_tracers(context.environment, store)
                    graph = trace_thing(tracers, of, make_visibility_check(context.user))
                figure = Markup(render_trace_svg(graph))
            except NotFound:
                graph = None
        labels = {node.key: node.label for node in graph.nodes} if graph is not None else {}
        return context.render("trace.html", of=of.strip(), graph=graph, figure=figure, labels=labels)

    return routes
