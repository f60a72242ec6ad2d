"""Uploads of deposits: stored at ingest/payloads/<batchID>.<random>/<filename> until the batch that names one as its
payload has ended (waybill.files.staged_uploads, maintenance/unneeded_objects.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import BinaryIO

from waybill.apps.ingest.payload import UPLOADS_FOLDER
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.storage.sources import OBJECT_SCHEME
from waybill.errors import InputError
from waybill.files import names
from waybill.files.piecewise_uploads import PiecewiseUploads
from waybill.files.staged_uploads import StagedUpload, StagedUploads

_BATCH_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_STORE_ID = re.compile(r"bid[0-9]+")  # ids of batches in the store


def uploads_of(resources: IngestResources) -> StagedUploads:
    return StagedUploads(
        resources.objects,
        UPLOADS_FOLDER,
        max_bytes=resources.settings.fetch.max_bytes,
        draw_random_bytes=resources.draw_random_bytes,
    )


def piecewise_uploads_of(resources: IngestResources, batch_id: str | None = None) -> PiecewiseUploads:
    """The uploads in pieces. `batch_id`: of one that begins, which is checked."""
    if batch_id is not None and (fault := find_batch_id_fault(batch_id)):
        raise InputError(fault)
    return PiecewiseUploads(
        resources.objects,
        UPLOADS_FOLDER,
        max_bytes=resources.settings.fetch.max_bytes,
        draw_random_bytes=resources.draw_random_bytes,
    )


def receive_upload(
    resources: IngestResources,
    batch_id: str,
    filename: str,
    data: BinaryIO | Iterable[bytes],
    *,
    digests: Iterable[str] = (),
) -> StagedUpload:
    if fault := find_batch_id_fault(batch_id):
        raise InputError(fault)
    return uploads_of(resources).receive(batch_id, filename, data, digests=digests)


def find_batch_id_fault(text: str) -> str | None:
    """What is wrong with a batchID, as a sentence: it becomes part of paths, and must not look like the id of a batch."""
    if _BATCH_ID.fullmatch(text) and not _STORE_ID.fullmatch(text):
        return None
    return f"{names.quote_text(text)} is not a batchID: it has 1 to 100 letters, digits and - _ . as bid-<uuid> does."


def payload_url_of(upload: StagedUpload) -> str:
    return f"{OBJECT_SCHEME}{upload.name}"
