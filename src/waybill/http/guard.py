"""Who asks, and may they? The request's side of tokens (waybill.tokens).

A request is let in by the header `Authorization: Bearer wb_...`, by the token as the password of HTTP's basic
authentication (what older programs can send, `curl -u name:wb_...`), or by the cookie that the web page keeps it in. A
server started with `open_loopback` also lets in whoever comes from this machine without a token, as admin: for one's
own computer, not for a shared one.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBearer

from waybill.http.connections import Connections
from waybill.http.errors import Problem
from waybill.http.shield import host_of, is_loopback_name
from waybill.tokens import Identity, identify

# Tells the description of the API that routes want a token; the guard reads it.
DESCRIBED = Depends(
    HTTPBearer(
        scheme_name="token", description="A token, `wb_...`, of the role that the route needs.", auto_error=False
    )
)
COOKIE = "waybill_token"
LOCAL = Identity("loopback", "admin")
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


class Guard:
    def __init__(self, connections: Connections, open_loopback: bool = False) -> None:
        self._connections = connections
        self._open_loopback = open_loopback

    async def check(self, request: Request) -> None:
        """Find out who asks, once a request, and keep it in `request.state.identity`; or refuse."""
        if not isinstance(getattr(request.state, "identity", None), Identity):
            request.state.identity = await self._identify(request)

    async def _identify(self, request: Request) -> Identity:
        shown = _shown(request)
        if shown is None:
            if self._open_loopback and _is_local(request):
                return LOCAL
            raise unauthorized("This needs a token.", error="")
        identity = await run_in_threadpool(self._look_up, shown)
        if identity is None:
            raise unauthorized(
                "This token is not valid: it is misspelt, revoked, or of another server.", error="invalid_token"
            )
        return identity

    def _look_up(self, shown: str) -> Identity | None:
        with self._connections.store() as store:
            return identify(store, shown)

    def routes_of_applications(self) -> Callable[[Request], Coroutine[Any, Any, None]]:
        """What guards the routes that applications bring: reader to look, operator to change, or what the route says.

        A route says it with `openapi_extra={"x-role": "submitter"}`; "open" is for a protocol that has its own
        authentication.
        """

        async def check(request: Request) -> None:
            extra = getattr(request.scope.get("route"), "openapi_extra", None) or {}
            role = extra.get("x-role", "reader" if request.method in ("GET", "HEAD") else "operator")
            if role != "open":
                await self.check(request)
                demand(request.state.identity, role)

        return check


def _shown(request: Request) -> str | None:
    header = request.headers.get("authorization")
    if header is None:
        return request.cookies.get(COOKIE)
    scheme, _, shown = header.partition(" ")
    if scheme.lower() == "basic":
        return _password(shown.strip())
    if scheme.lower() != "bearer":
        raise unauthorized("Only tokens are taken: as Bearer, or as the password of Basic.", error="invalid_request")
    return shown.strip()


def _password(shown: str) -> str:
    try:
        _, colon, password = base64.b64decode(shown, validate=True).decode().partition(":")
    except ValueError:
        colon, password = "", ""
    if not colon:
        raise unauthorized("This is no name and password of basic authentication.", error="invalid_request")
    return password


def _is_local(request: Request) -> bool:
    """From this machine, by a name of this machine, and not through a proxy: no other site's page can make a browser
    ask so.
    """
    if request.client is None or any(name in request.headers for name in FORWARDED):
        return False
    try:
        address = ipaddress.ip_address(request.client.host)
    except ValueError:
        return False
    return address.is_loopback and is_loopback_name(host_of(request.headers.get("host", "")))


def unauthorized(message: str, error: str) -> Problem:
    challenge = 'Bearer realm="waybill"' + (f', error="{error}"' if error else "")
    hint = "Send the header Authorization: Bearer <token>; an admin makes tokens with `waybill tokens new NAME --role ROLE`."
    return Problem(401, "no-token" if not error else "bad-token", message, hint, {"WWW-Authenticate": challenge})


def demand(identity: Identity, role: str) -> None:
    """Refuse whoever has less than this role."""
    if not identity.may(role):
        said = f"This needs the role {role}; the token {identity.name} has {identity.role}."
        raise Problem(403, "forbidden", said, f"Use a token with the role {role}.")


def need(role: str) -> Any:
    """A route's parameter that answers who asks, once they have this role."""

    async def who(request: Request) -> Identity:  # not a thread of the pool for one comparison
        identity: Identity = request.state.identity
        demand(identity, role)
        return identity

    return Depends(who)
