"""What is recorded of a file: enough to restore it exactly, and to know that it is still the same one.

    FileEntry      one file, directory or link of a file set
    FileSet        the folder that all paths of a set are relative to
    FileFailure    a path and a sentence: what could not be listed, locked, packed, restored or removed

Names are bytes. In memory a path is a string as `os.fsdecode` makes it, in which a byte that is not UTF-8 is a character
from U+DC80 to U+DCFF; `os.fsencode` gives the bytes back. Such a string is not JSON, so entries are stored by
`encode_entries` and `decode_entries`, which keep those names in base64.

The entries of a set come in one order everywhere: a directory, then what is in it that is no directory, in the order of
names, then each of its directories with all that is in it. So what belongs to a directory is in one piece.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias

import msgspec

from waybill.manifests import ManifestEntry, ManifestError
from waybill.manifests.record_lists import RecordList
from waybill.objects import Objects

EntryKind: TypeAlias = Literal["file", "directory", "symlink", "hardlink"]


class FileEntry(msgspec.Struct, frozen=True, array_like=True):
    """One file, directory or link, as it was found. Later steps fill in `ctime_ns`, `archive`, `offset` and `sha256`."""

    path: str  # relative to the folder of the set; "." is that folder itself
    kind: EntryKind
    mode: int  # permissions with setuid, setgid and sticky, as they were before the lock
    uid: int  # before the lock
    gid: int
    size: int  # of the content of a file; otherwise 0
    mtime_ns: int
    device: int
    inode: int
    ctime_ns: int  # as found; in the entries that the lock returns, after the lock
    target: str = ""  # what a symbolic link holds; of a further hard link, the path of the entry with the content
    data: tuple[tuple[int, int], ...] | None = None  # of a sparse file: start and length of the pieces that hold data
    xattrs: dict[str, bytes] | None = None  # extended attributes and ACLs, in the form in which Linux keeps them
    sha256: str = ""  # of the content of a file, when it was packed
    archive: int = 0  # the number of its archive, from 1
    offset: int = 0  # where its headers begin in that archive
    raw_path: bytes | None = None  # only in a stored line, and then in place of `path`
    raw_target: bytes | None = None

    @property
    def stored_size(self) -> int:
        """The bytes of content that an archive holds of it: without holes."""
        return self.size if self.data is None else sum(length for _, length in self.data)


class FileFailure(msgspec.Struct, frozen=True):
    """A path, made printable, and a sentence that says what is wrong with it."""

    path: str
    reason: str
    is_remark: bool = False  # the file is there, without what the settings do not restore


ReportFailure: TypeAlias = Callable[[FileFailure], None]


class FileSet(msgspec.Struct, frozen=True):
    """The folder that all paths of a set are relative to, found once and from then on recognised by device and inode."""

    folder_bytes: bytes  # absolute, without links
    device: int
    inode: int

    @property
    def folder(self) -> str:
        return os.fsdecode(self.folder_bytes)


def to_printable(path: str) -> str:
    """The path as text that can be shown and stored: what is not UTF-8, or moves the cursor, is escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


_encode_lines = msgspec.json.Encoder().encode_lines
_decode_lines = msgspec.json.Decoder(FileEntry).decode_lines
_BLOCK_ENTRIES = 1000
_MAX_LINE_BYTES = 8 * 1024 * 1024


def encode_entries(entries: Sequence[FileEntry]) -> bytes:
    """Return the entries as lines."""
    try:
        return _encode_lines(entries)
    except UnicodeEncodeError:
        return _encode_lines([_with_raw_names(entry) for entry in entries])


def decode_entries(lines: bytes) -> list[FileEntry]:
    """Return the entries of complete lines."""
    try:
        entries = _decode_lines(lines)
    except msgspec.MsgspecError as error:
        raise ManifestError(f"A list of files is damaged: {error}.") from None
    return [entry if entry.path and entry.raw_target is None else _without_raw_names(entry) for entry in entries]


def _with_raw_names(entry: FileEntry) -> FileEntry:
    changes: dict[str, Any] = {}
    for name in ("path", "target"):
        try:
            getattr(entry, name).encode()
        except UnicodeEncodeError:
            changes[name] = ""
            changes[f"raw_{name}"] = os.fsencode(getattr(entry, name))
    return msgspec.structs.replace(entry, **changes) if changes else entry


def _without_raw_names(entry: FileEntry) -> FileEntry:
    changes: dict[str, Any] = {}
    if entry.raw_path is not None:
        changes = {"path": os.fsdecode(entry.raw_path), "raw_path": None}
    if entry.raw_target is not None:
        changes |= {"target": os.fsdecode(entry.raw_target), "raw_target": None}
    if not (entry.path or changes.get("path")):
        raise ManifestError("A list of files is damaged: an entry has no path.")
    return msgspec.structs.replace(entry, **changes)


def write_entry_list(objects: Objects, name: str, entries: Iterable[FileEntry]) -> RecordList:
    """Store entries in the object `name`, streaming; return what a record's document must hold to read them again.

    As for other lists of a record, the name must contain the claim version: a second run writes another object.
    """
    count, remaining = 0, iter(entries)

    def encode_blocks() -> Iterator[bytes]:
        nonlocal count
        while block := list(islice(remaining, _BLOCK_ENTRIES)):
            count += len(block)
            yield encode_entries(block)

    info = objects.put(name, encode_blocks())  # safe to repeat: no other run uses this name
    return RecordList(count=count, list=name, sha256=info.sha256)


def read_entry_list(objects: Objects, written: RecordList) -> Iterator[FileEntry]:
    """Yield the entries in order. Raises ManifestError, at the latest after the last one, if the list is not what was
    written: what must not be done for half a list is done after its end.
    """
    digest, count, rest = hashlib.sha256(), 0, b""
    with objects.get(written.list) as body:
        for chunk in body:
            digest.update(chunk)
            end = chunk.rfind(b"\n") + 1
            if not end:
                rest += chunk
                if len(rest) > _MAX_LINE_BYTES:
                    break
                continue
            entries = decode_entries(rest + chunk[:end])
            rest = chunk[end:]
            count += len(entries)
            yield from entries
    if rest or count != written.count or digest.hexdigest() != written.sha256:
        raise ManifestError(f"The list {written.list} is damaged: it is not the one that was written.")


_EXTRA_FIELDS = ("kind", "mode", "uid", "gid", "mtime_ns", "archive", "offset")


def to_manifest_entry(entry: FileEntry) -> ManifestEntry:
    """The line of a loose manifest: of the catalogue file that every container holds, which outlives this server."""
    extra: dict[str, Any] = {name: getattr(entry, name) for name in _EXTRA_FIELDS}
    if entry.target:
        extra["target_base64"] = _to_base64(os.fsencode(entry.target))
    if entry.data is not None:
        extra["data"] = [list(piece) for piece in entry.data]
    if entry.xattrs:
        extra["xattrs"] = {
            os.fsencode(name).decode("utf-8", "backslashreplace"): _to_base64(value)
            for name, value in entry.xattrs.items()
        }
    return ManifestEntry(entry.path, entry.size, entry.sha256, extra)


def from_manifest_entry(line: ManifestEntry) -> FileEntry:
    """The entry of such a line. It has no device, inode and ctime: it can be restored, and not compared with a file."""
    fields = dict(line.extra)
    try:
        target = os.fsdecode(base64.b64decode(fields.pop("target_base64", ""), validate=True))
        known = {name: fields.pop(name) for name in _EXTRA_FIELDS}
        entry = FileEntry(
            path=line.uri, size=line.size, sha256=line.sha256, target=target, device=0, inode=0, ctime_ns=0, **known
        )
        data, xattrs = fields.pop("data", None), fields.pop("xattrs", None)
        # checked as a stored line is checked; names that are not UTF-8 pass as raw ones
        (checked,) = decode_entries(encode_entries([entry]))
        return msgspec.structs.replace(
            checked,
            data=None if data is None else msgspec.convert(data, tuple[tuple[int, int], ...]),
            xattrs=None if xattrs is None else msgspec.convert(xattrs, dict[str, bytes]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise ManifestError(f"The line of {to_printable(line.uri)} in a catalogue is wrong: {error!r}.") from None


def _to_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
