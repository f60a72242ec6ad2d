"""A deposit on its way in: what a depositor says, checked before anything is taken, and completed from the profile.

`ready` answers the submission as it will be kept, but for its payload: who owns it, in which collections it lies, its
batchID, its time. It looks only at what was said and at the profile; the payload itself is looked at by the batch and
its jobs.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec.structs import replace

from waybill.apps.ingest import names
from waybill.apps.ingest.noid import fault_of_ark
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.profile import Profile, is_mail_address
from waybill.apps.ingest.service.collections import mnemonics_of
from waybill.apps.ingest.service.profiles import usable_profile
from waybill.apps.ingest.service.receiving import fault_of_batch_id
from waybill.apps.ingest.service.refusals import Unfit
from waybill.apps.ingest.submission import LONGEST_LOCAL_ID, MOST_LOCAL_IDS, NO_OBJECT, Submission
from waybill.digests import UnknownDigest, promised
from waybill.engine import Engine

LONGEST = 4096  # characters of a title and its like
MOST_DELETIONS = 1000

_KEYS = uuid.UUID("5c9e4bb1-62a4-5d15-9a0c-6e7e9a4b2d11")  # the space of batchIDs made from a caller's key


def ready(engine: Engine, outfit: Outfit, said: Submission, *, who: str) -> tuple[Submission, Profile]:
    """The submission completed, and its profile; Unfit with all that is wrong, Missing when there is no such
    profile.
    """
    profile = usable_profile(engine, said.profile)
    wrong = list(faults(said))
    if wrong:
        raise Unfit(" ".join(wrong))
    complete = replace(
        said,
        batch_id=said.batch_id or new_batch_id(),
        job_id="",
        submitter=said.submitter or who,
        owner=profile.owner,
        collections=mnemonics_of(engine, outfit, profile),
        submitted=datetime.fromtimestamp(engine.store.now(), UTC).isoformat(timespec="seconds"),
        received={},
        digests_of_row={},
    )
    return complete, profile


def new_batch_id() -> str:
    return f"bid-{uuid.uuid4()}"


def batch_id_of(key: str, who: str) -> str:
    """The batchID for a key by which a caller repeats a request: always the same, and another one for everybody
    else.
    """
    return f"bid-{uuid.uuid5(_KEYS, f'{len(who)}:{who}{key}')}"


def faults(said: Submission) -> Iterator[str]:
    """What is wrong with what was said, each a sentence."""
    for what, text in (
        ("The creator", said.creator),
        ("The title", said.title),
        ("The date", said.date),
        ("The submitter", said.submitter),
        ("The resource type", said.datacite_type),
        ("notificationFormat", said.notification_format),
        ("responseForm", said.response_form),
        *((f"DC.{word}", text) for word, text in said.dc.items()),
    ):
        yield from _text(what, text)
    yield from _text("The note", said.note, lines=True)
    if said.primary_id and (fault := fault_of_ark(said.primary_id)):
        yield fault
    if len(said.local_ids) > MOST_LOCAL_IDS:
        yield f"There are {len(said.local_ids)} local ids; an object has at most {MOST_LOCAL_IDS}."
    for local in said.local_ids[:MOST_LOCAL_IDS]:
        yield from _text("A local id", local, longest=LONGEST_LOCAL_ID)
        if ";" in local:
            yield f"The local id {names.shown(local)} holds a semicolon, which stands between two of them: give each by itself."
    yield from _digest(said.digest_type, said.digest_value)
    for address in filter(None, re.split(r"[,;\s]+", said.notification)):
        if not is_mail_address(address):
            yield f"{names.shown(address)} is not a mail address."
    if said.size is not None and said.size < 0:
        yield "The size is negative: it is the number of bytes."
    if said.batch_id and (fault := fault_of_batch_id(said.batch_id)):
        yield fault
    yield from _deletions(said)
    if said.updates_nothing:
        yield NO_OBJECT
    if said.filename and (fault := names.fault(said.filename)):
        yield fault
    if said.filename and "/" in said.filename:
        yield f"{names.shown(said.filename)} is not the name of a file: it has a slash in it."


def _text(what: str, text: str, *, longest: int = LONGEST, lines: bool = False) -> Iterator[str]:
    if len(text) > longest:
        yield f"{what} has {len(text)} characters; at most {longest} are kept."
    elif not all(letter.isprintable() or letter == "\u00a0" or (lines and letter in "\n\t\r") for letter in text):
        yield f"{what} holds a control character or something else that cannot be printed."


def _deletions(said: Submission) -> Iterator[str]:
    if said.deletions and not said.update:
        yield "Only an update takes files away: send it as an update, or without a list of deletions."
    if len(said.deletions) > MOST_DELETIONS:
        yield f"{len(said.deletions)} files are to be deleted; more than {MOST_DELETIONS} are named by a file mrt-delete.txt in it."
    for name in said.deletions[:MOST_DELETIONS]:
        if fault := names.fault(name):
            yield fault


def _digest(type: str, value: str) -> Iterator[str]:
    if bool(type) != bool(value):
        yield f"The {'value' if type else 'type'} of the digest is missing: give digestType and digestValue, or neither."
    elif type:
        try:
            promised({type: value})
        except UnknownDigest as error:
            yield str(error)
