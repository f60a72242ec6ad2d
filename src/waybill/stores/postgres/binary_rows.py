"""Parameters of the functions in functions.sql: arrays of composite types, in PostgreSQL's binary format.

A commit sends hundreds of values at once. The client library looks up an adapter for each of them; here each value is
encoded once and cached (most are the same few words), and rows are joined from the encoded cells:

    cells (text, integer, ...) -> encode_row -> CompositeArray(type, rows) -> one parameter
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache

from psycopg.abc import AdaptContext, PyFormat
from psycopg.adapt import Dumper
from psycopg.pq import Format

# The OIDs of the server's built-in types, which never change.
_BOOL, _BYTEA, _INT8, _INT4, _TEXT, _FLOAT8, _TEXTS = 16, 17, 20, 23, 25, 701, 1009
_CACHE_SIZE = 20_000  # encoded cells cached of each type: states, kinds, names of workers, small numbers
_SHORT_TEXT = 100  # characters; longer text is not cached

_pack_int = struct.Struct("!i").pack
_pack_two_ints = struct.Struct("!ii").pack
_pack_three_ints = struct.Struct("!iii").pack
_pack_bigint = struct.Struct("!iiq").pack
_pack_double = struct.Struct("!iid").pack

_TRUE, _FALSE = _pack_two_ints(_BOOL, 1) + b"\1", _pack_two_ints(_BOOL, 1) + b"\0"
_NO_TEXT, _NO_LONG, _NO_BYTES = _pack_two_ints(_TEXT, -1), _pack_two_ints(_INT8, -1), _pack_two_ints(_BYTEA, -1)


def encode_text(value: str | None) -> bytes:
    if value is None:
        return _NO_TEXT
    return _encode_cached(value) if len(value) < _SHORT_TEXT else _encode_uncached(value)


def _encode_uncached(value: str) -> bytes:
    body = value.encode()
    return _pack_two_ints(_TEXT, len(body)) + body


_encode_cached = lru_cache(_CACHE_SIZE)(_encode_uncached)


@lru_cache(_CACHE_SIZE)
def encode_integer(value: int) -> bytes:
    return _pack_three_ints(_INT4, 4, value)


@lru_cache(_CACHE_SIZE)
def encode_bigint(value: int | None) -> bytes:
    return _NO_LONG if value is None else _pack_bigint(_INT8, 8, value)


def encode_double(value: float) -> bytes:
    return _pack_double(_FLOAT8, 8, value)


def encode_boolean(value: bool) -> bytes:
    return _TRUE if value else _FALSE


def encode_bytes(value: bytes | None) -> bytes:
    return _NO_BYTES if value is None else _pack_two_ints(_BYTEA, len(value)) + value


@lru_cache(_CACHE_SIZE)
def encode_texts(values: tuple[str, ...]) -> bytes:
    items = [value.encode() for value in values]
    head = _pack_three_ints(1, 0, _TEXT) + _pack_two_ints(len(items), 1) if items else _pack_three_ints(0, 0, _TEXT)
    body = head + b"".join(_pack_int(len(item)) + item for item in items)
    return _pack_two_ints(_TEXTS, len(body)) + body


@lru_cache(100)
def encode_row_header(cells: int) -> bytes:
    """The start of a row: the number of its cells."""
    return _pack_int(cells)


def encode_row(*cells: bytes) -> bytes:
    return encode_row_header(len(cells)) + b"".join(cells)


class CompositeArray:
    """One parameter: an array of rows of the composite type `type`."""

    __slots__ = ("rows", "type")

    def __init__(self, type: str, rows: Sequence[bytes]) -> None:
        self.type = type
        self.rows = rows


def make_array_dumper(types: Mapping[str, tuple[int, int]]) -> type[Dumper]:
    """The dumper with which one connection sends a CompositeArray. `types` gives the OIDs of each composite type and of its
    array type in that database.
    """

    class CompositeArrayDumper(Dumper):
        format = Format.BINARY

        def __init__(self, cls: type, context: AdaptContext | None = None, type: str | None = None) -> None:
            super().__init__(cls, context)
            if type is not None:
                self.element, self.oid = types[type]

        def get_key(self, obj: CompositeArray, format: PyFormat) -> tuple[type, str]:  # type: ignore[override]
            return (CompositeArray, obj.type)

        def upgrade(self, obj: CompositeArray, format: PyFormat) -> CompositeArrayDumper:
            return CompositeArrayDumper(CompositeArray, type=obj.type)

        def dump(self, obj: CompositeArray) -> bytes:
            if not obj.rows:
                return _pack_three_ints(0, 0, self.element)
            return b"".join(
                [
                    _pack_three_ints(1, 0, self.element),
                    _pack_two_ints(len(obj.rows), 1),
                    *(_pack_int(len(row)) + row for row in obj.rows),
                ]
            )

    return CompositeArrayDumper
