"""What the function of a page receives: who asks, the form, connections to the store, and `render`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode, urlsplit

from fastapi import Depends, Response
from fastapi.responses import RedirectResponse

from waybill.http.authentication import csrf_token_of
from waybill.http.connections import StoreConnectionPool
from waybill.http.errors import HttpProblem
from waybill.http.request_context import RequestContext
from waybill.machine import Machine
from waybill.record import Ref
from waybill.rules import Machines
from waybill.tokens import Identity

if TYPE_CHECKING:
    from waybill.http.api_services import ApiServices
    from waybill.pages.page_routes import Form
    from waybill.pages.site import PageSite

MAX_TEXT = 1000  # characters of a reason


class PageContext(RequestContext):
    """The context of one request for a page."""

    @property
    def services(self) -> ApiServices:
        return self._services

    @property
    def site(self) -> PageSite:
        site: PageSite = self.request.app.state.page_site
        return site

    @property
    def machines(self) -> Machines:
        return self.environment.machines

    @property
    def connections(self) -> StoreConnectionPool:
        return self._services.connections

    @property
    def user(self) -> Identity:
        """Who is signed in; on pages that need a role."""
        assert self.identity is not None
        return self.identity

    @property
    def form(self) -> Form:
        form: Form = self.request.state.form
        return form

    def get_field(self, name: str, default: str = "") -> str:
        """Return the value of a field of the form, without blanks around it."""
        return self.form.get(name, [default])[0].strip()

    def get_reason(self) -> str:
        """Return the reason that every action takes."""
        why = self.get_field("why")
        if len(why) > MAX_TEXT:
            raise HttpProblem(
                "invalid", f"The reason has {len(why)} characters; at most {MAX_TEXT}.", "Say it shorter."
            )
        return why

    def get_machine(self, kind: str) -> Machine:
        """Raises for a kind that is not there, and for those that are never shown as records."""
        return self._services.get_visible_machine(kind)

    def get_ref(self, kind: str, id: str) -> Ref:
        return self._services.make_ref(kind, id)

    def can(self, role: str) -> bool:
        """Whether somebody has a role everywhere."""
        return self.identity is not None and self.identity.has_role(role)

    def can_somewhere(self, role: str) -> bool:
        """Whether somebody has a role for some records: for which, `access` says."""
        return self.identity is not None and self.identity.has_role_somewhere(role)

    def render(
        self, template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any
    ) -> Response:
        """Return a page."""
        body = self.site.render(
            template,
            context=self,
            status=status,
            identity=self.identity,
            csrf_token=csrf_token_of(self.request),
            here=self.request.url.path,
            notice=self.request.query_params.get("done", ""),
            **values,
        )
        return Response(body, status, headers, media_type="text/html; charset=utf-8")

    def redirect(self, path: str, notice: str = "", **query: str) -> Response:
        """Send the browser on after a change; `notice` is shown there once."""
        fields = {**query, **({"done": notice} if notice else {})}
        return RedirectResponse(f"{path}?{urlencode(fields)}" if fields else path, 303)

    def get_way_back(self, default: str) -> str:
        """Return the page of ours that a form names in its field `back`."""
        return own_path_of(self.get_field("back"), default)


def own_path_of(text: str, default: str) -> str:
    """Return a path of this server, or the default: a link must not lead to another one."""
    parts = urlsplit(text)
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return text if is_own and text.isprintable() else default


PageRequest = Annotated[PageContext, Depends(PageContext)]
