"""Submitting: a deposit becomes a batch. Lightweight: nothing is read of the payload but its first bytes.

    ready              what was said is checked, and completed from the profile
    receive, arrived   an upload comes into the objects; or
    located            a URL is taken as it is
    enter              the batch is made, once for each batchID

The network is never waited for while a connection to the store is held: a server does these one by one. A submission
with the same batchID is answered with the batch that was made first; one that asks for something else under that
batchID is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import httpx2
import msgspec
from msgspec.structs import replace

from waybill.apps.ingest import checkm, containers, names, priority
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.profile import Profile, is_web_address
from waybill.apps.ingest.service.deposits import ready
from waybill.apps.ingest.service.receiving import PAYLOADS, SCHEME, Received, forget, measured, receive
from waybill.apps.ingest.service.refusals import OtherBatch, Unfit
from waybill.apps.ingest.submission import NO_OBJECT, Submission, Type, of_batch, read
from waybill.digests import algorithm
from waybill.engine import Engine
from waybill.objects import ObjectsError
from waybill.record import Exists, Record, Unknown
from waybill.rules import Refused
from waybill.step import New
from waybill.transfer.reach import OutOfReach, Unresolved

_CONTAINERS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2")
_OF_MANIFEST = {
    checkm.Kind.OBJECT: Type.OBJECT,
    checkm.Kind.MANIFESTS: Type.MANIFESTS,
    checkm.Kind.CONTAINERS: Type.CONTAINERS,
    checkm.Kind.FILES: Type.FILES,
}
LONGEST_URL = 8192
# what makes it another object
_OF_DEPOSIT = ("profile", "update", "primary_id", "local_ids", "creator", "title", "date", "deletions")


class Accepted(msgspec.Struct, frozen=True):
    """A batch that was made, or found: `repeated` says that it was there already."""

    batch: Record
    submission: Submission
    repeated: bool = False

    @property
    def batch_id(self) -> str:
        return self.submission.batch_id


def submit(
    engine: Engine,
    outfit: Outfit,
    said: Submission,
    data: BinaryIO | Iterable[bytes] | None = None,
    *,
    who: str,
    why: str = "",
) -> Accepted:
    """Submit `data`, an upload called `said.filename`; without it the payload is at `said.url`."""
    complete, profile = ready(engine, outfit, said, who=who)
    if data is None:
        return enter(engine, located(outfit, complete), profile, who=who, why=why)
    if said.url:
        raise Unfit("Give a file or a URL, not both.")
    wanted = [said.digest_type] if said.digest_type else []
    with uploading(outfit) as keep:
        received = receive(outfit, complete.batch_id, said.filename, data, digests=wanted)
        keep(received)
        return settle(outfit, enter(engine, arrived(outfit, complete, received), profile, who=who, why=why), received)


def settle(outfit: Outfit, accepted: Accepted, received: Received) -> Accepted:
    """The same; the upload goes if the batch was there already, with one of its own."""
    if accepted.submission.url != received.url:
        forget(outfit, received)
    return accepted


@contextmanager
def uploading(outfit: Outfit) -> Iterator[Callable[[Received], None]]:
    """What is received in here is told to the function; if it ends in a refusal, all of that is removed again.

    After any other trouble it stays: the batch may have been made, and need it. If not, the duty removes it.
    """
    kept: list[Received] = []
    try:
        yield kept.append
    except (Refused, ObjectsError):
        for received in kept:
            forget(outfit, received)
        raise


def located(outfit: Outfit, complete: Submission) -> Submission:
    """With its payload at its URL. Names are looked up, so that a private address is refused at once; nothing is
    fetched.
    """
    url = complete.url
    if not url:
        raise Unfit("There is no payload: send a file, or give its URL.")
    if len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url or not is_web_address(url):
        raise Unfit(
            f"{_without_user(url)} cannot be fetched: give an http or https URL without user name and password."
        )
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
    return replace(complete, filename=name, type=complete.type or guess(name))


def arrived(outfit: Outfit, complete: Submission, received: Received) -> Submission:
    """With an upload as its payload."""
    if not received.url.startswith(f"{SCHEME}{PAYLOADS}/{complete.batch_id}."):
        # the duty would take it for left behind
        raise ValueError(f"{received.url} was not received for {complete.batch_id}")
    if complete.size is not None and complete.size != received.size:
        raise Unfit(f"{received.size} bytes came, and {complete.size} were announced: send it again.")
    if complete.digest_type and algorithm(complete.digest_type) not in received.digests:
        received = measured(outfit, received, complete.digest_type)
    return replace(
        complete,
        url=received.url,
        filename=complete.filename or received.filename,
        size=received.size,
        received=received.digests,
        type=complete.type or guess(complete.filename or received.filename, received.head),
    )


def enter(engine: Engine, whole: Submission, profile: Profile, *, who: str, why: str = "") -> Accepted:
    """Make the batch of a submission that is whole, or answer the one that its batchID has made before."""
    if whole.updates_nothing:  # what it is was only found out from the payload
        raise Unfit(NO_OBJECT)
    urgent = priority.first(1, profile.priority)
    whole = replace(whole, checked=True)
    new = New(
        "batch",
        {"submission": whole.document()},
        owner=whole.submitter or whole.owner,
        priority=urgent,
        request=whole.batch_id,
    )
    began = engine.store.now()  # what was made before this was made by an earlier request
    try:
        # Safe to repeat: a request makes one batch, however often it is asked.
        made = _twice(engine, new, who, why)
    except Exists:
        made = engine.store.requested("batch", whole.batch_id)  # another service has made it
    batch = engine.store.get(*made.ref)
    first = of_batch(batch)
    if other := ", ".join(_differences(first, read(whole.document()))):
        raise OtherBatch(
            f"The batchID {whole.batch_id} belongs to {batch.ref}, which differs in its {other}: give another batchID."
        )
    return Accepted(batch, first, repeated=batch.created < began)


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


def _without_user(url: str) -> str:
    """The URL as it may be shown: without a password that should not have been in it."""
    return names.shown(url.rpartition("@")[2])


def _twice(engine: Engine, new: New, who: str, why: str) -> Record:
    try:
        return engine.submit(new, who=who, why=why)
    except Unknown:
        return engine.submit(new, who=who, why=why)


def _differences(first: Submission, second: Submission) -> Iterator[str]:
    """In what they do not ask for the same, both as they are kept: of two uploads their bytes count, not where they
    lie.
    """
    if first.url != second.url and not (
        first.received and first.received.get("sha256") == second.received.get("sha256")
    ):
        yield "payload"
    yield from (name.replace("_", " ") for name in _OF_DEPOSIT if getattr(first, name) != getattr(second, name))
