"""Lists of typed rows that belong to a record: in its document while they are few, in an object otherwise.

    files = record_lists.write_list(ctx.objects, f"lists/{record.id}/{ctx.claim_version}/files", rows).extend(FileList)
    for row in record_lists.read_list(ctx.objects, record.document(FileList), FileRow): ...

`write_list` returns a `RecordList`, to be put into a document or to be extended to the type of one:
{"count": 2, "rows": [...]} for a short list, or {"count": 9000, "list": name, "sha256": "..."} for one that is stored as
JSON lines in the object of that name. A row is anything msgspec can encode. The name must contain the claim version: a
second run of the step writes another object,
and the commit decides which of the two counts.

Unlike a manifest, a list has no header and no totals of its own: its digest is in the record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from waybill.manifests.lines import ManifestError
from waybill.objects import Objects
from waybill.record import DocumentStruct

MAX_INLINE_BYTES = 4096  # of rows in a document
_MAX_ROW_BYTES = 1024 * 1024

T = TypeVar("T")
L = TypeVar("L", bound="RecordList")
_encode = msgspec.json.Encoder().encode


class RecordList(DocumentStruct, frozen=True, kw_only=True):
    """A list in a document, or the base of one."""

    count: int
    rows: tuple[msgspec.Raw, ...] | msgspec.UnsetType = msgspec.UNSET
    list: str = ""  # the object that has the rows; "": they are here
    sha256: str | None = None  # of that object

    def extend(self, type: type[L], /, **fields: Any) -> L:
        """Return the same list as a type that is derived from this, with its other fields."""
        return type(count=self.count, rows=self.rows, list=self.list, sha256=self.sha256, **fields)


def write_list(objects: Objects, name: str, rows: Iterable[Any]) -> RecordList:
    """Store the rows and return what the record's document must contain. Iterates once, in bounded memory."""
    lines: list[bytes] = []
    size, remaining = 0, iter(rows)
    for row in remaining:
        lines.append(_encode(row))
        size += len(lines[-1])
        if size > MAX_INLINE_BYTES:
            return _write_object(objects, name, lines, remaining)
    return RecordList(count=len(lines), rows=tuple(msgspec.Raw(line) for line in lines))


def _write_object(objects: Objects, name: str, first: list[bytes], rest: Iterator[Any]) -> RecordList:
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
    return RecordList(count=count, list=name, sha256=info.sha256)


def read_list(objects: Objects, written: RecordList, row_type: type[T]) -> Iterator[T]:
    """Yield the rows in order. Raises ManifestError, at the latest after the last row, if they are not those that were
    written.
    """
    decode = msgspec.json.Decoder(row_type).decode
    if not written.list:
        yield from map(decode, written.rows or ())
        return
    digest, count, rest = hashlib.sha256(), 0, b""
    with objects.get(written.list) as body:
        for chunk in body:
            digest.update(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                count += 1
                yield decode(line)
            if len(rest) > _MAX_ROW_BYTES:
                break
    if rest or count != written.count or digest.hexdigest() != written.sha256:
        raise ManifestError(f"The list {written.list} is damaged: it is not the one that was written.")
