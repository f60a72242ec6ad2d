"""Where an ARK leads that EZID was told of: GET /m/<ark>, on to the object in the API.

Who may see it is asked there.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from waybill.apps.ingest.noid import is_ark
from waybill.http.errors import Problem, responses


def router() -> APIRouter:
    routes = APIRouter(tags=["ingest objects"])

    @routes.get(
        "/m/{ark:path}",
        summary="Where an ARK leads",
        status_code=307,
        response_class=RedirectResponse,
        responses=responses(404, 422),
        openapi_extra={"x-role": "open"},
    )
    def land(ark: str) -> Response:
        """The ARK may be quoted once or twice, as Merritt's targets are."""
        wanted = unquote(ark)
        if not is_ark(wanted):
            raise Problem(404, "not-found", "This is not an ARK.", "It is written as ark:/99999/fk4abc.")
        return RedirectResponse(f"/api/v1/ingest/objects/{quote(wanted, safe='')}", 307)

    return routes
