"""The HTTP routes of ingest. They parse requests and build responses; the work is done by waybill.apps.ingest.service.

/api/v1/ingest/...          batches, uploads, profiles (and collections), holds (and pauses, locks), payload_check, objects, access
/api/v1/ingest/storage/...  storage.http_server: our storage for other services
/poster/...                 merritt_form: Merritt's form for deposits
/m/<ark>                    objects: redirects an ARK to its object

context     what all routes share: the request context, the paths of objects
schemas     request bodies and responses; the OpenAPI description is generated from them
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request

from waybill.apps.ingest.embargo import close_object
from waybill.apps.ingest.routes import access, batches, holds, merritt_form, objects, payload_check, profiles, uploads
from waybill.apps.ingest.storage import http_server
from waybill.http.errors import describe_responses
from waybill.http.uploads import UploadSlots

if TYPE_CHECKING:
    from waybill.environment import Environment

STORAGE_REFUSALS = (401, 403, 404, 408, 409, 413, 422, 500, 503, 504)


def build_routers(environment: Environment) -> list[APIRouter]:
    upload_slots = UploadSlots()
    return [
        batches.build_batch_router(upload_slots),
        uploads.build_upload_router(upload_slots),
        payload_check.build_check_router(upload_slots),
        profiles.build_profile_router(),
        holds.build_hold_router(),
        merritt_form.build_merritt_router(upload_slots),
        objects.build_object_router(),
        access.build_access_router(),
        objects.build_landing_router(),
        build_storage_router(environment, upload_slots),
    ]


def build_storage_router(environment: Environment, upload_slots: UploadSlots) -> APIRouter:
    """Return the routes of storage.http_server with our embargo check and the error responses of this server, both of
    which storage does not know.
    """

    def check_access(request: Request, ark: str) -> None:
        row = environment.resources_of("ingest").inventory.get_object(ark)
        objects.check_embargo(request.state.identity, ark, row)

    def close_for(ark: str, embargo: str) -> None:
        close_object(environment.resources_of("ingest").inventory, ark, embargo)

    router = APIRouter()
    router.include_router(
        http_server.build_router(environment, upload_slots, check_access, close_for),
        responses=describe_responses(*STORAGE_REFUSALS),
    )
    return router
