"""Our storage for other services (storage/served.py), described with the refusals of this server, of which storage
knows nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from waybill.apps.ingest.storage import served
from waybill.http.errors import responses

if TYPE_CHECKING:
    from waybill.depot import Depot

REFUSALS = (401, 403, 404, 408, 409, 413, 422, 500, 503, 504)


def router(depot: Depot, arriving: served.Arriving, closed: Callable[[Request, str], Response | None]) -> APIRouter:
    routes = APIRouter()
    routes.include_router(served.routes(depot, arriving, closed), responses=responses(*REFUSALS))
    return routes
