"""Submitting: a deposit becomes a batch. Lightweight: nothing is read of the payload but its first bytes.

    ready      what was said is checked, and completed from the profile
    receive    an upload comes into the objects; a URL is taken as it is
    enter      the batch is made, once for each batchID

A submission with the same batchID is answered with the batch that was made first; one with another payload under that batchID is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import httpx2
import msgspec
from msgspec.structs import replace

from waybill.apps.ingest import checkm, containers, names, priority
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.profile import Profile, is_web_address
from waybill.apps.ingest.service.deposits import ready
from waybill.apps.ingest.service.receiving import Received, forget, measured, receive
from waybill.apps.ingest.service.refusals import OtherBatch, Unfit
from waybill.apps.ingest.submission import Submission, Type, of_batch
from waybill.digests import algorithm
from waybill.engine import Engine
from waybill.record import Exists, Record, Unknown
from waybill.step import New
from waybill.transfer.reach import OutOfReach, Unresolved

_CONTAINERS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2")
_OF_MANIFEST = {
    checkm.Kind.OBJECT: Type.OBJECT, checkm.Kind.MANIFESTS: Type.MANIFESTS, checkm.Kind.CONTAINERS: Type.CONTAINERS,
    checkm.Kind.FILES: Type.FILES,
}  # fmt: skip
LONGEST_URL = 8192


class Accepted(msgspec.Struct, frozen=True):
    """A batch that was made, or found: `repeated` says that it was there already."""

    batch: Record
    submission: Submission
    repeated: bool = False

    @property
    def batch_id(self) -> str:
        return self.submission.batch_id


def submit(
    engine: Engine, outfit: Outfit, said: Submission, data: BinaryIO | Iterable[bytes] | None = None, *, who: str, why: str = ""
) -> Accepted:
    """Submit `data`, an upload called `said.filename`; without it the payload is at `said.url`."""
    complete, profile = ready(engine, outfit, said, who=who)
    if data is None:
        return enter(engine, outfit, complete, profile, said.url, who=who, why=why)
    if said.url:
        raise Unfit("Give a file or a URL, not both.")
    wanted = [said.digest_type] if said.digest_type else []
    received = receive(outfit, complete.batch_id, said.filename, data, digests=wanted)
    return enter(engine, outfit, complete, profile, received, who=who, why=why)


def enter(
    engine: Engine, outfit: Outfit, complete: Submission, profile: Profile, payload: str | Received, *, who: str, why: str = ""
) -> Accepted:
    """Make the batch of a submission that is `ready`. An upload that became no batch's payload is removed."""
    if isinstance(payload, str):
        return _made(engine, _from_url(outfit, complete, payload), profile, who, why)
    try:
        whole = _from_upload(outfit, complete, payload)
        accepted = _made(engine, whole, profile, who, why)
    except Unknown:
        raise  # the batch may be there and need its payload
    except Exception:
        forget(outfit, payload)
        raise
    if accepted.submission.url != payload.url:
        forget(outfit, payload)
    return accepted


def guess(filename: str, head: bytes | None = None) -> Type | None:
    """What a payload is, by its first bytes where they are known, and by its name; None: only the payload can tell."""
    if head is not None and (kind := checkm.glance(head)) is not None:
        return _OF_MANIFEST[kind]
    lowered = filename.lower()
    if lowered.endswith(".checkm"):
        return None
    if lowered.endswith(_CONTAINERS):
        return Type.CONTAINER if head is None or containers.kind_of(head) is not None else Type.FILE
    return Type.FILE


def _from_url(outfit: Outfit, complete: Submission, url: str) -> Submission:
    if not url:
        raise Unfit("There is no payload: send a file, or give its URL.")
    if len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url or not is_web_address(url):
        raise Unfit(f"{_without_user(url)} cannot be fetched: give an http or https URL without user name and password.")
    try:
        outfit.reach.addresses(httpx2.URL(url))
    except OutOfReach as error:
        raise Unfit(str(error)) from None
    except Unresolved:
        pass  # a name server may be away for a moment: the job tries again, and fails with this sentence if it must
    except httpx2.InvalidURL as error:
        raise Unfit(f"{_without_user(url)} is not a URL: {error}.") from None
    last = unquote(urlsplit(url).path.rpartition("/")[2])
    name = complete.filename or (last if names.fault(last) is None else "")
    return replace(complete, url=url, filename=name, type=complete.type or guess(name))


def _without_user(url: str) -> str:
    """The URL as it may be shown: without a password that should not have been in it."""
    return names.shown(url.rpartition("@")[2])


def _from_upload(outfit: Outfit, complete: Submission, received: Received) -> Submission:
    if complete.size is not None and complete.size != received.size:
        raise Unfit(f"{received.size} bytes came, and {complete.size} were announced: send it again.")
    if complete.digest_type and algorithm(complete.digest_type) not in received.digests:
        received = measured(outfit, received, complete.digest_type)
    return replace(
        complete, url=received.url, filename=received.filename, size=received.size, received=received.digests,
        type=complete.type or guess(received.filename, received.head),
    )  # fmt: skip


def _made(engine: Engine, whole: Submission, profile: Profile, who: str, why: str) -> Accepted:
    urgent = priority.first(1, profile.priority)
    new = New("batch", {"submission": whole.document()}, owner=whole.submitter or whole.owner, priority=urgent, request=whole.batch_id)
    began = engine.store.now()  # what was made before this was made by an earlier request
    try:
        # Safe to repeat: a request makes one batch, however often it is asked.
        made = _twice(engine, new, who, why)
    except Exists:
        made = engine.store.requested("batch", whole.batch_id)  # another service has made it
    batch = engine.store.get(*made.ref)
    first = of_batch(batch)
    if not _is_same(first, whole):
        raise OtherBatch(f"The batchID {whole.batch_id} belongs to {batch.ref}, which was submitted with another payload or profile.")
    return Accepted(batch, first, repeated=batch.created < began)


def _twice(engine: Engine, new: New, who: str, why: str) -> Record:
    try:
        return engine.submit(new, who=who, why=why)
    except Unknown:
        return engine.submit(new, who=who, why=why)


def _is_same(first: Submission, second: Submission) -> bool:
    """Whether they ask for the same: of two uploads their bytes count, not where they lie."""
    same = first.url == second.url or (bool(first.received) and first.received.get("sha256") == second.received.get("sha256"))
    return same and first.profile == second.profile and first.update == second.update
