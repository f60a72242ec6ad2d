"""Deposits: a submission is checked, completed from its profile, gets its payload, and becomes a batch.

    complete_submission     checks what the depositor sent, and adds what the profile says: owner, collections, batchID, time
    add_url_payload         the payload is at a URL: the address is checked, nothing is fetched
    add_upload_payload      the payload was uploaded (uploads.py)
    make_batch              creates the batch, or returns the one that the same batchID has created before

Only the first bytes of a payload are read here, to guess its type; the batch and its jobs read the rest.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import httpx2
import msgspec
from msgspec.structs import replace

from waybill.apps.ingest import priority
from waybill.apps.ingest.formats import checkm
from waybill.apps.ingest.identifiers.noid import find_ark_fault
from waybill.apps.ingest.payload import UPLOADS_FOLDER
from waybill.apps.ingest.profile import Profile, is_mail_address, is_web_address
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.service.managed_documents import require_active_mnemonics, require_active_profile
from waybill.apps.ingest.service.uploads import find_batch_id_fault, payload_url_of, receive_upload, uploads_of
from waybill.apps.ingest.submission import (
    MAX_LOCAL_ID_LENGTH,
    MAX_LOCAL_IDS,
    NO_TARGET_MESSAGE,
    BatchSubmission,
    PayloadType,
    Submission,
)
from waybill.digests import normalize_algorithm, normalize_digests
from waybill.engine import Engine
from waybill.errors import InputError
from waybill.files import containers, names
from waybill.files.staged_uploads import StagedUpload, upload_key_of
from waybill.masking import remove_account
from waybill.record import CommitOutcomeUnknown, Record, RecordExists, RecordNotFound
from waybill.rules import ActionRefused
from waybill.step import New
from waybill.transfer import TransferError

MAX_TEXT_LENGTH = 4096  # characters of a title and similar fields
MAX_DELETIONS = 1000

_PAYLOAD_TYPES = {
    checkm.ManifestKind.OBJECT: PayloadType.OBJECT,
    checkm.ManifestKind.MANIFESTS: PayloadType.MANIFESTS,
    checkm.ManifestKind.CONTAINERS: PayloadType.CONTAINERS,
    checkm.ManifestKind.FILES: PayloadType.FILES,
}
MAX_URL_LENGTH = 8192
# two submissions that differ in one of these are different deposits
_COMPARED_FIELDS = ("profile", "update", "primary_id", "local_ids", "creator", "title", "date", "deletions")
_BATCH_ID_NAMESPACE = uuid.UUID("5c9e4bb1-62a4-5d15-9a0c-6e7e9a4b2d11")  # of batchIDs derived from a caller's key


class AcceptedDeposit(msgspec.Struct, frozen=True):
    """A batch that was created, or found: `is_repeated` says that it existed already."""

    batch: Record
    submission: Submission
    is_repeated: bool = False

    @property
    def batch_id(self) -> str:
        return self.submission.batch_id


def submit_deposit(
    engine: Engine,
    resources: IngestResources,
    submission: Submission,
    data: BinaryIO | Iterable[bytes] | None = None,
    *,
    who: str,
    why: str = "",
    check: Callable[[Submission], None] = lambda submission: None,
) -> AcceptedDeposit:
    """Submit `data`, an upload named `submission.filename`; without `data` the payload is at `submission.url`. `check` raises
    for a completed submission that may not be submitted.
    """
    complete, profile = complete_submission(engine, resources, submission, who=who)
    check(complete)
    if data is None:
        return make_batch(engine, add_url_payload(resources, complete), profile, who=who, why=why)
    if submission.url:
        raise InputError("Give a file or a URL, not both.")
    digests = [submission.digest_type] if submission.digest_type else []
    with remove_uploads_on_refusal(resources) as keep:
        received = receive_upload(resources, complete.batch_id, submission.filename, data, digests=digests)
        keep(received)
        return remove_unused_upload(
            resources,
            make_batch(engine, add_upload_payload(resources, complete, received), profile, who=who, why=why),
            received,
        )


def complete_submission(
    engine: Engine, resources: IngestResources, submission: Submission, *, who: str
) -> tuple[Submission, Profile]:
    """The completed submission, and its profile. Raises InputError with all faults, and NotFound if there is no
    such profile.
    """
    profile = require_active_profile(engine, submission.profile)
    faults = list(find_submission_faults(submission))
    if faults:
        raise InputError(" ".join(faults))
    complete = replace(
        submission,
        batch_id=submission.batch_id or new_batch_id(),
        job_id="",
        submitter=submission.submitter or who,
        owner=profile.owner,
        collections=require_active_mnemonics(engine, resources, profile),
        submitted_at=datetime.fromtimestamp(engine.store.now(), UTC).isoformat(timespec="seconds"),
        received_digests={},
        row_digests={},
    )
    return complete, profile


def new_batch_id() -> str:
    return f"bid-{uuid.uuid4()}"


def batch_id_of(key: str, who: str) -> str:
    """The batchID for a caller's idempotency key: always the same for this caller, and different for others."""
    return f"bid-{uuid.uuid5(_BATCH_ID_NAMESPACE, f'{len(who)}:{who}{key}')}"


def find_submission_faults(submission: Submission) -> Iterator[str]:
    """The faults of a submission, each a sentence."""
    for what, text in (
        ("The creator", submission.creator),
        ("The title", submission.title),
        ("The date", submission.date),
        ("The submitter", submission.submitter),
        ("The resource type", submission.datacite_type),
        ("notificationFormat", submission.notification_format),
        ("responseForm", submission.response_form),
        *((f"DC.{word}", text) for word, text in submission.dc.items()),
    ):
        yield from _find_text_faults(what, text)
    yield from _find_text_faults("The note", submission.note, lines=True)
    if submission.primary_id and (fault := find_ark_fault(submission.primary_id)):
        yield fault
    if len(submission.local_ids) > MAX_LOCAL_IDS:
        yield f"There are {len(submission.local_ids)} local ids; an object has at most {MAX_LOCAL_IDS}."
    for local in submission.local_ids[:MAX_LOCAL_IDS]:
        yield from _find_text_faults("A local id", local, max_length=MAX_LOCAL_ID_LENGTH)
        if ";" in local:
            yield f"The local id {names.quote_text(local)} holds a semicolon, which stands between two of them: give each by itself."
    yield from _find_digest_faults(submission.digest_type, submission.digest_value)
    for address in filter(None, re.split(r"[,;\s]+", submission.notification)):
        if not is_mail_address(address):
            yield f"{names.quote_text(address)} is not a mail address."
    if submission.size is not None and submission.size < 0:
        yield "The size is negative: it is the number of bytes."
    if submission.batch_id and (fault := find_batch_id_fault(submission.batch_id)):
        yield fault
    yield from _find_deletion_faults(submission)
    if submission.is_update_without_target:
        yield NO_TARGET_MESSAGE
    if submission.filename and (fault := names.find_fault(submission.filename)):
        yield fault
    if submission.filename and "/" in submission.filename:
        yield f"{names.quote_text(submission.filename)} is not the name of a file: it has a slash in it."


def _find_text_faults(what: str, text: str, *, max_length: int = MAX_TEXT_LENGTH, lines: bool = False) -> Iterator[str]:
    if len(text) > max_length:
        yield f"{what} has {len(text)} characters; at most {max_length} are kept."
    elif not all(letter.isprintable() or letter == "\u00a0" or (lines and letter in "\n\t\r") for letter in text):
        yield f"{what} holds a control character or something else that cannot be printed."


def _find_deletion_faults(submission: Submission) -> Iterator[str]:
    if submission.deletions and not submission.update:
        yield "Only an update deletes files: send it as an update, or without a list of deletions."
    if len(submission.deletions) > MAX_DELETIONS:
        yield f"{len(submission.deletions)} files to delete: name more than {MAX_DELETIONS} in a file mrt-delete.txt in the deposit."
    for name in submission.deletions[:MAX_DELETIONS]:
        if fault := names.find_fault(name):
            yield fault


def _find_digest_faults(digest_type: str, value: str) -> Iterator[str]:
    if bool(digest_type) != bool(value):
        yield f"The {'value' if digest_type else 'type'} of the digest is missing: give digestType and digestValue, or neither."
    elif digest_type:
        try:
            normalize_digests({digest_type: value})
        except InputError as error:
            yield str(error)


def remove_unused_upload(
    resources: IngestResources, accepted: AcceptedDeposit, received: StagedUpload
) -> AcceptedDeposit:
    """Returns `accepted`; removes the upload if the batch existed already, with an upload of its own."""
    if accepted.submission.url != payload_url_of(received):
        uploads_of(resources).remove(received)
    return accepted


def remove_uploads_on_refusal(resources: IngestResources) -> AbstractContextManager[Callable[[StagedUpload], None]]:
    return uploads_of(resources).remove_on_refusal()


def add_url_payload(resources: IngestResources, submission: Submission) -> Submission:
    """The submission with its payload at its URL. Host names are looked up, so that a private address is refused at once;
    nothing is fetched.
    """
    url = submission.url
    if not url:
        raise InputError("There is no payload: send a file, or give its URL.")
    if len(url) > MAX_URL_LENGTH or not url.isascii() or not url.isprintable() or " " in url or not is_web_address(url):
        raise InputError(
            f"{_quote_url(url)} cannot be fetched: give an http or https URL without user name and password."
        )
    try:
        resources.address_policy.resolve_allowed(httpx2.URL(url))
    except TransferError as error:
        # The name server may be unavailable for a moment: the job tries again, and fails with this sentence if need be.
        if not error.is_retryable:
            raise InputError(str(error)) from None
    except httpx2.InvalidURL as error:
        raise InputError(f"{_quote_url(url)} is not a URL: {error}.") from None
    url_name = unquote(urlsplit(url).path.rpartition("/")[2])
    name = submission.filename or (url_name if names.find_fault(url_name) is None else "")
    return replace(submission, filename=name, type=submission.type or guess_payload_type(name))


def add_upload_payload(resources: IngestResources, submission: Submission, received: StagedUpload) -> Submission:
    """The submission with an upload as its payload."""
    if upload_key_of(UPLOADS_FOLDER, received.name) != submission.batch_id:
        # the maintenance routine would take it for abandoned
        raise ValueError(f"{received.name} was not received for {submission.batch_id}")
    if submission.size is not None and submission.size != received.size:
        raise InputError(f"{received.size} bytes came, and {submission.size} were announced: send it again.")
    if submission.digest_type and normalize_algorithm(submission.digest_type) not in received.digests:
        received = uploads_of(resources).add_digest(received, submission.digest_type)
    return replace(
        submission,
        url=payload_url_of(received),
        filename=submission.filename or received.filename,
        size=received.size,
        received_digests=received.digests,
        type=submission.type or guess_payload_type(submission.filename or received.filename, received.head),
    )


def make_batch(engine: Engine, submission: Submission, profile: Profile, *, who: str, why: str = "") -> AcceptedDeposit:
    """Create the batch of a complete submission, or return the one that its batchID has created before."""
    if submission.is_update_without_target:  # the type is only known from the payload
        raise InputError(NO_TARGET_MESSAGE)
    batch_priority = priority.initial_priority_of(1, profile.priority)
    submission = replace(submission, is_profile_checked=True)
    new = New(
        "batch",
        (BatchSubmission(submission),),
        owner=submission.submitter or submission.owner,
        priority=batch_priority,
        idempotency_key=submission.batch_id,
    )
    started_at = engine.store.now()  # a batch created before this was created by an earlier request
    try:
        # Safe to repeat: an idempotency key creates one batch, however often it is sent.
        created = _submit_with_retry(engine, new, who, why)
    except RecordExists:
        created = engine.store.get_by_idempotency_key("batch", submission.batch_id)  # another service has created it
    batch = engine.store.get(*created.ref)
    stored = Submission.from_batch(batch)
    if differences := ", ".join(_find_differences(stored, Submission.from_document(submission.to_document()))):
        raise ActionRefused(
            f"The batchID {submission.batch_id} belongs to {batch.ref}, which differs in its {differences}: give another batchID.",
            code="conflict",
        )
    return AcceptedDeposit(batch, stored, is_repeated=batch.created < started_at)


def find_submitted(engine: Engine, batch_id: str) -> AcceptedDeposit | None:
    """The deposit that this batchID has submitted before; None: it has submitted none."""
    try:
        batch = engine.store.get_by_idempotency_key("batch", batch_id)
    except RecordNotFound:
        return None
    return AcceptedDeposit(batch, Submission.from_batch(batch), is_repeated=True)


def guess_payload_type(filename: str, head: bytes | None = None) -> PayloadType | None:
    """The type of a payload, from its first bytes if they are known, and from its name; None: only the payload can tell."""
    if head is not None and (kind := checkm.detect_kind(head)) is not None:
        return _PAYLOAD_TYPES[kind]
    lowered = filename.lower()
    if lowered.endswith(".checkm"):
        return None
    if lowered.endswith(containers.CONTAINER_ENDINGS):
        return PayloadType.CONTAINER if head is None or containers.kind_of(head) is not None else PayloadType.FILE
    return PayloadType.FILE


def _quote_url(url: str) -> str:
    """The URL as it may be shown: without a user name and password."""
    return names.quote_text(remove_account(url))


def _submit_with_retry(engine: Engine, new: New, who: str, why: str) -> Record:
    try:
        return engine.submit(new, who=who, why=why)
    except CommitOutcomeUnknown:
        return engine.submit(new, who=who, why=why)


def _find_differences(first: Submission, second: Submission) -> Iterator[str]:
    """The fields in which two stored submissions differ; of two uploads the content counts, not the place."""
    if first.url != second.url and not (
        first.received_digests and first.received_digests.get("sha256") == second.received_digests.get("sha256")
    ):
        yield "payload"
    yield from (name.replace("_", " ") for name in _COMPARED_FIELDS if getattr(first, name) != getattr(second, name))
