"""Rows for the functions of functions.sql, in PostgreSQL's own binary form.

A commit sends hundreds of values at once. The client library turns each into bytes by looking up how to, again and
again; here each value becomes its bytes once (most are the same few words) and rows are joined of such pieces:

    cells (text, integer, ...) -> a row: one piece of bytes -> Rows(type, rows) -> one parameter, an array of that
    composite type
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache

from psycopg.abc import AdaptContext, PyFormat
from psycopg.adapt import Dumper
from psycopg.pq import Format

# The server's numbers of its own types, which never change.
_BOOL, _BYTEA, _INT8, _INT4, _TEXT, _FLOAT8, _TEXTS = 16, 17, 20, 23, 25, 701, 1009
_REMEMBERED = 20_000  # cells kept of each type: states, kinds, names of workers, small numbers
_SHORT = 100  # characters; longer text is not kept

_one = struct.Struct("!i").pack
_two = struct.Struct("!ii").pack
_three = struct.Struct("!iii").pack
_long = struct.Struct("!iiq").pack
_double = struct.Struct("!iid").pack

_TRUE, _FALSE = _two(_BOOL, 1) + b"\1", _two(_BOOL, 1) + b"\0"
_NO_TEXT, _NO_LONG, _NO_BYTES = _two(_TEXT, -1), _two(_INT8, -1), _two(_BYTEA, -1)


def text(value: str | None) -> bytes:
    if value is None:
        return _NO_TEXT
    return _word(value) if len(value) < _SHORT else _encoded(value)


def _encoded(value: str) -> bytes:
    body = value.encode()
    return _two(_TEXT, len(body)) + body


_word = lru_cache(_REMEMBERED)(_encoded)


@lru_cache(_REMEMBERED)
def integer(value: int) -> bytes:
    return _three(_INT4, 4, value)


@lru_cache(_REMEMBERED)
def bigint(value: int | None) -> bytes:
    return _NO_LONG if value is None else _long(_INT8, 8, value)


def double(value: float) -> bytes:
    return _double(_FLOAT8, 8, value)


def boolean(value: bool) -> bytes:
    return _TRUE if value else _FALSE


def blob(value: bytes | None) -> bytes:
    return _NO_BYTES if value is None else _two(_BYTEA, len(value)) + value


@lru_cache(_REMEMBERED)
def texts(values: tuple[str, ...]) -> bytes:
    items = [value.encode() for value in values]
    head = _three(1, 0, _TEXT) + _two(len(items), 1) if items else _three(0, 0, _TEXT)
    body = head + b"".join(_one(len(item)) + item for item in items)
    return _two(_TEXTS, len(body)) + body


@lru_cache(100)
def head(cells: int) -> bytes:
    """How a row begins: with the number of its cells."""
    return _one(cells)


def row(*cells: bytes) -> bytes:
    return head(len(cells)) + b"".join(cells)


class Rows:
    """One parameter: an array of rows of the composite type `type`."""

    __slots__ = ("rows", "type")

    def __init__(self, type: str, rows: Sequence[bytes]) -> None:
        self.type = type
        self.rows = rows


def rows_dumper(types: Mapping[str, tuple[int, int]]) -> type[Dumper]:
    """How one connection sends Rows: `types` are the numbers that its database gave to each composite type and to
    arrays of it.
    """

    class RowsDumper(Dumper):
        format = Format.BINARY

        def __init__(self, cls: type, context: AdaptContext | None = None, type: str | None = None) -> None:
            super().__init__(cls, context)
            if type is not None:
                self.element, self.oid = types[type]

        def get_key(self, obj: Rows, format: PyFormat) -> tuple[type, str]:  # type: ignore[override]
            return (Rows, obj.type)

        def upgrade(self, obj: Rows, format: PyFormat) -> RowsDumper:
            return RowsDumper(Rows, type=obj.type)

        def dump(self, obj: Rows) -> bytes:
            if not obj.rows:
                return _three(0, 0, self.element)
            return b"".join(
                [_three(1, 0, self.element), _two(len(obj.rows), 1), *(_one(len(row)) + row for row in obj.rows)]
            )

    return RowsDumper
