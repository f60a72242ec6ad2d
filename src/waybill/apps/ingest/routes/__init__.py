"""The routes of ingest, each file a noun; what they take and answer is in shapes.py, what they do in
waybill.apps.ingest.service.

/api/v1/ingest/...          batches.py, kept.py (profiles, collections), holding.py (holds, pauses, locks), checking.py,
                            objects.py, access.py (what is at rest, and getting it back)
/api/v1/ingest/storage/...  stored.py: our storage for other services
/poster/...                 poster.py: Merritt's form
/m/<ark>                    landing.py: where an ARK leads
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from waybill.apps.ingest.routes import access, batches, checking, holding, kept, landing, objects, poster, stored
from waybill.apps.ingest.routes.arriving import Berth
from waybill.apps.ingest.routes.closing import closed_to

if TYPE_CHECKING:
    from waybill.depot import Depot


def routes(depot: Depot) -> list[APIRouter]:
    berth = Berth()

    def closed(request: Request, ark: str) -> Response | None:
        return closed_to(request, depot.outfit("job").inventory.object(ark))

    return [
        batches.routes(berth),
        checking.routes(berth),
        kept.routes(),
        holding.routes(),
        poster.routes(berth),
        objects.router(depot),
        access.router(depot),
        landing.router(),
        stored.router(depot, berth, closed),
    ]
