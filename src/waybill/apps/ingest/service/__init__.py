"""The service layer of ingest: the API, the form and the command line all call these functions.

Every function takes the engine (one store connection, one thread) and, where bytes or settings matter, the resources
(`environment.resources_of("ingest")`). `who` is written into histories. What cannot be done is refused with a sentence:
ActionRefused, InputError or NotFound.

    from waybill.apps.ingest import service
    from waybill.apps.ingest.submission import Submission

    submission = Submission(profile="demo", url="https://example.org/a.zip", title="A", local_ids=("x1",))
    accepted = service.submit_deposit(engine, resources, submission, who="ada")                  # the payload is at a URL
    with open("a.zip", "rb") as file:                                                            # or is uploaded
        accepted = service.submit_deposit(engine, resources, replace(submission, url="", filename="a.zip"), file, who="ada")
    accepted.batch (the Record), accepted.batch_id ("bid-<uuid>"), accepted.is_repeated

    deposits.py             submit_deposit: complete_submission, then receive_upload (uploads.py) and add_upload_payload,
                            or add_url_payload, then make_batch
    managed_documents.py    PROFILES and COLLECTIONS: put, change, act (retire, restore, delete), get_page, read_all, get_record, read;
                            import_profile
    batches.py              find_batch (by id or batchID), find_job, build_batch_view
    holds.py                list_active_holds, hold_collection, release_collection, release_batch, pause_queue, unpause_queue
    operator_locks.py       list_active_locks, set_operator_lock, release_operator_lock
    payload_check.py        check_payload: a manifest, a container or a bag, before it is submitted
"""

from waybill.apps.ingest.service.batches import build_batch_view, find_batch, find_job
from waybill.apps.ingest.service.deposits import (
    AcceptedDeposit,
    add_upload_payload,
    add_url_payload,
    batch_id_of,
    complete_submission,
    find_submitted,
    guess_payload_type,
    make_batch,
    new_batch_id,
    remove_unused_upload,
    remove_uploads_on_refusal,
    submit_deposit,
)
from waybill.apps.ingest.service.holds import (
    QUEUE_HOLDS,
    ActiveHold,
    BulkActionResult,
    PausableQueue,
    hold_collection,
    list_active_holds,
    pause_queue,
    release_batch,
    release_collection,
    unpause_queue,
)
from waybill.apps.ingest.service.managed_documents import COLLECTIONS, PROFILES, import_profile
from waybill.apps.ingest.service.operator_locks import list_active_locks, release_operator_lock, set_operator_lock
from waybill.apps.ingest.service.payload_check import PayloadCheckReport, PayloadRemark, check_payload, limit_bytes
from waybill.apps.ingest.service.uploads import piecewise_uploads_of, receive_upload
from waybill.files.staged_uploads import StagedUpload

__all__ = [
    "COLLECTIONS",
    "PROFILES",
    "QUEUE_HOLDS",
    "AcceptedDeposit",
    "ActiveHold",
    "BulkActionResult",
    "PausableQueue",
    "PayloadCheckReport",
    "PayloadRemark",
    "StagedUpload",
    "add_upload_payload",
    "add_url_payload",
    "batch_id_of",
    "build_batch_view",
    "check_payload",
    "complete_submission",
    "find_batch",
    "find_job",
    "find_submitted",
    "guess_payload_type",
    "hold_collection",
    "import_profile",
    "limit_bytes",
    "list_active_holds",
    "list_active_locks",
    "make_batch",
    "new_batch_id",
    "pause_queue",
    "piecewise_uploads_of",
    "receive_upload",
    "release_batch",
    "release_collection",
    "release_operator_lock",
    "remove_unused_upload",
    "remove_uploads_on_refusal",
    "set_operator_lock",
    "submit_deposit",
    "unpause_queue",
]
