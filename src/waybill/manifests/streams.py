"""Streams of manifests: entries into an object and out of it, in bounded memory, checked while they pass.

A ManifestWriter turns entries into bytes that `put` iterates; a ManifestReader turns the chunks of a body into lists of
entries, each checked before it is yielded, and at the end compares totals and digests with those of the last line.
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
    ManifestEntry,
    ManifestHeader,
    ManifestTotals,
    decode_entries,
    decode_header,
    decode_totals,
    encode_entries,
    encode_header,
    encode_totals,
    line_error,
)
from waybill.objects.protocol import ObjectInfo, Objects

_BLOCK_ENTRIES = 1_000
_LAST_LINE_PREFIX = b'{"waybill":'  # how the last line starts; no entry does


@dataclass(frozen=True, slots=True)
class WrittenManifest:
    """A manifest that was written: its totals and its object."""

    totals: ManifestTotals
    info: ObjectInfo


def write_manifest(
    objects: Objects,
    name: str,
    entries: Iterable[ManifestEntry],
    *,
    ordered: bool = False,
    about: Mapping[str, Any] | None = None,
    if_absent: bool = False,
    loose: bool = False,
) -> WrittenManifest:
    """Stream the entries into an object. `ordered` declares (and checks) that the uris are ascending; `about` is for
    people. `loose` declares that lines may lack a SHA-256, and that uris may hold bytes that are not UTF-8.

    An exception of `entries` passes through, and nothing is stored. A name that contains the claim version needs no
    `if_absent`.
    """
    writer = ManifestWriter(ManifestHeader(ordered, dict(about or {}), loose))
    info = objects.put(name, writer.iter_chunks(entries), if_absent=if_absent)
    return WrittenManifest(writer.totals, info)


def open_manifest(objects: Objects, name: str, *, loose: bool = False) -> ManifestReader:
    """Open a manifest for reading. A context manager; iterate it to the end to know that the manifest is complete.

    A manifest that declares itself loose is only read by who says that it can do without digests.
    """
    body = objects.get(name)
    try:
        return ManifestReader(body, body.close, loose=loose)
    except BaseException:
        body.close()
        raise


def verify_manifest(objects: Objects, name: str, *, loose: bool = False) -> ManifestTotals:
    """Read and check the whole manifest; return its totals."""
    with open_manifest(objects, name, loose=loose) as reader:
        for _ in reader.iter_blocks():
            pass
        return reader.totals


def read_stated_totals(objects: Objects, name: str) -> ManifestTotals:
    """Return the totals that the last line states, without reading the rest: for display, not for decisions."""
    info = objects.head(name)
    with objects.get(name, start=max(0, info.size - 1000)) as body:
        end = body.read()
    return decode_totals(end[end.rfind(b"\n", 0, -1) + 1 :], 0)


class ManifestWriter:
    """Entries in, bytes out; `totals` are those of the entries so far."""

    def __init__(self, header: ManifestHeader) -> None:
        self._header = header
        self._first_line = encode_header(header)
        self._digest = hashlib.sha256()
        self._count = 0
        self._bytes = 0
        self._uri = ""

    @property
    def totals(self) -> ManifestTotals:
        return ManifestTotals(
            self._count, self._bytes, self._digest.hexdigest(), hashlib.sha256(self._first_line).hexdigest()
        )

    def iter_chunks(self, entries: Iterable[ManifestEntry]) -> Iterator[bytes]:
        yield self._first_line
        remaining = iter(entries)
        while block := list(itertools.islice(remaining, _BLOCK_ENTRIES)):
            lines = encode_entries(block, self._count + 2, loose=self._header.loose)
            if self._header.ordered:
                self._uri = check_order(block, self._uri, self._count + 2)
            self._digest.update(lines)
            self._count += len(block)
            self._bytes += sum(entry.size for entry in block)
            if self._bytes >= 2**63:
                raise line_error(self._count + 1, "cannot be written: all sizes together do not fit into 64 bits.")
            yield lines
        yield encode_totals(self.totals)


class ManifestReader:
    """Bytes in, entries out. The first line is read at once; `totals` are available after the last one."""

    def __init__(
        self, chunks: Iterable[bytes], close: Callable[[], None] = lambda: None, *, loose: bool = False
    ) -> None:
        self._line_blocks = _split_at_lines(chunks)
        self._close = close
        first, _, self._rest = next(self._line_blocks, b"").partition(b"\n")
        if not first and not self._rest:
            raise line_error(1, "is missing: the file is empty.")
        self.header = decode_header(first + b"\n")
        if self.header.loose and not loose:
            raise line_error(1, "declares entries without digests, which cannot be used here.")
        self._first_line_sha256 = hashlib.sha256(first + b"\n").hexdigest()
        self._totals: ManifestTotals | None = None

    @property
    def totals(self) -> ManifestTotals:
        if self._totals is None:
            raise line_error(0, "was not read yet: the totals are not known.")
        return self._totals

    def __iter__(self) -> Iterator[ManifestEntry]:
        for block in self.iter_blocks():
            yield from block

    def iter_blocks(self) -> Iterator[list[ManifestEntry]]:
        """Yield the entries, some thousand at a time, each list checked before it is yielded."""
        digest, line, total, uri = hashlib.sha256(), 2, 0, ""
        for block in itertools.chain([self._rest] if self._rest else [], self._line_blocks):
            lines, last = block, b""
            found = block.find(b"\n" + _LAST_LINE_PREFIX)
            if block.startswith(_LAST_LINE_PREFIX):
                lines, last = b"", block
            elif found >= 0:
                lines, last = block[: found + 1], block[found + 1 :]
            if lines:
                entries = decode_entries(lines, line, loose=self.header.loose)
                if self.header.ordered:
                    uri = check_order(entries, uri, line)
                digest.update(lines)
                line += len(entries)
                total += sum(entry.size for entry in entries)
                yield entries
            if last:
                self._finish(last, line, ManifestTotals(line - 2, total, digest.hexdigest(), self._first_line_sha256))
                return
        raise line_error(line, "is missing: the file was cut before its last line.")

    def _finish(self, last: bytes, number: int, seen: ManifestTotals) -> None:
        text, _, more = last.partition(b"\n")
        stated = decode_totals(text + b"\n", number)
        if more or next(self._line_blocks, b""):
            raise line_error(number + 1, "follows the last line.")
        for name in ("count", "bytes", "sha256", "header"):
            if getattr(stated, name) != getattr(seen, name):
                raise line_error(
                    number,
                    f"states {name} {getattr(stated, name)}, and the lines before it have {getattr(seen, name)}.",
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


def check_order(entries: list[ManifestEntry], before: str, first: int) -> str:
    """Check that the uris are strictly ascending; return the last one."""
    for number, entry in enumerate(entries, start=first):
        if entry.uri <= before:
            problem = "repeats the uri of the line before" if entry.uri == before else "is out of order"
            raise line_error(number, f"{problem}, and the manifest declares ascending uris.")
        before = entry.uri
    return before


def _split_at_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes in blocks of complete lines."""
    rest, line = b"", 1
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if not end:
            rest += chunk
        else:
            block, rest = rest + chunk[:end], chunk[end:]
            if block.find(b"\n") >= LONGEST_LINE:
                raise line_error(line, f"is longer than {LONGEST_LINE} bytes.")
            line += block.count(b"\n")
            yield block
        if len(rest) >= LONGEST_LINE:
            raise line_error(line, f"is longer than {LONGEST_LINE} bytes.")
    if rest:
        raise line_error(line, "is cut: the file does not end with a newline.")
