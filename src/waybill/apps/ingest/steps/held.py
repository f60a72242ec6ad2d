"""Held: the files of a job as they were fetched, and what a name must be so that every later state can keep the file under it.

    docs = {"downloaded": {**lists.keep(ctx.objects, name, rows of Held), "attempt": ctx.attempt, "bytes": total}}
    for file in held.each(ctx.objects, job.docs["downloaded"]): ...

Paths are relative to the job's folder: `producer/a.txt`. Whoever reads a file later compares it with its size and SHA-256: the folder is
no safe place, only a quick one.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from waybill.apps.ingest import lists, names
from waybill.objects import Objects

PRODUCER = "producer"  # the folder of what the depositor sent

_TYPES = mimetypes.MimeTypes(filenames=())  # the same on every machine: nothing is read from /etc
_UNWRITABLE = re.compile("[|\x00-\x1f\x7f]")


class Held(msgspec.Struct, frozen=True):
    path: str
    size: int
    sha256: str
    mime: str = ""


def each(objects: Objects, document: Mapping[str, Any]) -> Iterator[Held]:
    return lists.each(objects, document, Held)


def held(name: str, size: int, sha256: str, mime: str = "") -> Held:
    """The file of this name below producer/; its type is guessed from the name where nobody said it."""
    return Held(f"{PRODUCER}/{name}", size, sha256, mime or _TYPES.guess_type(name, strict=False)[0] or "application/octet-stream")


def fault(name: str) -> str | None:
    """Why a file of this name cannot be stored, as a sentence; None if it can.

    More than a disk asks for: storage manifests part their columns by `|`, and cut spaces off.
    """
    wrong = names.fault(name) or names.fault(f"{PRODUCER}/{name}")
    if wrong is None and (bad := _UNWRITABLE.search(name)):
        wrong = f"{names.shown(name)} cannot be stored: a manifest cannot hold {bad[0]!a} in a name. Rename the file."
    if wrong is None and name != name.strip():
        wrong = f"{names.shown(name)} cannot be stored: a manifest cannot hold a name that begins or ends with a space. Rename the file."
    return wrong
