"""Closing: whoever is no operator does not get the files of an object that is under embargo."""

from __future__ import annotations

import time

from fastapi import Request, Response

from waybill.apps.ingest.access import embargo
from waybill.apps.ingest.routes.answers import refusal
from waybill.index import Row
from waybill.tokens import Identity


def closed_to(request: Request | None, row: Row | None) -> Response | None:
    """The refusal, if there is one. `request` None: nobody has to say who asks, as for the URL of an assembly."""
    identity: Identity | None = getattr(request.state, "identity", None) if request is not None else None
    why = embargo.in_force(row, time.time()) if identity is None or not identity.may("operator") else ""
    return refusal(403, "embargo", why, embargo.HINT) if why else None
