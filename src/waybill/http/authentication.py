"""Who sends a request, and with which role. waybill.tokens holds the tokens themselves.

A request is authenticated by the header `Authorization: Bearer wb_...`, by the token as the password of HTTP's basic
authentication (which older programs can send, `curl -u name:wb_...`), or by the cookie of a browser that is signed in to the
pages (waybill.sign_in). A browser sends its cookie by itself, so a change that comes with a cookie needs the CSRF token of its
page too: in the header X-CSRF-Token, or in the field `csrf` of a form.
A server started with `open_loopback` also accepts requests from this machine without a token, as admin: for a computer
with one user, not for a shared one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBearer

from waybill.http.browser_security import SAFE_METHODS, host_of, is_loopback_name
from waybill.http.connections import StoreConnectionPool
from waybill.http.errors import HttpProblem
from waybill.record import Store
from waybill.sign_in import identify_sign_in, identify_sign_in_by_id
from waybill.tokens import Identity, identify, identify_by_id

# Tells the OpenAPI description that routes need a token; the authenticator reads the header itself.
TOKEN_SECURITY = Depends(
    HTTPBearer(
        scheme_name="token", description="A token, `wb_...`, of the role that the route needs.", auto_error=False
    )
)
SIGN_IN_COOKIE = "waybill_sign_in"
CSRF_HEADER = "x-csrf-token"
SIGN_IN_PREFIX = "sign-in "  # begins the credential of a sign-in; a token's is its id
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
            identity = await self.identify_browser(request)
            if identity is None:
                raise make_unauthorized_problem("This needs a token.", error="")
            if request.method not in SAFE_METHODS:
                check_csrf_token(request, request.headers.get(CSRF_HEADER, ""))
            return identity
        identity = await run_in_threadpool(self._identify_token, token)
        if identity is None:
            raise make_unauthorized_problem(
                "This token is not valid: it is misspelt, revoked, expired, or of another server.",
                error="invalid_token",
            )
        return identity

    async def identify_browser(self, request: Request) -> Identity | None:
        """Who is signed in with this browser: by its cookie, or, where loopback is open, by being on this machine."""
        cookie = request.cookies.get(SIGN_IN_COOKIE)
        identity = await run_in_threadpool(self._identify_sign_in, cookie) if cookie else None
        if identity is None and self._open_loopback and _is_local(request) and not _is_from_other_page(request):
            return LOOPBACK_IDENTITY
        return identity

    def _identify_sign_in(self, cookie: str) -> Identity | None:
        with self._connections.open_store() as store:
            return identify_sign_in(store, cookie)

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
                check_role(request.state.identity, role, somewhere=bool(extra.get("x-somewhere")))

        return check_route_role


def _read_presented_token(request: Request) -> str | None:
    header = request.headers.get("authorization")
    if header is None:
        return None
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


def _is_from_other_page(request: Request) -> bool:
    """Whether a page of another server made the browser send this: another port of this machine is one. A link may lead here."""
    is_link = request.method in SAFE_METHODS and request.headers.get("sec-fetch-mode") == "navigate"
    return request.headers.get("sec-fetch-site") in ("same-site", "cross-site") and not is_link


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


def csrf_token_of(request: Request) -> str:
    """The token that a page of this browser sends with every change: only a page that was served to it can know it."""
    key = request.cookies.get(SIGN_IN_COOKIE, "").encode()
    return hmac.new(key, b"csrf", hashlib.sha256).hexdigest() if key else ""


def check_csrf_token(request: Request, sent: str) -> None:
    """Raise unless a change that comes with the cookie of a sign-in has the token of its page."""
    if not hmac.compare_digest(sent.encode(), csrf_token_of(request).encode()):
        raise HttpProblem(
            "foreign-origin", "The form is not from a page of this sign-in.", "Load the page again, then try again."
        )


def credential_of(identity: Identity) -> str | None:
    """What a live stream is open for, and what it may show; None: it needs none."""
    id = f"{SIGN_IN_PREFIX}{identity.sign_in}" if identity.sign_in is not None else identity.token
    return f"{id}\n{_digest_of_rights(identity)}" if id is not None else None


def is_credential_active(store: Store, credential: str) -> bool:
    """Whether a live stream may go on: what opened it is accepted, and allows what it allowed then."""
    id, _, rights = credential.partition("\n")
    if id.startswith(SIGN_IN_PREFIX):
        identity = identify_sign_in_by_id(store, id.removeprefix(SIGN_IN_PREFIX))
    else:
        identity = identify_by_id(store, id)
    return identity is not None and _digest_of_rights(identity) == rights


def _digest_of_rights(identity: Identity) -> str:
    return hashlib.sha256(msgspec.json.encode((identity.grants, identity.owners))).hexdigest()[:32]


def make_unauthorized_problem(message: str, error: str) -> HttpProblem:
    challenge = 'Bearer realm="waybill"' + (f', error="{error}"' if error else "")
    hint = "Send the header Authorization: Bearer <token>; an admin creates tokens with `waybill tokens new NAME --role ROLE`."
    return HttpProblem("no-token" if not error else "bad-token", message, hint, {"WWW-Authenticate": challenge})


def check_role(identity: Identity, role: str, *, somewhere: bool = False) -> None:
    """Raise unless the identity has this role or a higher one, everywhere, or at least for some records."""
    if not (identity.has_role_somewhere(role) if somewhere else identity.has_role(role)):
        raise make_forbidden_problem(identity, f"This needs the role {role}", role)


def make_forbidden_problem(identity: Identity, what: str, role: str) -> HttpProblem:
    """The 403 that says which role is needed, and which there is."""
    held = identity.role or "; ".join(str(grant) for grant in identity.grants[:5]) or "none"
    who = f"the token {identity.name}" if identity.token is not None and not identity.user else identity.name
    return HttpProblem(
        "forbidden", f"{what}; {who} has {held}.", f"An admin gives the role {role}, or a token with it."
    )


def require_role(role: str, *, somewhere: bool = False) -> Any:
    """A parameter of a route: the identity, which has at least this role everywhere. `somewhere`: or for some records;
    the route then looks after which.
    """

    async def get_identity(request: Request) -> Identity:  # async: one comparison needs no thread of the pool
        identity: Identity = request.state.identity
        check_role(identity, role, somewhere=somewhere)
        return identity

    return Depends(get_identity)
