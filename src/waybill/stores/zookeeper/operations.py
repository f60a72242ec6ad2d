"""Requests in ZooKeeper's wire format: `WriteTransaction`, a list of operations written all or nothing, and
`MultiRead`, many reads in one round trip.

kazoo has no request for many reads (ZooKeeper 3.6 and newer have: 150,000 nodes a second against 7,000 one by one) and
builds each operation of a transaction from several Python objects. So both requests are serialized here, byte by byte,
and kazoo's connection sends them.

    create | delete | put | check -> WriteTransaction -> [version | None, ...] or one OperationFailure
    read_data | list_names        -> MultiRead        -> [Znode | names | None, ...] or one OperationFailure

Each operation has a purpose ("status", "entry", "lock", ...), so that its sender knows what a refusal of it means: see
commit.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

NO_NODE, BAD_VERSION, NODE_EXISTS, NOT_EMPTY = -101, -103, -110, -111
ANY_VERSION = -1  # matches every version of a node

_CREATE, _DELETE, _GET, _SET, _NAMES, _CHECK = 1, 2, 4, 5, 8, 13
_INT = struct.Struct("!i")
_HEAD = struct.Struct("!iBi")  # type of operation, whether this is the end, error
_STAT = struct.Struct("!qqqqiiiqiiq")
_END = _HEAD.pack(-1, 1, -1)
_HEADS = {code: _HEAD.pack(code, 0, -1) for code in (_CREATE, _DELETE, _GET, _SET, _NAMES, _CHECK)}
# Merritt's nodes are open to all
_OPEN_ACL = _INT.pack(1) + _INT.pack(31) + _INT.pack(5) + b"world" + _INT.pack(6) + b"anyone"
_PERSISTENT, _EPHEMERAL = _OPEN_ACL + _INT.pack(0), _OPEN_ACL + _INT.pack(1)


class Operation(NamedTuple):
    """One operation of a WriteTransaction."""

    code: int
    path: str
    data: bytes
    version_or_ephemeral: int  # the expected version; for a create: 1 if the node is ephemeral
    purpose: str  # what it writes, which tells what a refusal of it means

    @property
    def is_create(self) -> bool:
        return self.code == _CREATE

    @property
    def is_delete(self) -> bool:
        return self.code == _DELETE


def create(path: str, data: bytes = b"", purpose: str = "", *, ephemeral: bool = False) -> Operation:
    return Operation(_CREATE, path, data, 1 if ephemeral else 0, purpose)


def delete(path: str, purpose: str = "", version: int = ANY_VERSION) -> Operation:
    return Operation(_DELETE, path, b"", version, purpose)


def put(path: str, data: bytes, purpose: str = "", version: int = ANY_VERSION) -> Operation:
    return Operation(_SET, path, data, version, purpose)


def check(path: str, purpose: str = "", version: int = ANY_VERSION) -> Operation:
    """Assert that the node exists, and has that version if one is given."""
    return Operation(_CHECK, path, b"", version, purpose)


def check_absent(path: str, purpose: str) -> tuple[Operation, Operation]:
    """Assert that the node does not exist: it is created and deleted in the same transaction."""
    return create(path, b"", purpose), delete(path, purpose)


NodeRead = tuple[int, str]  # one read of a MultiRead: its type and the path of the node


def read_data(path: str) -> NodeRead:
    return _GET, path


def list_names(path: str) -> NodeRead:
    return _NAMES, path


class Znode(NamedTuple):
    """A node's data and its stat, in the server's order. Null data are read as empty: Ruby writes the one, Java the
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


_new_tuple = tuple.__new__  # twice as fast as Znode(...), and there are thousands


class OperationFailure(NamedTuple):
    """The position of the refused operation, from 0, and ZooKeeper's error. Nothing of the transaction was written."""

    position: int
    code: int


class WriteTransaction:
    """A transaction. `is_sent` is False until its bytes go to the socket: until then nothing can have been written."""

    type = 14
    watcher = None

    def __init__(self, root: str, ops: Sequence[Operation]) -> None:
        self.root = root.encode()
        self.ops = ops
        self.is_sent = False

    def serialize(self) -> bytes:
        self.is_sent = True
        root = self.root
        parts: list[bytes] = []
        for code, path, body, version_or_ephemeral, _ in self.ops:
            full_path = root + path.encode() or b"/"
            parts += (_HEADS[code], _INT.pack(len(full_path)), full_path)
            if code == _SET:
                parts += (_INT.pack(len(body)), body, _INT.pack(version_or_ephemeral))
            elif code == _CREATE:
                parts += (_INT.pack(len(body)), body, _EPHEMERAL if version_or_ephemeral else _PERSISTENT)
            else:
                parts.append(_INT.pack(version_or_ephemeral))
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[int | OperationFailure | None]:
        """Return the new version of each node that was put, None for other operations; or a single OperationFailure."""
        results: list[int | OperationFailure | None] = []
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
                if error:  # 0 marks the operations before the refused one, which were rolled back
                    return [OperationFailure(len(results), error)]
                results.append(None)
            else:
                results.append(None)


class MultiRead:
    """Many reads in one round trip. It is no snapshot: each sees the tree as it is when the server gets to it."""

    type = 22
    watcher = None

    def __init__(self, root: str, reads: Sequence[NodeRead]) -> None:
        self.root = root.encode()
        self.reads = reads
        self.is_sent = False

    def serialize(self) -> bytes:
        self.is_sent = True
        root = self.root
        parts: list[bytes] = []
        for code, path in self.reads:
            full_path = root + path.encode() or b"/"
            parts += (_HEADS[code], _INT.pack(len(full_path)), full_path, b"\0")
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[Znode | list[str] | OperationFailure | None]:
        """Return a Znode, a list of names, or None where there is no such node; or a single OperationFailure when a
        node may not be read.
        """
        results: list[Znode | list[str] | OperationFailure | None] = []
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
                results.append(_new_tuple(Znode, (body, *_STAT.unpack_from(buffer, offset))))
                offset += _STAT.size
            elif code == _NAMES:
                count = _INT.unpack_from(buffer, offset)[0]
                offset += _INT.size
                names = []
                for _ in range(count):
                    length = _INT.unpack_from(buffer, offset)[0]
                    offset += _INT.size
                    names.append(buffer[offset : offset + length].decode())
                    offset += length
                results.append(names)
            else:
                error = _INT.unpack_from(buffer, offset)[0]
                offset += _INT.size
                if error != NO_NODE:
                    return [OperationFailure(len(results), error)]
                results.append(None)
