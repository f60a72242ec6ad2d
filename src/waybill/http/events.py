"""The log of events: a page of it, and server-sent events that go on from Last-Event-ID.

    GET /api/v1/events            {"events": [...], "after": 1234}       the next page begins after that
    GET /api/v1/events/stream     id: 1234
                                  event: bakery.loaf.baked
                                  data: {"id": "event0000001234", ...}

A stream begins after the event that the client names, or with what happens from now on. A client that was cut off listens
again with the id of the last event that it has seen, as browsers do by themselves, and misses nothing that is still in
the log.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query
from fastapi.responses import Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from typing_extensions import TypedDict

from waybill import views
from waybill.http.api_services import ApiServices
from waybill.http.authentication import credential_of, require_role
from waybill.http.change_feed import FeedListener, FeedTopic
from waybill.http.change_stream import ChangeStream
from waybill.http.errors import READ_STATUSES, describe_responses
from waybill.http.json_io import to_json_response
from waybill.subscriptions import ReceivedEvent, read_events
from waybill.subscriptions.event_log import find_log_end
from waybill.tokens import Identity

MAX_SEQ = 2**53
PAGE_SIZE = 200

TypePatterns = Annotated[
    list[Annotated[str, Field(max_length=200)]],
    Query(description="Only events of these types; * stands for any part of a name.", max_length=20),
]


class EventView(TypedDict):
    id: str
    type: str
    subject: str
    data: dict[str, Any]
    at: str | None
    seq: int  # its place in the log


class EventPageView(TypedDict):
    events: list[EventView]
    after: int  # the place up to which the log was read; the next page begins after it


def to_event_view(event: ReceivedEvent) -> EventView:
    return {
        "id": event.id,
        "type": event.type,
        "subject": event.subject,
        "data": dict(event.data),
        "at": views.format_time(event.at),
        "seq": event.seq,
    }


class EventStream(ChangeStream):
    """Sends what is new in the log whenever the feed says that it has grown."""

    def __init__(self, services: ApiServices, listener: FeedListener, after: int | None, types: list[str]) -> None:
        super().__init__(services.change_feed, listener)
        self._services, self._position, self._types = services, after, types
        self._has_more = after is not None

    async def _next(self, disconnected: asyncio.Future[None]) -> bytes | None:
        if not self._has_more:
            message = await super()._next(disconnected)
            if message is None or not message.startswith(b"event:"):
                return message  # a comment
        if disconnected.done():
            return None
        events = await run_in_threadpool(self._read_page)
        return b"".join(map(_format_event, events)) or b": nothing new\n\n"

    def _read_page(self) -> list[ReceivedEvent]:
        with self._services.connections.open_store() as store:
            if self._position is None:
                self._position = find_log_end(store)
            before = self._position
            events, self._position = read_events(store, before, types=self._types, limit=PAGE_SIZE)
            self._has_more = self._position != before
            return events


def _format_event(event: ReceivedEvent) -> bytes:
    data = msgspec.json.encode(to_event_view(event))
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.seq, event.type.encode(), data)


def build_router(services: ApiServices) -> APIRouter:
    routes = services.build_router("events")

    @routes.get(
        "/events",
        summary="What has happened: a page of the log of events",
        response_model=EventPageView,
        responses=describe_responses(*READ_STATUSES),
    )
    def list_events(
        identity: Annotated[Identity, require_role("reader")],
        type: TypePatterns = ["*"],  # noqa: B006 - FastAPI copies it
        after: Annotated[int, Query(ge=0, le=MAX_SEQ, description="Begin after this place in the log.")] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Response:
        """Events that nobody subscribes to, and that the setting `events.log` does not name, are not in the log."""
        with services.connections.open_store() as store:
            events, position = read_events(store, after, types=type, limit=limit)
        return to_json_response({"events": [to_event_view(each) for each in events], "after": position})

    @routes.get(
        "/events/stream",
        summary="What happens, as server-sent events",
        response_class=Response,
        responses=describe_responses(
            *READ_STATUSES,
            extra={
                200: {
                    "content": {"text/event-stream": {"schema": {"type": "string"}}},
                    "description": "A stream that does not end.",
                }
            },
        ),
    )
    async def stream_events(
        identity: Annotated[Identity, require_role("reader")],
        type: TypePatterns = ["*"],  # noqa: B006 - FastAPI copies it
        last_event_id: Annotated[
            int | None, Header(ge=0, le=MAX_SEQ, description="The id of the last event that was received.")
        ] = None,
        after: Annotated[
            int | None, Query(ge=0, le=MAX_SEQ, description="The same, where headers cannot be set.")
        ] = None,
    ) -> Response:
        """The name of each is its type, its id its place in the log, its data as in a page."""
        listener = services.change_feed.add_listener([FeedTopic("events")], credential_of(identity))
        return EventStream(services, listener, last_event_id if last_event_id is not None else after, type)

    return routes
