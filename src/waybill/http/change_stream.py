"""`GET /changes`: live changes as server-sent events, for pages and for any client with a token.

    retry: 3000

    event: counts
    data: {"kind": "shipment", "total": 3, ...}

A line that begins with a colon is a comment: a heartbeat, or why the stream ends. A stream starts with the present
snapshot of all its topics, so after a break the client listens again and has missed nothing that is still true.
Documents are not sent: a client that shows them reads the record again when its version has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from starlette.types import Message, Receive, Scope, Send

from waybill import views
from waybill.accounts import RecordAccess
from waybill.accounts.roles import NOTHING
from waybill.http.api_services import ApiServices, IdText, KindText, ParentText
from waybill.http.authentication import credential_of, require_role
from waybill.http.change_feed import ChangeFeed, FeedListener, FeedTopic
from waybill.http.errors import READ_STATUSES, HttpProblem, describe_responses
from waybill.record import BadStore, RecordNotFound, Store
from waybill.rules import Machines
from waybill.sign_in import PRIVATE_KINDS
from waybill.subscriptions.event_log import find_log_end
from waybill.tokens import Identity

HEARTBEAT = 15.0  # seconds of silence before a comment is sent; proxies cut silent streams
SEND_TIMEOUT = 30.0  # seconds that a client may take to accept one message


class ChangeStream(Response):
    """Writes the messages of a listener until the feed ends it or the client disconnects."""

    media_type = "text/event-stream"

    def __init__(self, feed: ChangeFeed, listener: FeedListener, heartbeat: float = HEARTBEAT) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._feed = feed
        self._listener = listener
        self._heartbeat = heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await _send_in_time(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _send_in_time(send, _to_body_message(b"retry: 3000\n\n"))
            while (text := await self._next(disconnected)) is not None:
                await _send_in_time(send, _to_body_message(text))
            await _send_in_time(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, OSError):
            return  # the client stopped reading: nothing can be sent to it
        finally:
            self._feed.remove_listener(self._listener)
            disconnected.cancel()

    async def _next(self, disconnected: asyncio.Future[None]) -> bytes | None:
        received = asyncio.ensure_future(self._listener.queue.get())
        either: set[asyncio.Future[Any]] = {received, disconnected}
        await asyncio.wait(either, timeout=self._heartbeat, return_when=asyncio.FIRST_COMPLETED)
        if not received.done():
            received.cancel()
            return None if disconnected.done() else b": still here\n\n"
        message = received.result()
        if message is None:
            return None
        if isinstance(message, str):
            return f": {message}\n\n".encode()
        return b"event: %b\ndata: %b\n\n" % (message[0].encode(), message[1])


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _to_body_message(text: bytes) -> Message:
    return {"type": "http.response.body", "body": text, "more_body": True}


async def _send_in_time(send: Send, message: Message) -> None:
    async with asyncio.timeout(SEND_TIMEOUT):
        await send(message)


def make_topic_reader(machines: Machines) -> Callable[[Store, Iterable[FeedTopic]], dict[FeedTopic, Any]]:
    """How each topic is read. Sessions are read once for all topics: for their own, and for the progress of records."""

    def read_topics(store: Store, topics: Iterable[FeedTopic]) -> dict[FeedTopic, Any]:
        requested = list(topics)
        sessions = store.list_sessions() if any(topic.type in ("sessions", "record") for topic in requested) else []
        progress = views.progress_of(sessions)
        now = store.now() if sessions else 0.0

        def read_topic(topic: FeedTopic) -> Any:
            if topic.type == "counts":
                return views.to_state_counts_view(
                    machines[topic.kind],
                    store.count_by_state(topic.kind, parent=topic.parent, visibility=topic.visibility),
                    topic.parent,
                )
            if topic.type == "events":
                return {"last": find_log_end(store)}
            if topic.type == "holds":
                return {"holds": [{"name": name, "about": about} for name, about in sorted(store.list_holds().items())]}
            if topic.type == "sessions":
                # `expires` moves with every heartbeat and is no change; `expired` is one.
                return {
                    "sessions": [
                        {k: v for k, v in views.to_session_view(s, now).items() if k != "expires"} for s in sessions
                    ]
                }
            try:
                (record,) = views.refresh_messages([store.get(topic.kind, topic.id)], machines, store, documents=True)
                if topic.visibility is not None and not topic.visibility.includes(record):
                    raise RecordNotFound(f"There is no {record.ref}.")
                return views.to_record_view(record, machines, progress=progress)
            except RecordNotFound:
                return {"kind": topic.kind, "id": topic.id, "removed": True}
            # a damaged record is reported to its own listeners, and does not stop the others
            except BadStore as error:
                return {"kind": topic.kind, "id": topic.id, "problem": str(error)}

        return {topic: read_topic(topic) for topic in requested}

    return read_topics


def build_router(services: ApiServices) -> APIRouter:
    routes = services.build_router("changes")

    @routes.get(
        "/changes",
        summary="Live changes, as server-sent events",
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
    async def stream_changes(
        identity: Annotated[Identity, require_role("reader", somewhere=True)],
        kind: Annotated[KindText | None, Query(description="Only this kind of record.")] = None,
        id: Annotated[IdText | None, Query(description="Only this record (with kind).")] = None,
        parent: Annotated[
            ParentText | None, Query(description="KIND:ID; only the counts of the children of this record (with kind).")
        ] = None,
    ) -> Response:
        """Event names: `counts` (one kind), `record` (with kind and id), `store` (whether it is available), and, for a reader of
        everything, `sessions` and `holds`. Counts and records are of what may be seen.
        """
        topics = _select_topics(services, identity, kind, id, parent)
        if not identity.has_role("reader"):
            await run_in_threadpool(_check_topics, services, identity, topics)
        listener = services.change_feed.add_listener(topics, credential_of(identity))
        return ChangeStream(services.change_feed, listener)

    return routes


def _select_topics(
    services: ApiServices, identity: Identity, kind: str | None, id: str | None, parent: str | None
) -> list[FeedTopic]:
    access = services.get_access(identity)
    common = list_common_topics(identity)
    if kind is None:
        if id is not None or parent is not None:
            raise HttpProblem("bad-query", "An id or a parent needs a kind.", "Add kind=KIND.")
        return list_count_topics(access, services.environment.machines) + common
    if id is not None and parent is not None:
        raise HttpProblem(
            "bad-query", "Listen to one record or to the children of one, not both.", "Leave out id or parent."
        )
    services.get_visible_machine(kind)
    if id is not None:
        return [FeedTopic("record", kind, services.make_ref(kind, id).id, visibility=access.visibility_of(kind))]
    if parent is not None:
        return [FeedTopic("counts", kind, parent=services.parse_ref(parent))]
    return [FeedTopic("counts", kind, visibility=access.visibility_of(kind)), *common]


def list_count_topics(access: RecordAccess, kinds: Iterable[str]) -> list[FeedTopic]:
    """The counts of all kinds of which somebody may see records."""
    seen = {kind: access.visibility_of(kind) for kind in kinds if kind not in PRIVATE_KINDS}
    return [FeedTopic("counts", kind, visibility=each) for kind, each in seen.items() if each != NOTHING]


def list_common_topics(identity: Identity) -> list[FeedTopic]:
    """Workers and holds, for those who may see all."""
    return [FeedTopic("sessions"), FeedTopic("holds")] if identity.has_role("reader") else []


def _check_topics(services: ApiServices, identity: Identity, topics: Iterable[FeedTopic]) -> None:
    """Raise RecordNotFound for a record, or a parent, that may not be seen."""
    with services.open_store(identity) as store:
        for topic in topics:
            if topic.type == "record":
                store.get(topic.kind, topic.id)
            if topic.parent is not None:
                store.get(*topic.parent)
