"""Held: the files of a job as they were fetched.

    docs = {"downloaded": {**lists.keep(ctx.objects, name, rows of Held), "attempt": ctx.attempt, "bytes": total}}
    for file in held.each(ctx.objects, job.docs["downloaded"]): ...

Paths are relative to the job's folder: `producer/a.txt`. Whoever reads a file later compares it with its size and
SHA-256: the folder is no safe place, only a quick one.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from waybill.apps.ingest import lists
from waybill.apps.ingest.placing import PRODUCER
from waybill.objects import Objects

__all__ = ["PRODUCER", "Held", "each", "held"]

_TYPES = mimetypes.MimeTypes(filenames=())  # the same on every machine: nothing is read from /etc


class Held(msgspec.Struct, frozen=True):
    path: str
    size: int
    sha256: str
    mime: str = ""


def each(objects: Objects, document: Mapping[str, Any]) -> Iterator[Held]:
    return lists.each(objects, document, Held)


def held(name: str, size: int, sha256: str, mime: str = "") -> Held:
    """The file of this name below producer/; its type is guessed from the name where nobody said it."""
    return Held(
        f"{PRODUCER}/{name}",
        size,
        sha256,
        mime or _TYPES.guess_type(name, strict=False)[0] or "application/octet-stream",
    )
