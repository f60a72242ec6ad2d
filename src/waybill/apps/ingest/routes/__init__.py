"""The HTTP routes of ingest. They parse requests and build responses; the work is done by waybill.apps.ingest.service.

/api/v1/ingest/...          batches, profiles (and collections), holds (and pauses, locks), payload_check, objects, access
/api/v1/ingest/storage/...  storage.http_server: our storage for other services
/poster/...                 merritt_form: Merritt's form for deposits
/m/<ark>                    objects: redirects an ARK to its object

context     what all routes share: the request context, roles, refusals as HTTP errors
schemas     request bodies and responses; the OpenAPI description is generated from them
uploads     multipart forms and request bodies, read as they arrive
downloads   stored content, verified while it is sent; embargoes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from waybill.apps.ingest.routes import access, batches, holds, merritt_form, objects, payload_check, profiles
from waybill.apps.ingest.routes.downloads import refuse_embargoed
from waybill.apps.ingest.routes.uploads import UploadSlots
from waybill.apps.ingest.storage import http_server
from waybill.http.errors import describe_responses

if TYPE_CHECKING:
    from waybill.environment import Environment

STORAGE_REFUSALS = (401, 403, 404, 408, 409, 413, 422, 500, 503, 504)


def build_routers(environment: Environment) -> list[APIRouter]:
    upload_slots = UploadSlots()
    return [
        batches.build_batch_router(upload_slots),
        payload_check.build_check_router(upload_slots),
        profiles.build_profile_router(),
        holds.build_hold_router(),
        merritt_form.build_merritt_router(upload_slots),
        objects.build_object_router(environment),
        access.build_access_router(environment),
        objects.build_landing_router(),
        build_storage_router(environment, upload_slots),
    ]


def build_storage_router(environment: Environment, upload_slots: UploadSlots) -> APIRouter:
    """Return the routes of storage.http_server with our embargo check and the error responses of this server, both of
    which storage does not know.
    """

    def refuse_embargoed_object(request: Request, ark: str) -> Response | None:
        return refuse_embargoed(request, environment.get_resources("job").inventory.get_object(ark))

    router = APIRouter()
    router.include_router(
        http_server.build_router(environment, upload_slots, refuse_embargoed_object),
        responses=describe_responses(*STORAGE_REFUSALS),
    )
    return router
