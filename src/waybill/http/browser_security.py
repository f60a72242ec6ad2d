"""Protects browsers: refuses requests that another site's page made a browser send, and adds security headers.

Every page that a browser on this machine shows can send requests to a server on loopback. A page of another site can
reach our address by its own DNS name (rebinding), so a Host header that is not ours is refused; and it can send forms
here, so a change whose Origin is not ours is refused. No other site's page may read our responses: there are no CORS
headers at all. A path with a line break in it is refused, except below a foreign protocol.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from waybill.http.errors import HttpProblem, to_error_response
from waybill.http.foreign_protocol import find_protocol

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def host_of(netloc: str) -> str:
    """The name in a Host header, without the port; "" for one that cannot be parsed."""
    try:
        return (urlsplit(f"//{netloc}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback_name(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class BrowserSecurityMiddleware:
    """`hosts`: names of the server beside the machine's own; "*" allows any."""

    def __init__(self, app: ASGIApp, listens_on: str, hosts: Iterable[str] = ()) -> None:
        self._app = app
        names = tuple(hosts)
        self._hosts = {host_of(host) for host in names} | {listens_on}
        # A server that other machines reach has names we do not know; it needs tokens, which no rebinding page can send.
        self._allows_any_host = "*" in names or (not names and not is_loopback_name(listens_on))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._find_refusal(scope, Headers(scope=scope))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._app if refusal is None else to_error_response(Request(scope), refusal))(
            scope, receive, send_with_headers
        )

    def _find_refusal(self, scope: Scope, headers: Headers) -> HttpProblem | None:
        host = headers.get("host", "")
        if not self._is_known_host(host_of(host)):
            hint = "Use the server's own address, or add this name to the setting http.allowed_hosts."
            return HttpProblem("unknown-host", f"This server is not called {host!r}.", hint)
        if scope["method"] not in SAFE_METHODS:
            origin = headers.get("origin")
            # "null" is sent by a form of a page without a referrer, ours among them; only the browser says then whose page it is.
            is_own_form = origin == "null" and headers.get("sec-fetch-site") == "same-origin"
            is_same = origin is None or is_own_form or netloc_of(origin) == host.lower()
            if not is_same or headers.get("sec-fetch-site") in ("cross-site", "same-site"):
                hint = "Changes are made from this server's own pages, or by programs, which send no Origin."
                return HttpProblem("foreign-origin", "A page of another site sent this request.", hint)
        # At the end of a path the router would not see it, and match another path. A foreign protocol splits for itself.
        if "\n" in scope["path"] and find_protocol(scope) is None:
            return HttpProblem(
                "no-route", "There is no such route: the path holds a line break (%0A).", "Write the path without it."
            )
        return None

    def _is_known_host(self, host: str) -> bool:
        return self._allows_any_host or host in self._hosts or is_loopback_name(host)


def netloc_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
