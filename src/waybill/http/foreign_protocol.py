"""A protocol of others that an application serves beside the API: paths, names and errors are as that protocol has them.

    def build_routes(environment):
        return [router, ForeignProtocol(owns=is_ours, handle=handle_request, to_error_response=to_manta_error)]

`owns` says which paths belong to it, by their segments, in which `%2F`, `%0A` and bytes that are not UTF-8 are part of a
name. Every refusal below these paths is written by `to_error_response`: those of the server itself (an unknown route,
a wrong method, a body that is too large, a Host of another server) like those of the application.

With `handle` the protocol also receives the requests: all of its paths whose first segment no other route has. Without
it, the application's routers do, and only refusals are its own.

    request -> segments_of(raw path) -> owns? -> handle(request, segments) -> response
                  |  a path that cannot be decoded      |  raises
                  +-----------------------------------> to_error_response(status, error view, headers)
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI, Request, Response
from fastapi.routing import _IncludedRouter
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from waybill.http.errors import ErrorView, HttpProblem

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")

Segments = tuple[str, ...]


@dataclass(frozen=True)
class ForeignProtocol:
    # Called for every request to the server, also for paths that cannot be decoded, so it must not raise.
    owns: Callable[[Segments], bool]
    # Gets the status, the code and message, and the headers that the API would send.
    to_error_response: Callable[[Request, int, ErrorView, Mapping[str, str]], Response]
    handle: Callable[[Request, Segments], Awaitable[Response]] | None = None


def segments_of(raw_path: bytes) -> Segments:
    """The names in a path as `os.fsdecode` makes them of their bytes: a byte that is not UTF-8 is escaped, and `%2F` is
    part of a name. Empty ones, of two slashes or a last one, are there too. Raises HttpProblem for a broken escape.
    """
    if bad := _BAD_ESCAPE.search(raw_path):
        message = f"The path has a broken escape, {raw_path[bad.start() : bad.start() + 3].decode('ascii', 'replace')}."
        raise HttpProblem("bad-path", message)
    return _split(raw_path)


def _split(raw_path: bytes) -> Segments:
    return tuple(unquote_to_bytes(part).decode("utf-8", "surrogateescape") for part in raw_path[1:].split(b"/"))


def raw_path_of(scope: Scope) -> bytes:
    """The path as it was sent, without the query."""
    raw: bytes = scope.get("raw_path") or str(scope["path"]).encode()
    return raw.partition(b"?")[0]


def find_protocol(scope: Scope) -> ForeignProtocol | None:
    """The protocol to which the path of a request belongs."""
    app: FastAPI | None = scope.get("app")
    protocols: Sequence[ForeignProtocol] = getattr(app.state, "protocols", ()) if app is not None else ()
    if app is None or not protocols:
        return None
    segments = _split(raw_path_of(scope))
    is_reserved = segments[0] in list_reserved_segments(app)
    return next((each for each in protocols if not (is_reserved and each.handle) and each.owns(segments)), None)


class ForeignRoute(BaseRoute):
    """Comes after all other routes, and never takes a path that begins like one of them."""

    def __init__(self, protocol: ForeignProtocol) -> None:
        self._protocol = protocol
        self.path = "/{path:path}"

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and self._protocol.handle is not None and find_protocol(scope) is self._protocol:
            return Match.FULL, {"endpoint": self._protocol.handle, "route": self}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._protocol.handle is not None
        response = await self._protocol.handle(Request(scope, receive), segments_of(raw_path_of(scope)))
        await response(scope, receive, send)


def list_paths(route: BaseRoute) -> list[str]:
    """The path of a route, or those of an included router."""
    if isinstance(route, _IncludedRouter):
        return [path for each in route.original_router.routes for path in list_paths(each)]
    return [getattr(route, "path", "")]


def list_reserved_segments(app: FastAPI) -> frozenset[str]:
    """The first segments of all routes of the server: they cannot be names at the top of a foreign protocol."""
    reserved: frozenset[str] | None = getattr(app.state, "reserved_segments", None)
    if reserved is None:
        paths = [
            path for route in app.router.routes if not isinstance(route, ForeignRoute) for path in list_paths(route)
        ]
        reserved = frozenset(path.strip("/").split("/")[0] for path in paths) - {""} | {"", "favicon.ico", "robots.txt"}
        app.state.reserved_segments = reserved
    return reserved
