"""Where requests of Manta's protocol arrive in the server, and who sends them.

Manta's paths begin with the name of an account, so this is the last of all routes, and takes only what has one of Manta's
areas as its second segment. The first segments of the server's own routes are no names of accounts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from waybill.apps.compute.access import ANONYMOUS, Caller
from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.paths import KNOWN_AREAS, StoragePath
from waybill.apps.compute.protocol.app import Call, MantaApp
from waybill.apps.compute.protocol.requests import StorageRequest
from waybill.apps.compute.protocol.storage_calls import StorageCalls
from waybill.http.errors import HttpProblem

if TYPE_CHECKING:
    from waybill.environment import Environment

_MANTA_PATH = re.compile(rb"/+[^/]+/+(" + b"|".join(area.encode() for area in KNOWN_AREAS) + rb")(/.*)?", re.DOTALL)
_RESERVED = re.compile(rb"/+(api|health|ready|metrics|openapi\.json|static|ui|login|logout)/")


class MantaRoute(BaseRoute):
    path = "/{path:path}"  # as general as a route can be: all others come first

    def __init__(self, app: MantaApp) -> None:
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        raw = scope.get("raw_path", b"").partition(b"?")[0]
        if _MANTA_PATH.fullmatch(raw) is None or _RESERVED.match(raw):
            return Match.NONE, {}
        return Match.FULL, {"route": self}

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def build_routes(environment: Environment) -> list[Any]:
    resources = environment.resources_of("compute")
    storage = StorageCalls(resources.storage)
    return [MantaRoute(MantaApp(authenticate, _make_dispatcher(storage)))]


def _make_dispatcher(storage: StorageCalls) -> Callable[[StorageRequest], Call]:
    calls: dict[str, Call] = {"PUT": storage.put, "GET": storage.get, "HEAD": storage.get, "DELETE": storage.delete}

    def find_call(request: StorageRequest) -> Call:
        if request.path.area == "uploads":
            raise MantaError("NotImplemented", "Uploads in parts are not supported: send the object with one PUT.")
        call = calls.get(request.method)
        if call is None:
            allowed = ", ".join(calls)
            raise MantaError("MethodNotAllowed", f"{request.method} is not allowed", headers={"Allow": allowed})
        return call

    return find_call


async def authenticate(scope: Scope, path: StoragePath) -> Caller:
    """A Waybill token, or nobody; on a server without tokens, whoever the path names."""
    request = Request(scope)
    try:
        await scope["app"].state.services.authenticator.authenticate(request)
    except HttpProblem as error:
        if error.code == "no-token" and "authorization" not in request.headers:
            return ANONYMOUS
        raise MantaError(
            "InvalidSignature" if error.code == "bad-token" else "AuthorizationRequired", str(error)
        ) from None
    identity = request.state.identity
    if identity.token is None:
        return Caller(path.account, is_operator=True)
    return Caller(identity.name, is_operator=identity.has_role("operator"))
