"""Lists: rows of any number that belong to a record, beside it in the objects, or in its document while they are few.

    docs = {"files": lists.keep(ctx.objects, f"ingest/lists/{job.id}/{ctx.attempt}/files", rows)}
    for row in lists.each(ctx.objects, job.docs["files"], Row): ...

The document is {"count": 2, "rows": [...]}, or {"count": 9000, "list": name, "sha256": "..."} for an object of JSON
lines. The name must hold the attempt: what a second run writes is another list, and the commit says which of them
counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from waybill.objects import Objects

FEW = 4096  # bytes of rows that a document may hold
_LONGEST = 1024 * 1024  # bytes of one row

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class BadList(Exception):
    """The list is not what was kept."""


def keep(objects: Objects, name: str, rows: Iterable[Any]) -> dict[str, Any]:
    """Keep the rows; what the record's document must say of them. Iterated once, in bounded memory."""
    lines, size, left = [], 0, iter(rows)
    for row in left:
        lines.append(_encode(row))
        size += len(lines[-1])
        if size > FEW:
            return _beside(objects, name, lines, left)
    return {"count": len(lines), "rows": [msgspec.Raw(line) for line in lines]}


def _beside(objects: Objects, name: str, first: list[bytes], rest: Iterator[Any]) -> dict[str, Any]:
    count = 0

    def written() -> Iterator[bytes]:
        nonlocal count
        for line in first:
            count += 1
            yield line + b"\n"
        for row in rest:
            count += 1
            yield _encode(row) + b"\n"

    info = objects.put(name, written())  # safe to repeat: the name is this attempt's own
    return {"count": count, "list": name, "sha256": info.sha256}


def each(objects: Objects, document: Mapping[str, Any], type: type[T]) -> Iterator[T]:
    """The rows in their order; BadList, at the end at the latest, if they are not those that were kept."""
    if "list" not in document:
        for row in document.get("rows", ()):
            # As `keep` answered it, or as it was read from the record.
            yield msgspec.json.decode(row, type=type) if isinstance(row, msgspec.Raw) else msgspec.convert(row, type)
        return
    decode = msgspec.json.Decoder(type).decode
    digest, count, rest = hashlib.sha256(), 0, b""
    with objects.get(document["list"]) as body:
        for portion in body:
            digest.update(portion)
            *lines, rest = (rest + portion).split(b"\n")
            for line in lines:
                count += 1
                yield decode(line)
            if len(rest) > _LONGEST:
                break
    if rest or count != document["count"] or digest.hexdigest() != document["sha256"]:
        raise BadList(f"The list {document['list']} is damaged: it is not the one that was kept.")
