"""Who sends a request, and with which role. waybill.tokens holds the tokens themselves.

A request is authenticated by the header `Authorization: Bearer wb_...`, by the token as the password of HTTP's basic
authentication (which older programs can send, `curl -u name:wb_...`), or by the cookie in which the web page stores it.
A server started with `open_loopback` also accepts requests from this machine without a token, as admin: for a computer
with one user, not for a shared one.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBearer

from waybill.http.browser_security import host_of, is_loopback_name
from waybill.http.connections import StoreConnectionPool
from waybill.http.errors import HttpProblem
from waybill.tokens import Identity, identify

# Tells the OpenAPI description that routes need a token; the authenticator reads the header itself.
TOKEN_SECURITY = Depends(
    HTTPBearer(
        scheme_name="token", description="A token, `wb_...`, of the role that the route needs.", auto_error=False
    )
)
TOKEN_COOKIE = "waybill_token"
LOOPBACK_IDENTITY = Identity("loopback", "admin")
FORWARDED_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


class TokenAuthenticator:
    def __init__(self, connections: StoreConnectionPool, open_loopback: bool = False) -> None:
        self._connections = connections
        self._open_loopback = open_loopback

    async def authenticate(self, request: Request) -> None:
        """Set `request.state.identity`, once for each request; raises when there is no valid token."""
        if not isinstance(getattr(request.state, "identity", None), Identity):
            request.state.identity = await self._identify(request)

    async def _identify(self, request: Request) -> Identity:
        token = _read_presented_token(request)
        if token is None:
            if self._open_loopback and _is_local(request):
                return LOOPBACK_IDENTITY
            raise make_unauthorized_problem("This needs a token.", error="")
        identity = await run_in_threadpool(self._identify_token, token)
        if identity is None:
            raise make_unauthorized_problem(
                "This token is not valid: it is misspelt, revoked, or of another server.", error="invalid_token"
            )
        return identity

    def _identify_token(self, token: str) -> Identity | None:
        with self._connections.open_store() as store:
            return identify(store, token)

    def make_role_dependency(self) -> Callable[[Request], Coroutine[Any, Any, None]]:
        """The dependency that checks the role on routes of applications: reader to read, operator to change, or the role
        that the route declares.

        A route declares it with `openapi_extra={"x-role": "submitter"}`; "open" is for a protocol that has its own
        authentication.
        """

        async def check_route_role(request: Request) -> None:
            extra = getattr(request.scope.get("route"), "openapi_extra", None) or {}
            role = extra.get("x-role", "reader" if request.method in ("GET", "HEAD") else "operator")
            if role != "open":
                await self.authenticate(request)
                check_role(request.state.identity, role)

        return check_route_role


def _read_presented_token(request: Request) -> str | None:
    header = request.headers.get("authorization")
    if header is None:
        return request.cookies.get(TOKEN_COOKIE)
    scheme, _, credentials = header.partition(" ")
    if scheme.lower() == "basic":
        return _read_basic_password(credentials.strip())
    if scheme.lower() != "bearer":
        raise make_unauthorized_problem(
            "Only tokens are accepted: as Bearer, or as the password of Basic.", error="invalid_request"
        )
    return credentials.strip()


def _read_basic_password(credentials: str) -> str:
    try:
        _, colon, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:
        colon, password = "", ""
    if not colon:
        raise make_unauthorized_problem(
            "This is no name and password of basic authentication.", error="invalid_request"
        )
    return password


def _is_local(request: Request) -> bool:
    """From this machine, by a name of this machine, and not through a proxy: no page of another site can make a browser
    send such a request.
    """
    if request.client is None or any(name in request.headers for name in FORWARDED_HEADERS):
        return False
    try:
        address = ipaddress.ip_address(request.client.host)
    except ValueError:
        return False
    return address.is_loopback and is_loopback_name(host_of(request.headers.get("host", "")))


def make_unauthorized_problem(message: str, error: str) -> HttpProblem:
    challenge = 'Bearer realm="waybill"' + (f', error="{error}"' if error else "")
    hint = "Send the header Authorization: Bearer <token>; an admin creates tokens with `waybill tokens new NAME --role ROLE`."
    return HttpProblem("no-token" if not error else "bad-token", message, hint, {"WWW-Authenticate": challenge})


def check_role(identity: Identity, role: str) -> None:
    """Raise unless the identity has this role or a higher one."""
    if not identity.has_role(role):
        message = f"This needs the role {role}; the token {identity.name} has {identity.role}."
        raise HttpProblem("forbidden", message, f"Use a token with the role {role}.")


def require_role(role: str) -> Any:
    """A parameter of a route: the identity, which has at least this role."""

    async def get_identity(request: Request) -> Identity:  # async: one comparison needs no thread of the pool
        identity: Identity = request.state.identity
        check_role(identity, role)
        return identity

    return Depends(get_identity)
