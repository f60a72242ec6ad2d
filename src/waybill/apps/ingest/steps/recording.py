"""Recording: a version that is at rest is entered into the inventory, from its storage manifest and nothing else.

A job that was stored here knows what storage answered. One that another service has stored names the manifest by a URL (recorded.py).
"""

from __future__ import annotations

import msgspec

from waybill.apps.ingest.inventory import Contradiction, LocalIdTaken
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.storage import NotStored, Stored
from waybill.manifests import ManifestError
from waybill.record import Record
from waybill.step import Context, Done, Fail


def recording(job: Record, ctx: Context) -> Done:
    outfit = outfit_of(ctx)
    told = job.docs.get("stored")
    if not isinstance(told, dict):
        raise Fail("Nothing says where the storage manifest of this job is: `restart` stores it anew.")
    stored = msgspec.convert(told, Stored)
    try:
        outfit.inventory.record(stored, outfit.storage)  # safe to repeat: a version that is there is left as it is
    except (LocalIdTaken, Contradiction, ManifestError, NotStored) as error:
        raise Fail(str(error)) from error
    return Done()
