"""The site: templates, static files, the pages of the engine and those of the applications, added to a web application.

    install_pages(create_app(environment))

Static files are read once and served from memory, under a name that changes with their contents, so that a browser may keep them.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from waybill.errors import WaybillError
from waybill.http.app import sort_routes
from waybill.http.errors import HttpProblem, to_error_response
from waybill.http.request_context import declare_role
from waybill.pages import (
    accounts,
    actions,
    admin,
    api_docs,
    failures,
    home,
    lists,
    live,
    record_rows,
    records,
    search,
    sign_in_pages,
    trace,
    waiting,
)
from waybill.pages.application_pages import ApplicationPages, RecordPart, collect_application_pages, list_navigation
from waybill.pages.figures import render_chart, tone_of
from waybill.pages.formats import FILTERS, list_url, record_url
from waybill.pages.page_routes import PAGE_POLICY, make_page_router, render_error
from waybill.rules import Machines
from waybill.sign_in import PRIVATE_KINDS
from waybill.views.standstill import is_failed_state

if TYPE_CHECKING:
    from waybill.environment import Environment

PARTS = (
    home, lists, records, record_rows, actions, failures, waiting, search, trace, admin, accounts, sign_in_pages, live, api_docs,
)  # fmt: skip
ONE_DAY = "public, max-age=86400, immutable"


class StaticFile:
    def __init__(self, name: str, content: bytes) -> None:
        self.content = content
        self.tag = hashlib.sha256(content).hexdigest()[:16]
        self.type = mimetypes.guess_type(name)[0] or "application/octet-stream"


class PageSite:
    """The templates and static files of a server."""

    def __init__(self, environment: Environment, pages: dict[str, ApplicationPages]) -> None:
        self.environment = environment
        self.pages = pages
        self.navigation = list_navigation(pages.values())
        self.static: dict[str, StaticFile] = dict(_read_static("", "waybill.pages"))
        loaders: dict[str, jinja2.BaseLoader] = {}
        for name, each in pages.items():
            if each.package:
                loaders[name] = jinja2.PackageLoader(each.package)
                self.static.update(_read_static(f"{name}/", each.package))
        self._templates = jinja2.Environment(
            loader=jinja2.ChoiceLoader([jinja2.PackageLoader("waybill.pages"), jinja2.PrefixLoader(loaders)]),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters.update(FILTERS)
        self._templates.globals.update(
            static_url=self.static_url,
            record_url=record_url,
            list_url=list_url,
            chart=render_chart,
            tone_of=tone_of,
            navigation=self.navigation,
            machines=environment.machines,
            failed_states="|".join(list_failed_states(environment.machines)),
        )

    def render(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(**values)

    def static_url(self, name: str) -> str:
        return f"/static/{name}?{self.static[name].tag}"

    def list_record_parts(self, kind: str) -> list[RecordPart]:
        """What applications show on the page of a record of this kind."""
        return [part for each in self.pages.values() for part in each.record_parts if part.kind == kind]


def list_failed_states(machines: Machines) -> list[str]:
    """The states of failure, as "KIND STATE": the head of every page says how many records are in them."""
    return [
        f"{machine.name} {state.name}"
        for machine in machines.values()
        if machine.name not in PRIVATE_KINDS
        for state in machine.states
        if is_failed_state(machine, state.name)
    ]


def _read_static(prefix: str, package: str) -> Iterator[tuple[str, StaticFile]]:
    folder = resources.files(package).joinpath("static")
    if folder.is_dir():
        for file in folder.iterdir():
            if file.is_file():
                yield prefix + file.name, StaticFile(file.name, file.read_bytes())


def install_pages(app: FastAPI) -> FastAPI:
    """Add the pages to a web application that `create_app` made; they take over its `/`."""
    environment: Environment = app.state.services.environment
    pages = collect_application_pages(environment)
    app.state.page_site = PageSite(environment, pages)
    app.state.private_kinds = PRIVATE_KINDS
    first = len(app.router.routes)
    for part in PARTS:
        app.include_router(part.build_router())
    app.include_router(_build_static_router())
    for each in pages.values():
        app.include_router(each.router)
    # of two routes of one path the first is taken: pages before the JSON that `/` answers without them
    app.router.routes[:] = app.router.routes[first:] + app.router.routes[:first]
    sort_routes(app)
    for kind in (HTTPException, RequestValidationError, WaybillError, Exception):
        app.add_exception_handler(kind, _answer_error)
    return app


def _build_static_router() -> APIRouter:
    routes = make_page_router("/static")

    @routes.get("/{name:path}", **declare_role("open"))
    async def get_static_file(request: Request, name: str) -> Response:
        site: PageSite = request.app.state.page_site
        file = site.static.get(name)
        if file is None:
            raise HttpProblem("no-route", "There is no such file.", "Go to the first page.")
        headers = {"ETag": f'"{file.tag}"', "Cache-Control": ONE_DAY if request.url.query == file.tag else "no-cache"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.type)

    return routes


async def _answer_error(request: Request, error: Exception) -> Response:
    """Errors outside of pages: a page for a browser that opens a wrong address, JSON for everybody else."""
    is_browser = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if not is_browser or request.url.path.startswith("/api/"):
        return to_error_response(request, error, is_authenticated=getattr(request.state, "identity", None) is not None)
    response = render_error(request, error)
    response.headers["Content-Security-Policy"] = PAGE_POLICY
    return response
