"""Requests as ZooKeeper reads them: `Write`, a list of operations done all or not at all, and `Read`, many reads in
one round trip.

kazoo has no request for many reads (ZooKeeper 3.6 and newer do: 150,000 nodes a second against 7,000 one by one) and
builds each operation of a transaction from several Python objects, so both are written here, byte by byte, and handed
to kazoo's connection to be sent.

    create | delete | put | check -> Write -> [version | None, ...] or one Failure
    data | names                  -> Read  -> [Node | names | None, ...]

An operation says what it means ("status", "entry", "lock", ...), so that whoever sent it knows what a refusal of it is:
see commit.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

NO_NODE, BAD_VERSION, NODE_EXISTS, NOT_EMPTY = -101, -103, -110, -111
ANY = -1  # a version that fits every node

_CREATE, _DELETE, _GET, _SET, _NAMES, _CHECK = 1, 2, 4, 5, 8, 13
_INT = struct.Struct("!i")
_HEAD = struct.Struct("!iBi")  # kind of operation, whether this is the end, error
_STAT = struct.Struct("!qqqqiiiqiiq")
_END = _HEAD.pack(-1, 1, -1)
_HEADS = {code: _HEAD.pack(code, 0, -1) for code in (_CREATE, _DELETE, _GET, _SET, _NAMES, _CHECK)}
# Merritt's nodes are open to all
_OPEN_ACL = _INT.pack(1) + _INT.pack(31) + _INT.pack(5) + b"world" + _INT.pack(6) + b"anyone"
_LASTING, _EPHEMERAL = _OPEN_ACL + _INT.pack(0), _OPEN_ACL + _INT.pack(1)


class Op(NamedTuple):
    """One operation of a Write."""

    code: int
    path: str
    data: bytes
    number: int  # the version it expects; for a create: 1 if the node goes with the session
    means: str  # what it stands for, and so what its refusal is

    @property
    def creates(self) -> bool:
        return self.code == _CREATE

    @property
    def deletes(self) -> bool:
        return self.code == _DELETE


def create(path: str, data: bytes = b"", means: str = "", *, ephemeral: bool = False) -> Op:
    return Op(_CREATE, path, data, 1 if ephemeral else 0, means)


def delete(path: str, means: str = "", version: int = ANY) -> Op:
    return Op(_DELETE, path, b"", version, means)


def put(path: str, data: bytes, means: str = "", version: int = ANY) -> Op:
    return Op(_SET, path, data, version, means)


def check(path: str, means: str = "", version: int = ANY) -> Op:
    """The node is there, and at that version if one is given."""
    return Op(_CHECK, path, b"", version, means)


def absent(path: str, means: str) -> tuple[Op, Op]:
    """The node is not there: made and taken away again in the same transaction."""
    return create(path, b"", means), delete(path, means)


Ask = tuple[int, str]  # one reading of a Read: what, and of which node


def data(path: str) -> Ask:
    return _GET, path


def names(path: str) -> Ask:
    return _NAMES, path


class Node(NamedTuple):
    """A node's data and its stat, in the server's order. Null and empty data are the same: Ruby writes one, Java the
    other.
    """

    data: bytes
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    length: int
    children: int
    pzxid: int


_new = tuple.__new__  # twice as fast as Node(...), and there are thousands


class Failure(NamedTuple):
    """The operation that was refused, counted from 0. None of the transaction was written."""

    place: int
    code: int


class Write:
    """A transaction. `sent` is False until its bytes go to the socket: until then nothing can have been written."""

    type = 14
    watcher = None

    def __init__(self, root: str, ops: Sequence[Op]) -> None:
        self.root = root.encode()
        self.ops = ops
        self.sent = False

    def serialize(self) -> bytes:
        self.sent = True
        root = self.root
        parts: list[bytes] = []
        for code, path, body, number, _ in self.ops:
            where = root + path.encode() or b"/"
            parts += (_HEADS[code], _INT.pack(len(where)), where)
            if code == _SET:
                parts += (_INT.pack(len(body)), body, _INT.pack(number))
            elif code == _CREATE:
                parts += (_INT.pack(len(body)), body, _EPHEMERAL if number else _LASTING)
            else:
                parts.append(_INT.pack(number))
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[int | Failure | None]:
        """The new version of each node that was put, None for other operations; or one Failure alone."""
        results: list[int | Failure | None] = []
        while True:
            code, done, _ = _HEAD.unpack_from(buffer, offset)
            offset += _HEAD.size
            if done:
                return results
            if code == _SET:
                results.append(_STAT.unpack_from(buffer, offset)[4])
                offset += _STAT.size
            elif code == _CREATE:
                offset += _INT.size + max(0, _INT.unpack_from(buffer, offset)[0])
                results.append(None)
            elif code == -1:
                error = _INT.unpack_from(buffer, offset)[0]
                offset += _INT.size
                if error:  # 0 stands for the operations before the refused one, which were rolled back
                    return [Failure(len(results), error)]
                results.append(None)
            else:
                results.append(None)


class Read:
    """Many readings in one round trip, each of the tree as it is when the server comes to it: no snapshot."""

    type = 22
    watcher = None

    def __init__(self, root: str, asks: Sequence[Ask]) -> None:
        self.root = root.encode()
        self.asks = asks
        self.sent = False

    def serialize(self) -> bytes:
        self.sent = True
        root = self.root
        parts: list[bytes] = []
        for code, path in self.asks:
            where = root + path.encode() or b"/"
            parts += (_HEADS[code], _INT.pack(len(where)), where, b"\0")
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[Node | list[str] | Failure | None]:
        """A Node, a list of names, or None where there is no such node; or one Failure alone when one may not be
        read.
        """
        results: list[Node | list[str] | Failure | None] = []
        while True:
            code, done, _ = _HEAD.unpack_from(buffer, offset)
            offset += _HEAD.size
            if done:
                return results
            if code == _GET:
                length = _INT.unpack_from(buffer, offset)[0]
                offset += _INT.size
                body = b""
                if length > 0:
                    body = bytes(buffer[offset : offset + length])
                    offset += length
                results.append(_new(Node, (body, *_STAT.unpack_from(buffer, offset))))
                offset += _STAT.size
            elif code == _NAMES:
                count = _INT.unpack_from(buffer, offset)[0]
                offset += _INT.size
                found = []
                for _ in range(count):
                    length = _INT.unpack_from(buffer, offset)[0]
                    offset += _INT.size
                    found.append(buffer[offset : offset + length].decode())
                    offset += length
                results.append(found)
            else:
                error = _INT.unpack_from(buffer, offset)[0]
                offset += _INT.size
                if error != NO_NODE:
                    return [Failure(len(results), error)]
                results.append(None)
