"""What stands before every route: a check that a browser was not tricked into asking, and headers that keep answers
where they belong.

A server on loopback is asked by every page that the machine's browser shows. A page of another site can name our
address by its own DNS name (rebinding), so a Host header that is not ours is refused; and it can send forms here, so a
change whose Origin is not ours is refused. No other site's page may read our answers: there are no CORS headers at all.
A path with a line break in it leads nowhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from waybill.http.errors import Problem, answer

SAFE = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def host_of(netloc: str) -> str:
    """The name in a Host header, without the port; "" for one that cannot be read."""
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


class Shield:
    """Wraps the application. `hosts`: names beside the machine's own that the server is called by; "*" takes any."""

    def __init__(self, app: ASGIApp, listens_on: str, hosts: Iterable[str] = ()) -> None:
        self._app = app
        named = tuple(hosts)
        self._hosts = {host_of(host) for host in named} | {listens_on}
        # A server that other machines reach is called by names we do not know; it has tokens, which no rebinding page
        # can send.
        self._any = "*" in named or (not named and not is_loopback_name(listens_on))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope["method"], scope["path"], Headers(scope=scope))

        async def shielded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._app if refusal is None else answer(refusal))(scope, receive, shielded)

    def _refusal(self, method: str, path: str, headers: Headers) -> Problem | None:
        host = headers.get("host", "")
        if not self._knows(host_of(host)):
            hint = "Use the server's own address, or tell it this name with the setting http.names."
            return Problem(421, "unknown-host", f"This server is not called {host!r}.", hint)
        if method not in SAFE:
            origin = headers.get("origin")
            same = origin is None or place_of(origin) == host.lower()
            if not same or headers.get("sec-fetch-site") == "cross-site":
                hint = "Changes are made from this server's own pages, or by programs, which send no Origin."
                return Problem(403, "foreign-origin", "A page of another site asked for this.", hint)
        if "\n" in path:  # the routes would not see one at the end, and take the path for another
            return Problem(
                404,
                "no-route",
                "There is no such route: the path holds a line break (%0A).",
                "Write the path without it.",
            )
        return None

    def _knows(self, host: str) -> bool:
        return self._any or host in self._hosts or is_loopback_name(host)


def place_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
