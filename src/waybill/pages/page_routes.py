"""The routes of pages: a request passes, in this order,

    the sign-in (without one: to /login) -> the role that the route declares -> the form and its CSRF token -> the route

and whatever is raised becomes a page that says what is wrong and what to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from waybill.http.authentication import check_csrf_token, check_role
from waybill.http.browser_security import SAFE_METHODS
from waybill.http.errors import HttpProblem, describe_for_client
from waybill.http.json_io import read_body
from waybill.http.request_context import OPEN_ROLE
from waybill.tokens import Identity

MAX_FORM = 1024 * 1024  # bytes
MAX_FIELDS = 5_000  # of a form
FORM_TYPE = "application/x-www-form-urlencoded"
# Nothing from other hosts, no inline script or style, no eval.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
log = logging.getLogger("waybill.pages")

Form = dict[str, list[str]]


class PageRoute(APIRoute):
    """A route that answers with a page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def run(request: Request) -> Response:
            try:
                redirect = await _admit(request, self.openapi_extra or {})
                response = redirect if redirect is not None else await handle(request)
            except Exception as error:  # noqa: BLE001 - shown as a page; the log has those that are no mistake of the request
                response = render_error(request, error)
            response.headers.setdefault("Content-Security-Policy", PAGE_POLICY)
            return response

        return run


def make_page_router(prefix: str = "") -> APIRouter:
    """Return a router for pages. They are not part of the API's description."""
    return APIRouter(prefix=prefix, route_class=PageRoute, include_in_schema=False)


async def _admit(request: Request, declared: dict[str, Any]) -> Response | None:
    """Set the identity and the form of the request. Return where an unknown visitor is sent; None: go on."""
    role = declared.get("x-role", "reader" if request.method in SAFE_METHODS else "operator")
    identity: Identity | None = await request.app.state.services.authenticator.identify_browser(request)
    request.state.identity = identity
    if request.method not in SAFE_METHODS and not declared.get("x-body"):
        request.state.form = await _read_form(request)
        check_csrf_token(request, (request.state.form.get("csrf") or [""])[0])
    if role == OPEN_ROLE:
        return None
    if identity is None:
        if request.method not in SAFE_METHODS:
            raise HttpProblem(
                "no-token", "You are not signed in, or no longer.", "Sign in, then try again. Nothing was changed."
            )
        there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse("/login" if there == "/" else f"/login?to={quote(there, safe='')}", 303)
    check_role(identity, role, somewhere=bool(declared.get("x-somewhere")))
    return None


async def _read_form(request: Request) -> Form:
    body = await read_body(request, MAX_FORM, "Choose fewer records at once.")
    if body and not request.headers.get("content-type", "").startswith(FORM_TYPE):
        raise HttpProblem("bad-request", "This is no form of a page.", "Send it from the page.")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError as error:  # too many fields, or no UTF-8
        raise HttpProblem(
            "bad-request", f"The form cannot be read: {error}.", "Choose fewer records at once."
        ) from error
    form: Form = {}
    for name, value in pairs:
        form.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return form


def render_error(request: Request, error: Exception) -> Response:
    """The page of an error. Without a sign-in it does not name the store."""
    from waybill.pages.page_context import PageContext

    identity = getattr(request.state, "identity", None)
    status, view, headers = describe_for_client(error, is_authenticated=identity is not None)
    return PageContext(request).render("error.html", status=status, headers=headers, error=view)
