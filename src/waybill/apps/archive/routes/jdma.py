"""Where requests of JDMA's client arrive in the server: /jdma_control/api/v1/, if the settings name networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from waybill.apps.archive.jdma.app import MAX_BODY, PREFIX, JdmaApp, JdmaNetworks
from waybill.apps.archive.jdma.calls import JdmaCalls
from waybill.http.errors import ErrorView
from waybill.http.foreign_protocol import ForeignProtocol, Segments
from waybill.http.request_context import RequestContext

if TYPE_CHECKING:
    from waybill.apps.archive.resources import ArchiveResources


def make_jdma_protocol(resources: ArchiveResources, networks: JdmaNetworks) -> ForeignProtocol:
    apps: list[JdmaApp] = []

    async def handle(request: Request, segments: Segments) -> Response:
        if not apps:
            apps.append(JdmaApp(resources, JdmaCalls(resources, RequestContext(request).open_engine), networks))
        client = request.client.host if request.client is not None else ""
        body = await _read_body(request) if networks.has(client) else b""
        names = tuple(name for name in segments[len(PREFIX) :] if name)
        answer = await run_in_threadpool(
            apps[0].answer, client, request.method, names, dict(request.query_params), body
        )
        if isinstance(answer.body, bytes):
            return Response(answer.body, answer.status, media_type="application/json")
        return StreamingResponse(answer.body, answer.status, media_type="application/json")

    return ForeignProtocol(
        owns=lambda segments: segments[: len(PREFIX)] == PREFIX, to_error_response=_to_jdma_error, handle=handle
    )


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            return b""  # is no JSON object, and refused as such
    return bytes(body)


def _to_jdma_error(request: Request, status: int, view: ErrorView, headers: Mapping[str, str]) -> Response:
    """A refusal of the server itself, in JDMA's shape."""
    return Response(
        msgspec.json.encode({"error": view["message"]}), status, {**headers, "Content-Type": "application/json"}
    )
