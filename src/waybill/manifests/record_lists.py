"""Lists of typed rows that belong to a record: in its document while they are few, in an object otherwise.

    documents = {"files": record_lists.write_list(ctx.objects, f"lists/{record.id}/{ctx.claim_version}/files", rows)}
    for row in record_lists.read_list(ctx.objects, job.documents["files"], FileRow): ...

`write_list` returns the value to put into the record's document: {"count": 2, "rows": [...]} for a short list, or
{"count": 9000, "list": name, "sha256": "..."} for one that is stored as JSON lines in the object of that name. A row is
anything msgspec can encode. The name must contain the claim version: a second run of the step writes another object,
and the commit decides which of the two counts.

Unlike a manifest, a list has no header and no totals of its own: its digest is in the record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from waybill.manifests.lines import ManifestError
from waybill.objects import Objects

MAX_INLINE_BYTES = 4096  # of rows in a document
_MAX_ROW_BYTES = 1024 * 1024

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


def write_list(objects: Objects, name: str, rows: Iterable[Any]) -> dict[str, Any]:
    """Store the rows and return what the record's document must contain. Iterates once, in bounded memory."""
    lines: list[bytes] = []
    size, remaining = 0, iter(rows)
    for row in remaining:
        lines.append(_encode(row))
        size += len(lines[-1])
        if size > MAX_INLINE_BYTES:
            return _write_object(objects, name, lines, remaining)
    return {"count": len(lines), "rows": [msgspec.Raw(line) for line in lines]}


def _write_object(objects: Objects, name: str, first: list[bytes], rest: Iterator[Any]) -> dict[str, Any]:
    count = 0

    def encode_lines() -> Iterator[bytes]:
        nonlocal count
        for line in first:
            count += 1
            yield line + b"\n"
        for row in rest:
            count += 1
            yield _encode(row) + b"\n"

    info = objects.put(name, encode_lines())  # safe to repeat: no other run uses this name
    return {"count": count, "list": name, "sha256": info.sha256}


def read_list(objects: Objects, document: Mapping[str, Any], row_type: type[T]) -> Iterator[T]:
    """Yield the rows in order. Raises ManifestError, at the latest after the last row, if they are not those that were
    written.
    """
    if "list" not in document:
        for row in document.get("rows", ()):
            # encoded if it comes from `write_list`, plain values if it comes from the record
            yield (
                msgspec.json.decode(row, type=row_type)
                if isinstance(row, msgspec.Raw)
                else msgspec.convert(row, row_type)
            )
        return
    decode = msgspec.json.Decoder(row_type).decode
    digest, count, rest = hashlib.sha256(), 0, b""
    with objects.get(document["list"]) as body:
        for chunk in body:
            digest.update(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                count += 1
                yield decode(line)
            if len(rest) > _MAX_ROW_BYTES:
                break
    if rest or count != document["count"] or digest.hexdigest() != document["sha256"]:
        raise ManifestError(f"The list {document['list']} is damaged: it is not the one that was written.")
