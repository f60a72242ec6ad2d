"""The headers of an archive's members: POSIX pax, as GNU tar, bsdtar and Python read it.

A member is a ustar header, before it a pax header when something does not fit into the first (a name that is long or not
ASCII, nanoseconds, a large number, extended attributes, ACLs), and the content, in blocks of 512 bytes. A sparse file is
stored as GNU tar does it (format 1.0): a map of its pieces of data, and these.

tarfile writes the same, ten times slower: with a million small files the headers are the work.

    make_headers   what stands before the content, always the same for the same entry
    TAR_END        what ends an archive
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from zlib import adler32

from waybill.apps.archive.files.entries import FileEntry

BLOCK = 512
TAR_END = bytes(2 * BLOCK)
ACL_XATTRS = {"system.posix_acl_access": "SCHILY.acl.access", "system.posix_acl_default": "SCHILY.acl.default"}

_TYPES = {"file": b"0", "hardlink": b"1", "symlink": b"2", "directory": b"5"}
_MAX_OCTAL_7 = 0o7777777
_MAX_OCTAL_11 = 0o77777777777
_MAGIC = b"ustar\x0000" + bytes(64) + b"0000000\x000000000\x00" + bytes(167)  # owners' names stay empty: ids count
_ZEROS = bytes(BLOCK)
_ZEROS_482 = bytes(BLOCK - 30)  # after a record of 30 bytes: the mtime, if its seconds have ten digits
_TEN_DIGITS = 1_000_000_000
_FILE_TAIL = b"0" + bytes(100) + _MAGIC
_FILE_TAIL_SUM = sum(_FILE_TAIL)


def padding_of(size: int) -> bytes:
    """What fills the last block."""
    return _ZEROS[: -size % BLOCK]


def padded(size: int) -> int:
    return (size + BLOCK - 1) & -BLOCK


def content_size(entry: FileEntry) -> int:
    """The bytes after the headers, without padding; for a sparse file without its map, which `make_headers` includes."""
    return entry.stored_size if entry.kind == "file" else 0


def make_headers(entry: FileEntry) -> bytes:
    """Return all that stands before the content."""
    seconds, nanoseconds = divmod(entry.mtime_ns, 1_000_000_000)
    if (
        entry.kind == "file"
        and entry.data is None
        and not entry.xattrs
        and len(entry.path) <= 100
        and entry.path.isascii()
        and entry.size <= _MAX_OCTAL_11
        and entry.uid <= _MAX_OCTAL_7
        and entry.gid <= _MAX_OCTAL_7
        and _TEN_DIGITS <= seconds < 10 * _TEN_DIGITS
    ):
        return _make_plain_headers(entry, seconds, nanoseconds)
    return _make_any_headers(entry)


def _make_plain_headers(entry: FileEntry, seconds: int, nanoseconds: int) -> bytes:
    """The same as `_make_any_headers`, for nearly all files: nothing but the nanoseconds needs a pax header."""
    head = b"%b%b%011o\0%011o\0" % (
        entry.path.encode().ljust(100, b"\0"),
        _make_owner_fields(entry.mode, entry.uid, entry.gid),
        entry.size,
        seconds,
    )
    total = (adler32(head) & 0xFFFF) + _FILE_TAIL_SUM - 1 + 8 * 32
    if nanoseconds:
        return b"%b30 mtime=%d.%09d\n%b%b%06o\0 %b" % (
            _PAX_HEADER_30,
            seconds,
            nanoseconds,
            _ZEROS_482,
            head,
            total,
            _FILE_TAIL,
        )
    return b"%b%06o\0 %b" % (head, total, _FILE_TAIL)


@lru_cache(maxsize=1024)
def _make_owner_fields(mode: int, uid: int, gid: int) -> bytes:
    return b"%07o\0%07o\0%07o\0" % (mode, uid, gid)


def _make_any_headers(entry: FileEntry) -> bytes:
    name = os.fsencode(entry.path)
    if entry.kind == "directory":
        name += b"/"
    records: list[bytes] = []
    link = os.fsencode(entry.target)
    if not (name.isascii() and link.isascii()) and not _are_utf8(name, link):
        records.append(b"21 hdrcharset=BINARY\n")
    sparse_map = b""
    size = entry.size if entry.kind == "file" else 0
    if entry.data is not None:
        sparse_map = make_sparse_map(entry)
        size = len(sparse_map) + entry.stored_size
        records += (
            b"22 GNU.sparse.major=1\n",
            b"22 GNU.sparse.minor=0\n",
            _record(b"GNU.sparse.name", name),
            _record(b"GNU.sparse.realsize", b"%d" % entry.size),
        )
        short = b"GNUSparseFile.0/" + name.rpartition(b"/")[2][:80]
    else:
        short = name
        if len(name) > 100 or not name.isascii():
            records.append(_record(b"path", name))
            short = name[:100]
    if len(link) > 100 or not link.isascii():
        records.append(_record(b"linkpath", link))
        link = link[:100]
    if size > _MAX_OCTAL_11:
        records.append(_record(b"size", b"%d" % size))
    uid, gid = entry.uid, entry.gid
    if uid > _MAX_OCTAL_7:
        records.append(_record(b"uid", b"%d" % uid))
        uid = 0
    if gid > _MAX_OCTAL_7:
        records.append(_record(b"gid", b"%d" % gid))
        gid = 0
    seconds, nanoseconds = divmod(entry.mtime_ns, 1_000_000_000)
    if nanoseconds or not 0 <= seconds <= _MAX_OCTAL_11:
        records.append(_record(b"mtime", _decimal_of(entry.mtime_ns).encode()))
        seconds = min(max(seconds, 0), _MAX_OCTAL_11)
    if entry.xattrs:
        records += _xattr_records(entry.xattrs)
    header = _make_ustar(short, entry.mode, uid, gid, min(size, _MAX_OCTAL_11), seconds, _TYPES[entry.kind], link)
    if not records:
        return header + sparse_map
    pax = b"".join(records)
    return b"".join((_make_pax_header(len(pax)), pax, _ZEROS[: -len(pax) % BLOCK], header, sparse_map))


def make_sparse_map(entry: FileEntry) -> bytes:
    """The pieces of data of a sparse file, in whole blocks. A hole at the end is an empty piece there."""
    pieces = list(entry.data or ())
    if not pieces or sum(pieces[-1]) < entry.size:
        pieces.append((entry.size, 0))
    text = b"%d\n" % len(pieces) + b"".join(b"%d\n%d\n" % piece for piece in pieces)
    return text + padding_of(len(text))


def _make_ustar(name: bytes, mode: int, uid: int, gid: int, size: int, seconds: int, type: bytes, link: bytes) -> bytes:
    head = b"%b%07o\0%07o\0%07o\0%011o\0%011o\0" % (name.ljust(100, b"\0"), mode, uid, gid, size, seconds)
    tail = type + link.ljust(100, b"\0") + _MAGIC
    # the sum of all bytes, with eight spaces where it stands; adler32 adds bytes up, and neither part is too long for it
    total = (adler32(head) & 0xFFFF) + (adler32(tail) & 0xFFFF) - 2 + 8 * 32
    return b"%b%06o\0 %b" % (head, total, tail)


@lru_cache(maxsize=1024)
def _make_pax_header(size: int) -> bytes:
    return _make_ustar(b"PaxHeaders/waybill", 0o644, 0, 0, size, 0, b"x", b"")


_PAX_HEADER_30 = _make_pax_header(30)


def _record(name: bytes, value: bytes) -> bytes:
    """A record begins with its own length, which counts the digits of that length."""
    rest = len(name) + len(value) + 3
    length = rest + len(str(rest))
    if rest + len(str(length)) != length:
        length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, name, value)


def _decimal_of(nanoseconds: int) -> str:
    sign, value = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    return f"{sign}{value // 1_000_000_000}.{value % 1_000_000_000:09d}"


def _are_utf8(*names: bytes) -> bool:
    try:
        for name in names:
            name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _xattr_records(xattrs: dict[str, bytes]) -> list[bytes]:
    """Attributes as they are; ACLs also as the text that tar programs read."""
    records = []
    for name, value in xattrs.items():
        records.append(_record(b"SCHILY.xattr." + name.encode(), value))
        if name in ACL_XATTRS:
            records.append(_record(ACL_XATTRS[name].encode(), acl_to_text(value).encode()))
    return records


_ACL_TAGS = {1: "user:", 2: "user", 4: "group:", 8: "group", 16: "mask:", 32: "other:"}


def acl_to_text(value: bytes) -> str:
    """The short text form of an ACL, with numbers for names."""
    if len(value) < 4 or (len(value) - 4) % 8 or struct.unpack_from("<I", value)[0] != 2:
        raise ValueError("It has an ACL that cannot be read.")
    texts = []
    for tag, permissions, id in struct.iter_unpack("<HHI", value[4:]):
        if tag not in _ACL_TAGS:
            raise ValueError("It has an ACL that cannot be read.")
        letters = "".join(letter if permissions & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
        named = f":{id}" if tag in (2, 8) else ""
        texts.append(f"{_ACL_TAGS[tag]}{named}:{letters}")
    return ",".join(texts)
