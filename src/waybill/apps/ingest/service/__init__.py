"""What users of ingest call: the API, the form and the command line all come through here.

Every function takes the engine (one store connection, one thread) and, where bytes or settings matter, the outfit
(`depot.outfit("batch")`). `who` is written into histories. What cannot be done is refused with a sentence: `Refused`,
or its kinds here, Unfit (what was sent), Missing (what was named; NotKept: a profile or a collection), TooLarge,
OtherBatch (a batchID that is taken).

    from waybill.apps.ingest import service
    from waybill.apps.ingest.submission import Submission, Type

    said = Submission(profile="demo", url="https://example.org/a.zip", title="A", local_ids=("x1",), update=False)
    accepted = service.submit(engine, outfit, said, who="ada")                     # the payload is at a URL
    with open("a.zip", "rb") as file:                                              # or is uploaded
        accepted = service.submit(engine, outfit, replace(said, url="", filename="a.zip"), file, who="ada")
    accepted.batch (the Record), accepted.batch_id ("bid-<uuid>"), accepted.repeated

submitting.py    submit = ready (deposits.py) -> receive (receiving.py), arrived, or located -> enter; guess
shelf.py         PROFILES and COLLECTIONS: put, change, act (retire, restore, delete), page, each, record, read
profiles.py      import_profile (Merritt's properties)
batches.py       find_batch (by id or batchID), find_job, batch_view
holding.py       marks, hold, release (all of a collection), release_batch, pause, unpause
locking.py       locks, lock, unlock
checking.py      check_payload: a manifest, a container or a bag, before it is submitted
"""

from waybill.apps.ingest.service.batches import batch_view, find_batch, find_job
from waybill.apps.ingest.service.checking import Note, Report, at_most, check_payload
from waybill.apps.ingest.service.deposits import batch_id_of, new_batch_id, ready
from waybill.apps.ingest.service.holding import (
    QUEUES,
    Bulk,
    Mark,
    Queue,
    hold,
    marks,
    pause,
    release,
    release_batch,
    unpause,
)
from waybill.apps.ingest.service.locking import lock, locks, unlock
from waybill.apps.ingest.service.profiles import import_profile
from waybill.apps.ingest.service.receiving import Received, forget, receive
from waybill.apps.ingest.service.refusals import Missing, NotKept, OtherBatch, TooLarge, Unfit
from waybill.apps.ingest.service.shelf import COLLECTIONS, PROFILES
from waybill.apps.ingest.service.submitting import Accepted, arrived, enter, guess, located, settle, submit, uploading

__all__ = [
    "COLLECTIONS",
    "PROFILES",
    "QUEUES",
    "Accepted",
    "Bulk",
    "Mark",
    "Missing",
    "NotKept",
    "Note",
    "OtherBatch",
    "Queue",
    "Received",
    "Report",
    "TooLarge",
    "Unfit",
    "arrived",
    "at_most",
    "batch_id_of",
    "batch_view",
    "check_payload",
    "enter",
    "find_batch",
    "find_job",
    "forget",
    "guess",
    "hold",
    "import_profile",
    "located",
    "lock",
    "locks",
    "marks",
    "new_batch_id",
    "pause",
    "ready",
    "receive",
    "release",
    "release_batch",
    "settle",
    "submit",
    "unlock",
    "unpause",
    "uploading",
]
