"""Streaming of manifests: entries into an object and out of it again, in bounded memory, checked on the way.

A Writer turns entries into bytes that `put` pulls; a Reader turns the portions of a body into lists of entries, each
list checked before it is handed out, and at the end compares totals and digests with what the last line states.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from waybill.manifests.lines import (
    LONGEST_LINE,
    Entry,
    Header,
    ManifestError,
    Totals,
    decode_entries,
    decode_header,
    decode_totals,
    encode_entries,
    encode_header,
    encode_totals,
)
from waybill.objects.protocol import ObjectInfo, Objects

_BATCH = 1_000
_LAST = b'{"waybill":'  # how the last line begins, and no entry


@dataclass(frozen=True, slots=True)
class Written:
    """A manifest that was written: its totals, and the object that it is."""

    totals: Totals
    info: ObjectInfo


def write(
    objects: Objects,
    name: str,
    entries: Iterable[Entry],
    *,
    ordered: bool = False,
    about: Mapping[str, Any] | None = None,
    if_absent: bool = False,
) -> Written:
    """Stream the entries into an object. `ordered` promises (and checks) that the uris rise; `about` is for people.

    Whatever `entries` raises passes, and nothing is stored. A name that holds the attempt needs no `if_absent`.
    """
    writer = Writer(Header(ordered, dict(about or {})))
    info = objects.put(name, writer.portions(entries), if_absent=if_absent)
    return Written(writer.totals, info)


def read(objects: Objects, name: str) -> Reader:
    """Stream the entries out again. A context manager; iterate it to the end to know that the manifest is whole."""
    body = objects.get(name)
    try:
        return Reader(body, body.close)
    except BaseException:
        body.close()
        raise


def verify(objects: Objects, name: str) -> Totals:
    """Read the whole manifest and check it; its totals."""
    with read(objects, name) as reader:
        for _ in reader.blocks():
            pass
        return reader.totals


def glance(objects: Objects, name: str) -> Totals:
    """The totals as the last line states them, without reading the rest: for a page to show, not to decide by."""
    info = objects.head(name)
    with objects.get(name, start=max(0, info.size - 1000)) as body:
        end = body.read()
    return decode_totals(end[end.rfind(b"\n", 0, -1) + 1 :], 0)


class Writer:
    """Entries in, bytes out; `totals` are those of what has gone so far."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._first = encode_header(header)
        self._digest = hashlib.sha256()
        self._count = 0
        self._bytes = 0
        self._uri = ""

    @property
    def totals(self) -> Totals:
        return Totals(self._count, self._bytes, self._digest.hexdigest(), hashlib.sha256(self._first).hexdigest())

    def portions(self, entries: Iterable[Entry]) -> Iterator[bytes]:
        yield self._first
        remaining = iter(entries)
        while batch := list(itertools.islice(remaining, _BATCH)):
            lines = encode_entries(batch, self._count + 2)
            if self._header.ordered:
                self._uri = check_order(batch, self._uri, self._count + 2)
            self._digest.update(lines)
            self._count += len(batch)
            self._bytes += sum(entry.size for entry in batch)
            if self._bytes >= 2**63:
                raise ManifestError(self._count + 1, "cannot be written: all sizes together do not fit into 64 bits.")
            yield lines
        yield encode_totals(self.totals)


class Reader:
    """Bytes in, entries out. The first line is read at once; `totals` are there when the last one was."""

    def __init__(self, portions: Iterable[bytes], close: Callable[[], None] = lambda: None) -> None:
        self._blocks = _whole_lines(portions)
        self._close = close
        first, _, self._rest = next(self._blocks, b"").partition(b"\n")
        if not first and not self._rest:
            raise ManifestError(1, "is missing: the file is empty.")
        self.header = decode_header(first + b"\n")
        self._first = hashlib.sha256(first + b"\n").hexdigest()
        self._totals: Totals | None = None

    @property
    def totals(self) -> Totals:
        if self._totals is None:
            raise ManifestError(0, "was not read yet: its totals are not known.")
        return self._totals

    def __iter__(self) -> Iterator[Entry]:
        for block in self.blocks():
            yield from block

    def blocks(self) -> Iterator[list[Entry]]:
        """The entries, some thousand at a time, each list checked before it is handed out."""
        digest, line, total, uri = hashlib.sha256(), 2, 0, ""
        for block in itertools.chain([self._rest] if self._rest else [], self._blocks):
            lines, last = block, b""
            found = block.find(b"\n" + _LAST)
            if block.startswith(_LAST):
                lines, last = b"", block
            elif found >= 0:
                lines, last = block[: found + 1], block[found + 1 :]
            if lines:
                entries = decode_entries(lines, line)
                if self.header.ordered:
                    uri = check_order(entries, uri, line)
                digest.update(lines)
                line += len(entries)
                total += sum(entry.size for entry in entries)
                yield entries
            if last:
                self._finish(last, line, Totals(line - 2, total, digest.hexdigest(), self._first))
                return
        raise ManifestError(line, "is missing: the file was cut before its last line.")

    def _finish(self, last: bytes, number: int, seen: Totals) -> None:
        text, _, more = last.partition(b"\n")
        stated = decode_totals(text + b"\n", number)
        if more or next(self._blocks, b""):
            raise ManifestError(number + 1, "follows the last line.")
        for name in ("count", "bytes", "sha256", "header"):
            if getattr(stated, name) != getattr(seen, name):
                raise ManifestError(
                    number, f"says {name} {getattr(stated, name)}, and the lines before it have {getattr(seen, name)}."
                )
        self._totals = stated

    def close(self) -> None:
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_order(entries: list[Entry], before: str, first: int) -> str:
    """The last uri, if they rise strictly."""
    for number, entry in enumerate(entries, start=first):
        if entry.uri <= before:
            what = "repeats the uri of the line before" if entry.uri == before else "is out of order"
            raise ManifestError(number, f"{what}, and the uris were promised to rise.")
        before = entry.uri
    return before


def _whole_lines(portions: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes in blocks that end with the end of a line."""
    held, line = b"", 1
    for portion in portions:
        end = portion.rfind(b"\n") + 1
        if not end:
            held += portion
        else:
            block, held = held + portion[:end], portion[end:]
            if block.find(b"\n") >= LONGEST_LINE:
                raise ManifestError(line, f"is longer than {LONGEST_LINE} bytes.")
            line += block.count(b"\n")
            yield block
        if len(held) >= LONGEST_LINE:
            raise ManifestError(line, f"is longer than {LONGEST_LINE} bytes.")
    if held:
        raise ManifestError(line, "is cut: the file does not end with the end of a line.")
