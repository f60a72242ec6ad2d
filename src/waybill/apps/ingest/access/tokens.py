"""Tokens: the secret in the URL of an assembly, and how its record and its files are found.

    token     43 characters, 256 random bits. Whoever has it may fetch the assembly until it expires, without showing anything else.
    place     ingest/access/<SHA-256 of the token>/ holds everything of the assembly: names of objects are seen by more people than tokens
    pointer   <place>/record.json says which record it is

The token stands in the record's document `token`, as the services that share the tree expect; pages and API show that
document without it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from waybill.apps.ingest.outfit import Outfit
from waybill.objects import NotFound as NoObject
from waybill.objects import Objects
from waybill.record import NotFound, Record, Ref, Store

ROOT = "ingest/access"
KINDS = ("access-small", "access-large")
_SHAPE = re.compile(r"[A-Za-z0-9_-]{43}")
_PLACE = re.compile(r"[0-9a-f]{64}")


class _Pointer(msgspec.Struct, frozen=True):
    kind: str
    id: str


def new_token(draw: Callable[[int], bytes]) -> str:
    return base64.urlsafe_b64encode(draw(32)).rstrip(b"=").decode()


def place_of(token: str) -> str:
    return f"{ROOT}/{hashlib.sha256(token.encode()).hexdigest()}"


def token_of(record: Record) -> str:
    """The token of one of our assemblies; empty if what the record says is no token of ours."""
    said = record.docs.get("token")
    token = said.get("token") if isinstance(said, dict) else None
    return token if isinstance(token, str) and _SHAPE.fullmatch(token) else ""


def point(objects: Objects, record: Record) -> None:
    """Let the token lead to the record. Safe to repeat: it is the same each time."""
    token = token_of(record)
    objects.put(f"{place_of(token)}/record.json", msgspec.json.encode(_Pointer(record.kind, record.id)))


def pointed(objects: Objects, place: str) -> Ref | None:
    """The record to which everything at a place belongs; None if nothing says so."""
    try:
        with objects.get(f"{place}/record.json", end=10_000) as body:
            found = msgspec.json.decode(body.read(), type=_Pointer)
    except (NoObject, msgspec.DecodeError):
        return None
    return Ref(found.kind, found.id) if found.kind in KINDS else None


def well_formed(token: str) -> bool:
    """Whether it may have been a token: nobody can tell any more, once its assembly is gone."""
    return _SHAPE.fullmatch(token) is not None


def find(store: Store, objects: Objects, token: str) -> Record | None:
    """The assembly of a token; None if there is none, or no longer."""
    if not _SHAPE.fullmatch(token):
        return None
    ref = pointed(objects, place_of(token))
    if ref is None:
        return None
    try:
        record = store.get(*ref)
    except NotFound:
        return None
    return record if hmac.compare_digest(token_of(record), token) else None


def is_place(name: str) -> bool:
    """Whether a name directly below ROOT can be the place of an assembly."""
    return _PLACE.fullmatch(name) is not None


def remove_all(objects: Objects, place: str) -> int:
    """Remove everything of an assembly, the pointer last; how much. Safe to repeat."""
    pointer, count = f"{place}/record.json", 0
    for info in objects.list(place):
        if info.name != pointer:
            count += objects.delete(info.name)
    return count + objects.delete(pointer)


def document(token: str, url: str, size: int, status: str, ready: float) -> dict[str, Any]:
    """As the services that share the tree write and read it. Our storage has no numbers of nodes: 0."""
    return {
        "token": token,
        "delivery-node": 0,
        "cloud-content-byte": size,
        "status": status,
        "url": url,
        "anticipated-availability-time": rfc3339(ready),
    }


def url_of(outfit: Outfit, token: str) -> str:
    return outfit.address("access", token)


def rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
