"""A java.util.Properties as ObjectOutputStream writes it, read without creating any Java object.

A stream is a tree of values; the first byte of each is its type. A class is described where it is first used and
referred to later, as are strings and objects. Only what a Properties can contain is read: strings, boxed numbers and
tables of them; anything else is refused. No code of the stream is run, which is what makes reading such streams in Java
dangerous.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TypeAlias

from waybill.errors import FormatError

MAGIC = b"\xac\xed\x00\x05"

_FIRST_HANDLE = 0x7E0000
_MAX_DEPTH = 40
_PRIMITIVES = {"B": ">b", "C": ">H", "D": ">d", "F": ">f", "I": ">i", "J": ">q", "S": ">h", "Z": ">?"}


@dataclass(slots=True)
class _JavaClass:
    name: str
    has_write_method: bool = False  # a writeObject method that writes more than the fields
    fields: list[tuple[str, str]] = field(default_factory=list)  # type and name
    superclass: _JavaClass | None = None


@dataclass(slots=True)
class _JavaObject:
    java_class: _JavaClass
    values: dict[str, _JavaValue] = field(default_factory=dict)
    annotations: list[_JavaValue] = field(default_factory=list)


_JavaValue: TypeAlias = "_JavaObject | _JavaClass | str | int | float | bytes | None"


def read_properties(data: bytes) -> dict[str, str]:
    """Return the keys and values of a Properties, including its defaults."""
    try:
        root = _JavaStreamReader(data).read_value()
    except (struct.error, UnicodeDecodeError, IndexError, RecursionError):
        raise FormatError("is damaged") from None
    return _to_table(root, 0)


def _to_table(value: _JavaValue, depth: int) -> dict[str, str]:
    if (
        not isinstance(value, _JavaObject)
        or value.java_class.name not in ("java.util.Properties", "java.util.Hashtable")
        or depth > _MAX_DEPTH
    ):
        raise FormatError("is not a java.util.Properties")
    defaults = value.values.get("defaults")
    table = _to_table(defaults, depth + 1) if defaults is not None else {}
    pairs = [each for each in value.annotations if not isinstance(each, bytes)]
    if len(pairs) % 2:
        raise FormatError("has a key without a value")
    for key, item in zip(pairs[::2], pairs[1::2], strict=True):
        plain = item.values.get("value") if isinstance(item, _JavaObject) else item
        if not isinstance(key, str) or not isinstance(plain, str | int | float):
            raise FormatError("has keys or values that are not texts")
        table[key] = str(plain).lower() if isinstance(plain, bool) else str(plain)
    return table


class _JavaStreamReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = len(MAGIC)
        self._depth = 0
        self._handles: list[_JavaValue] = []

    def read_value(self) -> _JavaValue:
        """Read the next value; None is null."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise FormatError("is nested too deep")
        try:
            return self._read_typed_value(self._take(1)[0])
        finally:
            self._depth -= 1

    def _read_typed_value(self, code: int) -> _JavaValue:
        match code:
            case 0x70:
                return None
            case 0x71:
                handle: int = self._unpack(">i") - _FIRST_HANDLE
                if not 0 <= handle < len(self._handles):
                    raise FormatError("refers to something that does not exist")
                return self._handles[handle]
            case 0x72:
                return self._read_class()
            case 0x73:
                return self._read_object()
            case 0x74 | 0x7C:
                text = self._read_text(self._unpack(">H" if code == 0x74 else ">q"))
                self._handles.append(text)
                return text
            case 0x77 | 0x7A:
                return self._take(self._unpack(">B" if code == 0x77 else ">i"))
        raise FormatError("holds more than texts and numbers")

    def _read_class(self) -> _JavaClass:
        java_class = _JavaClass(self._read_text(self._unpack(">H")))
        self._take(8)
        self._handles.append(java_class)
        flags: int = self._unpack(">B")
        if flags & 0x14:
            raise FormatError("has its own serialization format")
        java_class.has_write_method = bool(flags & 1)
        for _ in range(self._unpack(">H")):
            kind, name = chr(self._unpack(">B")), self._read_text(self._unpack(">H"))
            if kind in "L[":
                self.read_value()  # the name of its class
            java_class.fields.append((kind, name))
        self._read_annotations()
        superclass = self.read_value()
        if superclass is not None and not isinstance(superclass, _JavaClass):
            raise FormatError("is damaged")
        java_class.superclass = superclass
        return java_class

    def _read_object(self) -> _JavaObject:
        kind = self.read_value()
        if not isinstance(kind, _JavaClass):
            raise FormatError("is damaged")
        java_object = _JavaObject(kind)
        self._handles.append(java_object)
        lineage: list[_JavaClass] = []
        each: _JavaClass | None = kind
        while each is not None and len(lineage) < _MAX_DEPTH:
            lineage.append(each)
            each = each.superclass
        for each in reversed(lineage):
            for type_code, name in each.fields:
                java_object.values[name] = self.read_value() if type_code in "L[" else self._read_primitive(type_code)
            if each.has_write_method:
                java_object.annotations += self._read_annotations()
        return java_object

    def _read_annotations(self) -> list[_JavaValue]:
        annotations: list[_JavaValue] = []
        while self._data[self._offset] != 0x78:
            annotations.append(self.read_value())
        self._offset += 1
        return annotations

    def _read_primitive(self, type_code: str) -> int | float:
        if type_code not in _PRIMITIVES:
            raise FormatError("is damaged")
        value: int | float = self._unpack(_PRIMITIVES[type_code])
        return value

    def _read_text(self, length: int) -> str:
        """Decode Java's modified UTF-8: NUL in two bytes, and characters above U+FFFF as two surrogates of three bytes each."""
        raw = self._take(length).replace(b"\xc0\x80", b"\0")
        return raw.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16")

    def _unpack(self, form: str) -> int:
        value: int = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return value

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._offset:
            raise FormatError("ends too early")
        self._offset += length
        return self._data[self._offset - length : self._offset]
