"""Java streams: a java.util.Properties as ObjectOutputStream writes it, read without making any object.

A stream is a tree of parts, each beginning with a byte that tells what it is. A class is described where it is first
used and referred to later, as are strings and objects. Only what a Properties can consist of is read: strings, boxed
numbers, tables of them; anything else is refused. Nothing of the stream is ever run, which is what makes reading such
streams in Java itself dangerous.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TypeAlias

MAGIC = b"\xac\xed\x00\x05"

_FIRST_HANDLE = 0x7E0000
_DEEPEST = 40
_PRIMITIVES = {"B": ">b", "C": ">H", "D": ">d", "F": ">f", "I": ">i", "J": ">q", "S": ">h", "Z": ">?"}


class BadStream(Exception):
    """The text goes on with "an object that"."""


@dataclass(slots=True)
class _Class:
    name: str
    writes: bool = False  # has a method of its own that wrote more than the fields
    fields: list[tuple[str, str]] = field(default_factory=list)  # type and name
    above: _Class | None = None


@dataclass(slots=True)
class _Object:
    kind: _Class
    values: dict[str, _Part] = field(default_factory=dict)
    more: list[_Part] = field(default_factory=list)


_Part: TypeAlias = "_Object | _Class | str | int | float | bytes | None"


def read_properties(data: bytes) -> dict[str, str]:
    """The keys and values of the Properties, with those of its defaults below them."""
    try:
        root = _Stream(data).part()
    except (struct.error, UnicodeDecodeError, IndexError, RecursionError):
        raise BadStream("is damaged") from None
    return _table(root, 0)


def _table(part: _Part, depth: int) -> dict[str, str]:
    if (
        not isinstance(part, _Object)
        or part.kind.name not in ("java.util.Properties", "java.util.Hashtable")
        or depth > _DEEPEST
    ):
        raise BadStream("is no java.util.Properties")
    defaults = part.values.get("defaults")
    found = _table(defaults, depth + 1) if defaults is not None else {}
    pairs = [each for each in part.more if not isinstance(each, bytes)]
    if len(pairs) % 2:
        raise BadStream("has a key without a value")
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        plain = value.values.get("value") if isinstance(value, _Object) else value
        if not isinstance(key, str) or not isinstance(plain, str | int | float):
            raise BadStream("has keys or values that are no texts")
        found[key] = str(plain).lower() if isinstance(plain, bool) else str(plain)
    return found


class _Stream:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = len(MAGIC)
        self._depth = 0
        self._handles: list[_Part] = []

    def part(self) -> _Part:
        """The next part; None is null."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise BadStream("is nested too deep")
        try:
            return self._part(self._take(1)[0])
        finally:
            self._depth -= 1

    def _part(self, code: int) -> _Part:
        match code:
            case 0x70:
                return None
            case 0x71:
                handle: int = self._unpack(">i") - _FIRST_HANDLE
                if not 0 <= handle < len(self._handles):
                    raise BadStream("refers to what is not there")
                return self._handles[handle]
            case 0x72:
                return self._class()
            case 0x73:
                return self._object()
            case 0x74 | 0x7C:
                text = self._text(self._unpack(">H" if code == 0x74 else ">q"))
                self._handles.append(text)
                return text
            case 0x77 | 0x7A:
                return self._take(self._unpack(">B" if code == 0x77 else ">i"))
        raise BadStream("holds more than texts and numbers")

    def _class(self) -> _Class:
        found = _Class(self._text(self._unpack(">H")))
        self._take(8)
        self._handles.append(found)
        flags: int = self._unpack(">B")
        if flags & 0x14:
            raise BadStream("was written in a way of its own")
        found.writes = bool(flags & 1)
        for _ in range(self._unpack(">H")):
            kind, name = chr(self._unpack(">B")), self._text(self._unpack(">H"))
            if kind in "L[":
                self.part()  # the name of its class
            found.fields.append((kind, name))
        self._annotations()
        above = self.part()
        if above is not None and not isinstance(above, _Class):
            raise BadStream("is damaged")
        found.above = above
        return found

    def _object(self) -> _Object:
        kind = self.part()
        if not isinstance(kind, _Class):
            raise BadStream("is damaged")
        found = _Object(kind)
        self._handles.append(found)
        lineage: list[_Class] = []
        each: _Class | None = kind
        while each is not None and len(lineage) < _DEEPEST:
            lineage.append(each)
            each = each.above
        for each in reversed(lineage):
            for type_code, name in each.fields:
                found.values[name] = self.part() if type_code in "L[" else self._primitive(type_code)
            if each.writes:
                found.more += self._annotations()
        return found

    def _annotations(self) -> list[_Part]:
        found: list[_Part] = []
        while self._data[self._at] != 0x78:
            found.append(self.part())
        self._at += 1
        return found

    def _primitive(self, type_code: str) -> int | float:
        if type_code not in _PRIMITIVES:
            raise BadStream("is damaged")
        value: int | float = self._unpack(_PRIMITIVES[type_code])
        return value

    def _text(self, length: int) -> str:
        """Java's own UTF-8: NUL in two bytes, and large characters as two halves of three bytes each."""
        raw = self._take(length).replace(b"\xc0\x80", b"\0")
        return raw.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16")

    def _unpack(self, form: str) -> int:
        value: int = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return value

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._at:
            raise BadStream("ends too early")
        self._at += length
        return self._data[self._at - length : self._at]
