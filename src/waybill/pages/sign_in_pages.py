"""Signing in and out.

    /login            how to sign in; the form of a password, where there are accounts
    /login/LINK       a button; its POST uses the link up (waybill.sign_in) and sets the cookie
    POST /logout      ends the sign-in

The cookie cannot be read by scripts, is sent to this server only, and over TLS only where the page came over TLS. Without TLS signing in is
for loopback: a password or a cookie that others on the way can read is none. Too many wrong tries from an address wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from waybill.http.authentication import SIGN_IN_COOKIE
from waybill.http.browser_security import host_of, is_loopback_name
from waybill.http.errors import HttpProblem
from waybill.http.request_context import declare_role
from waybill.pages.page_context import PageRequest, own_path_of
from waybill.pages.page_routes import make_page_router
from waybill.sign_in import SIGN_IN_LIFETIME, end_sign_in, find_login_link, sign_in_with_link, sign_in_with_password

MAX_TRIES = 10  # wrong ones of an address, and of a user, whose other ways in stay open
TRIES_INTERVAL = 300.0  # seconds after which they are forgotten
MAX_ADDRESSES = 10_000  # remembered


class SignInLimiter:
    """Counts wrong tries by address, and by user. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong: dict[str, list[float]] = {}

    def check(self, address: str) -> None:
        """Raise when the address, or the user, has tried too often."""
        with self._lock:
            tries = self._forget_old(address)
            if len(tries) >= MAX_TRIES:
                seconds = TRIES_INTERVAL - (self._clock() - tries[0])
                raise HttpProblem(
                    "busy", "Too many wrong tries.", f"Try again in {max(1, round(seconds / 60))} minutes."
                )

    def note_wrong(self, address: str) -> None:
        with self._lock:
            if len(self._wrong) >= MAX_ADDRESSES and address not in self._wrong:
                self._wrong.pop(next(iter(self._wrong)))
            self._wrong.setdefault(address, []).append(self._clock())

    def _forget_old(self, address: str) -> list[float]:
        tries = [at for at in self._wrong.get(address, []) if self._clock() - at < TRIES_INTERVAL]
        if tries:
            self._wrong[address] = tries
        else:
            self._wrong.pop(address, None)
        return tries


def build_router() -> APIRouter:
    routes = make_page_router()
    limiter = SignInLimiter()

    @routes.get("/login", **declare_role("open"))
    def show_sign_in(context: PageRequest, to: str = "/") -> Response:
        if context.identity is not None:
            return context.redirect(own_path_of(to, "/"))
        return context.render("login.html", link=None, to=own_path_of(to, "/"), error="")

    @routes.post("/login", **declare_role("open"))
    def use_password(context: PageRequest) -> Response:
        """A wrong name and a wrong password are answered alike, after the same time."""
        address, user = address_of(context.request), context.get_field("user")
        password = context.form.get("password", [""])[0]
        tried = (f"address {address}", f"user {user.lower()[:100]}")
        for each in tried:
            limiter.check(each)
        check_is_private(context.request)
        with context.connections.open_engine() as engine:
            made = sign_in_with_password(engine, user, password, address=address)
        if made is None:
            for each in tried:
                limiter.note_wrong(each)
            error = "There is no user of this name and password."
            to = own_path_of(context.get_field("to"), "/")
            return context.render("login.html", status=403, link=None, to=to, error=error)
        response = context.redirect(own_path_of(context.get_field("to"), "/"))
        set_cookie(context.request, response, made.text)
        return response

    @routes.get("/login/{text}", **declare_role("open"))
    def show_link(context: PageRequest, text: str) -> Response:
        address = address_of(context.request)
        limiter.check(address)
        with context.connections.open_store() as store:
            link = find_login_link(store, text)
        if link is None:
            limiter.note_wrong(address)
            raise HttpProblem(
                "gone",
                "This link has been used, is older than ten minutes, or is misspelt.",
                "`waybill login-link` prints a new one.",
            )
        return context.render("login.html", link=link, to="/", error="")

    @routes.post("/login/{text}", **declare_role("open"))
    def use_link(context: PageRequest, text: str) -> Response:
        address = address_of(context.request)
        limiter.check(address)
        check_is_private(context.request)
        with context.connections.open_engine() as engine:
            made = sign_in_with_link(engine, text, address=address)
        if made is None:
            limiter.note_wrong(address)
            raise HttpProblem(
                "gone",
                "This link has been used, is older than ten minutes, or is misspelt.",
                "`waybill login-link` prints a new one.",
            )
        response = context.redirect("/")
        set_cookie(context.request, response, made.text)
        return response

    @routes.post("/logout", **declare_role("open"))
    def sign_out(context: PageRequest) -> Response:
        if context.identity is not None and context.identity.sign_in is not None:
            with context.connections.open_engine() as engine:
                end_sign_in(engine, context.identity.sign_in, who=context.identity.name, why="signed out")
        response = context.redirect("/login")
        response.delete_cookie(SIGN_IN_COOKIE, path="/")
        return response

    return routes


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def check_is_private(request: Request) -> None:
    """Raise where others on the way could read the cookie: without TLS, except on this machine."""
    if request.url.scheme != "https" and not is_loopback_name(host_of(request.headers.get("host", ""))):
        raise HttpProblem(
            "forbidden",
            "Nobody can sign in here without TLS: others on the way could read the cookie.",
            "Use the address of this server that begins with https, or one of this machine.",
        )


def set_cookie(request: Request, response: Response, text: str) -> None:
    response.set_cookie(
        SIGN_IN_COOKIE,
        text,
        max_age=int(SIGN_IN_LIFETIME),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
