"""The pages of ingest, for depositors and operators.

    deposit_form    /ingest/deposit               files dropped or chosen, a URL, or a manifest; sent in pieces by static/deposit.js
    deposits        /ingest, /ingest/deposits/ID  what was deposited, and what became of it, live
    objects         /ingest/objects/...           the inventory: objects, versions, files, their last fixity check, assemblies
    profiles        /ingest/profiles, /collections    with their holds
    disk_space      /ingest/disk-space            jobs that wait for space on the working disk

All read the same services as the API (waybill.apps.ingest.service); none has a rule of its own.
"""

from __future__ import annotations

from waybill.apps.ingest.pages import deposit_form, deposits, disk_space, objects, profiles
from waybill.apps.ingest.pages.context import find_links
from waybill.http.uploads import UploadSlots
from waybill.pages import ApplicationPages, NavigationEntry, RecordPart, make_page_router


def build_pages() -> ApplicationPages:
    router = make_page_router("/ingest")
    deposit_form.add_routes(router, UploadSlots())
    for part in (deposits, objects, profiles, disk_space):
        part.add_routes(router)
    return ApplicationPages(
        router,
        navigation=(NavigationEntry("Ingest", "/ingest", somewhere=True),),
        shortcuts=(
            NavigationEntry("Deposit files", "/ingest/deposit", "submitter", somewhere=True),
            NavigationEntry("Inventory", "/ingest/objects"),
        ),
        package="waybill.apps.ingest.pages",
        record_parts=(
            RecordPart("batch", "ingest/batch_part.html", deposits.read_batch_part),
            RecordPart("job", "ingest/job_part.html", deposits.read_job_part),
        ),
        search=find_links,
    )
