"""`GET /events`: live changes as server-sent events, for pages and for anybody with a token.

    retry: 3000

    event: tally
    data: {"kind": "shipment", "total": 3, ...}

A line that begins with a colon is a comment: a heartbeat, or why the stream ends. A stream begins with the present
snapshot of all that it shows, so after a break the client listens again and has missed nothing that is still true.
Documents are not sent: whoever shows them reads the record again when its version moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from starlette.types import Message, Receive, Scope, Send

from waybill import views
from waybill.http.errors import Problem, responses
from waybill.http.front import Front, Id, Kind, Parent
from waybill.http.guard import need
from waybill.http.hub import Full, Hub, Listener, Topic
from waybill.record import BadStore, NotFound, Store
from waybill.rules import Machines
from waybill.tokens import TOKEN, Identity

HEARTBEAT = 15.0  # seconds of silence before a comment says that the server is still there; proxies cut silent streams
SEND = 30.0  # seconds that a reader may take to take one event


class EventStream(Response):
    """Takes what the hub says and writes it until one side has enough."""

    media_type = "text/event-stream"

    def __init__(self, hub: Hub, listener: Listener, heartbeat: float = HEARTBEAT) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._hub = hub
        self._listener = listener
        self._heartbeat = heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await _in_time(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _in_time(send, _chunk(b"retry: 3000\n\n"))
            while (text := await self._next(gone)) is not None:
                await _in_time(send, _chunk(text))
            await _in_time(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, OSError):
            return  # the reader stopped reading: nobody is left to be told
        finally:
            self._hub.leave(self._listener)
            gone.cancel()

    async def _next(self, gone: asyncio.Future[None]) -> bytes | None:
        taken = asyncio.ensure_future(self._listener.queue.get())
        either: set[asyncio.Future[Any]] = {taken, gone}
        await asyncio.wait(either, timeout=self._heartbeat, return_when=asyncio.FIRST_COMPLETED)
        if not taken.done():
            taken.cancel()
            return None if gone.done() else b": still here\n\n"
        change = taken.result()
        if change is None:
            return None
        if isinstance(change, str):
            return f": {change}\n\n".encode()
        return b"event: %b\ndata: %b\n\n" % (change[0].encode(), change[1])


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _chunk(text: bytes) -> Message:
    return {"type": "http.response.body", "body": text, "more_body": True}


async def _in_time(send: Send, message: Message) -> None:
    async with asyncio.timeout(SEND):
        await send(message)


def reader(machines: Machines) -> Callable[[Store, Iterable[Topic]], dict[Topic, Any]]:
    """How each topic is read. Sessions are read once a look, for their own topic and for the progress of records."""

    def read(store: Store, topics: Iterable[Topic]) -> dict[Topic, Any]:
        wanted = list(topics)
        sessions = store.sessions() if any(topic.what in ("sessions", "record") for topic in wanted) else []
        progress = views.progress_of(sessions)
        now = store.now() if sessions else 0.0

        def one(topic: Topic) -> Any:
            if topic.what == "tally":
                return views.tally(machines[topic.kind], store.tally(topic.kind, parent=topic.parent), topic.parent)
            if topic.what == "marks":
                return {"marks": [{"name": name, "about": about} for name, about in sorted(store.marks().items())]}
            if topic.what == "sessions":
                # When a session expires moves with every heartbeat and is no change; that it has expired is one.
                return {
                    "sessions": [{k: v for k, v in views.session(s, now).items() if k != "expires"} for s in sessions]
                }
            try:
                (record,) = views.current([store.get(topic.kind, topic.id)], machines, store, docs=True)
                return views.record(record, machines, progress=progress)
            except NotFound:
                return {"kind": topic.kind, "id": topic.id, "removed": True}
            # a damaged record is told to those who listen to it, and hides nothing from the others
            except BadStore as error:
                return {"kind": topic.kind, "id": topic.id, "problem": str(error)}

        return {topic: one(topic) for topic in wanted}

    return read


def router(front: Front) -> APIRouter:
    routes = front.router("events")

    @routes.get(
        "/events",
        summary="Live changes, as server-sent events",
        response_class=Response,
        responses=responses(
            400,
            401,
            403,
            404,
            422,
            503,
            also={
                200: {
                    "content": {"text/event-stream": {"schema": {"type": "string"}}},
                    "description": "A stream that does not end.",
                }
            },
        ),
    )
    async def events(
        identity: Annotated[Identity, need("reader")],
        kind: Annotated[Kind | None, Query(description="Only this kind of record.")] = None,
        id: Annotated[Id | None, Query(description="Only this record (with kind).")] = None,
        parent: Annotated[
            Parent | None, Query(description="KIND:ID; only the tally of the children of this record (with kind).")
        ] = None,
    ) -> Response:
        """Event names: `tally` (one kind), `sessions`, `marks`, `record` (with kind and id) and `store` (whether it
        can be reached).
        """
        try:
            listener = front.hub.join(_topics(front, identity, kind, id, parent), identity.token)
        except Full as error:
            message = "Too many listen to live changes already, or the server is stopping."
            raise Problem(503, "unavailable", message, "Try again in a moment.", {"Retry-After": "5"}) from error
        return EventStream(front.hub, listener)

    return routes


def _topics(front: Front, identity: Identity, kind: str | None, id: str | None, parent: str | None) -> list[Topic]:
    common = [Topic("sessions"), Topic("marks")]
    if kind is None:
        if id is not None or parent is not None:
            raise Problem(400, "bad-query", "An id or a parent needs a kind.", "Add kind=KIND.")
        return [Topic("tally", name) for name in front.depot.machines if name != TOKEN.name] + common
    if id is not None and parent is not None:
        raise Problem(
            400, "bad-query", "Listen to one record or to the children of one, not both.", "Leave out id or parent."
        )
    front.shown_kind(kind)
    if id is not None:
        return [Topic("record", kind, front.ref(kind, id).id)]
    if parent is not None:
        return [Topic("tally", kind, parent=front.parse_ref(parent))]
    return [Topic("tally", kind), *common]
