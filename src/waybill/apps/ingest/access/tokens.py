"""Tokens: the secret in the URL of an assembly, and how it leads to the record and the files.

    token     43 characters, 256 random bits. It is the only authentication needed to fetch the assembly until it expires.
    place     ingest/access/<SHA-256 of the token>/ holds all files of the assembly. Object names are seen by more people than tokens,
              so they contain only the digest.
    pointer   <place>/record.json names the record

The token is in the document `token` of the record, as the services that share the tree expect; pages and API do not
show it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable

import msgspec

from waybill.apps.ingest.documents import AssemblyToken
from waybill.apps.ingest.resources import IngestResources
from waybill.objects import ObjectNotFound as NoObject
from waybill.objects import Objects
from waybill.record import Record, RecordNotFound, Ref, Store

ROOT = "ingest/access"
KINDS = ("access-small", "access-large")
_TOKEN_PATTERN = re.compile(r"[A-Za-z0-9_-]{43}")
_PLACE_PATTERN = re.compile(r"[0-9a-f]{64}")


class _TokenPointer(msgspec.Struct, frozen=True):
    kind: str
    id: str


def generate_token(random_bytes: Callable[[int], bytes]) -> str:
    return base64.urlsafe_b64encode(random_bytes(32)).rstrip(b"=").decode()


def place_of(token: str) -> str:
    return f"{ROOT}/{hashlib.sha256(token.encode()).hexdigest()}"


def token_of(record: Record) -> str:
    """Return the token of one of our assemblies; empty if the record has none of ours."""
    document = record.find_document(AssemblyToken)
    return document.token if document is not None and _TOKEN_PATTERN.fullmatch(document.token) else ""


def write_pointer(objects: Objects, record: Record) -> None:
    """Write the pointer from the token to the record. Safe to repeat: the content is the same each time."""
    token = token_of(record)
    objects.put(f"{place_of(token)}/record.json", msgspec.json.encode(_TokenPointer(record.kind, record.id)))


def read_pointer(objects: Objects, place: str) -> Ref | None:
    """Return the record that the files at a place belong to; None if there is no pointer."""
    try:
        with objects.get(f"{place}/record.json", end=10_000) as body:
            pointer = msgspec.json.decode(body.read(), type=_TokenPointer)
    except (NoObject, msgspec.DecodeError):
        return None
    return Ref(pointer.kind, pointer.id) if pointer.kind in KINDS else None


def is_well_formed(token: str) -> bool:
    """Whether the text has the form of a token, existing or removed."""
    return _TOKEN_PATTERN.fullmatch(token) is not None


def find_assembly(store: Store, objects: Objects, token: str) -> Record | None:
    """Return the assembly of a token; None if there is none, or not any more."""
    if not _TOKEN_PATTERN.fullmatch(token):
        return None
    ref = read_pointer(objects, place_of(token))
    if ref is None:
        return None
    try:
        record = store.get(*ref)
    except RecordNotFound:
        return None
    return record if hmac.compare_digest(token_of(record), token) else None


def is_place(name: str) -> bool:
    """Whether a name directly below ROOT can be the place of an assembly."""
    return _PLACE_PATTERN.fullmatch(name) is not None


def remove_files(objects: Objects, place: str) -> int:
    """Remove all files of an assembly, the pointer last; return their number. Safe to repeat."""
    pointer, count = f"{place}/record.json", 0
    for info in objects.list(place):
        if info.name != pointer:
            count += objects.delete(info.name)
    return count + objects.delete(pointer)


def url_of(resources: IngestResources, token: str) -> str:
    return resources.api_url_of("access", token)
