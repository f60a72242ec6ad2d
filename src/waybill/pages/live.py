"""`/live`: the stream that makes pages live, one for all tabs of a browser.

Who listens gets the number of records of every kind and state, the workers and their progress, the holds, and whether the store can be
reached. A page writes the numbers into its figures by itself, and loads again the parts that show more (`static/live.js`).
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from waybill.http.authentication import credential_of
from waybill.http.change_stream import ChangeStream, list_common_topics, list_count_topics
from waybill.http.request_context import declare_role
from waybill.pages.page_context import PageContext
from waybill.pages.page_routes import make_page_router


def build_router() -> APIRouter:
    routes = make_page_router()

    @routes.get("/live", **declare_role("reader", somewhere=True))
    async def stream_changes(request: Request) -> Response:
        context = PageContext(request)
        topics = [*list_count_topics(context.access, context.machines), *list_common_topics(context.user)]
        feed = context.services.change_feed
        return ChangeStream(feed, feed.add_listener(topics, credential_of(context.user)))

    return routes
