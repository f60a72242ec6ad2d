"""The documents of a record: named pieces of JSON, and the types in which they are read and written.

A `Document` of a machine's table gives a name and the struct of its contents:

    Document("space", SpaceRequest, "step", "Since when it waits for disk space, and why.")

    record.document(SpaceRequest)                              reads it, checked against the type
    Done(documents=(SpaceRequest(since=now),))                 writes it
    Done(remove=(SpaceRequest,))                               removes it

A type names one document, which has the same name in every machine that uses it; so `record.document` needs no machine.
A document is stored as the bytes that were written, is decoded when it is first read, and is decoded once.

Versions: the field "v" of a stored document, which no type has, is the `v` of its declaration. A release that changes the
fields of a document increases `v`; it reads `v` and the one before, which `upgrade` turns into the present form. A
document of a newer version is neither read nor overwritten, so that no field of it is lost: upgrade the workers. Formats
of other services have no version (`v=None`): their types take what those services may write, and keep what they do not
know if they are written back.

A document that is missing, damaged or of another version raises `DocumentError`, a permanent error. It is never replaced
by an empty one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import msgspec

# what decoding, and the functions of a machine that read JSON which anybody may have written, raise over wrong JSON
DOCUMENT_ERRORS = (LookupError, TypeError, ValueError, AttributeError, RecursionError, msgspec.MsgspecError)
StructType = type[msgspec.Struct]
# what a step, an action or a new record writes: structs of declared types; or any JSON by name, where None removes one
Documents = Sequence[msgspec.Struct] | Mapping[str, Any]


class DocumentStruct(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The base of the documents that only this program writes: a field that their type does not have is an error."""


@dataclass(frozen=True)
class Document:
    """A named piece of JSON on a record. Whoever creates the record may write it; after that only its writer."""

    name: str
    type: StructType | None  # None: any JSON, which is read and written by name
    writer: Literal["step", "service", "foreign"]
    description: str
    # the number in its "v"; readers accept this one and the one before. None: a foreign format without a version
    v: int | None = 1
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] | None = None  # the fields of version v - 1 as those of v
    # for a foreign format: the struct of what another service wrote, and the JSON of a struct. None: its fields
    parse: Callable[[bytes], msgspec.Struct] | None = None
    render: Callable[[Any], Any] | None = None
    secret: tuple[str, ...] = ()  # fields that nobody is shown: "hash", or "callback.password" for a nested one
    # returns what is shown instead, for a document that may hold something secret anywhere
    redact: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.type is not None:
            known = _declared.setdefault(self.type, self)
            if known.name != self.name:
                raise TypeError(
                    f"{self.type.__name__} is the type of the document {known.name} and cannot be that of {self.name}; "
                    f"derive another type from it."
                )
            _declared[self.type] = self

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.type if self.type is not None else Any)

    @cached_property
    def _prefix(self) -> bytes:
        return b"" if self.v is None else b'{"v":%d' % self.v  # as `encode` writes it

    def encode(self, body: Any) -> bytes:
        """Encode a struct of its type, or any JSON, with the version number."""
        written = encode_document(
            self.render(body) if self.render is not None and isinstance(body, msgspec.Struct) else body
        )
        if self.v is None or written[:1] != b"{" or (isinstance(body, dict) and "v" in body):
            return written
        return self._prefix + (b"," + written[1:] if len(written) > 2 else b"}")

    def check(self, body: Any) -> None:
        """Check JSON that is not of the type yet. Raises one of DOCUMENT_ERRORS, which says what is wrong with it."""
        self.decode(self.encode(body))

    def decode(self, raw: bytes) -> Any:
        """Decode and check what is stored. Raises one of DOCUMENT_ERRORS, which says what is wrong with it."""
        if self.parse is not None:
            return self.parse(raw)
        if self.v is None:
            return self._decoder.decode(raw)
        if raw.startswith(self._prefix + b","):
            return self._decoder.decode(b"{" + raw[len(self._prefix) + 1 :])
        fields = msgspec.json.decode(raw, type=dict[str, Any])
        version = fields.pop("v", self.v)
        if version == self.v - 1 > 0:
            fields = self.upgrade(fields) if self.upgrade is not None else fields
        elif version != self.v:
            versions = f"{self.v - 1} and {self.v}" if self.v > 1 else f"{self.v}"
            raise ValueError(f"it is of version {version}, and this release reads {versions}")
        return self._decoder.decode(msgspec.json.encode(fields))

    def can_overwrite(self, raw: bytes) -> bool:
        """Return whether the stored document is not of a newer version, whose fields would be lost."""
        if self.v is None or raw.startswith(self._prefix):
            return True
        try:
            return msgspec.json.decode(raw, type=_VersionField).v <= self.v
        except msgspec.MsgspecError:
            return True


class _VersionField(msgspec.Struct):
    v: int = 0


_declared: dict[StructType, Document] = {}  # by type, filled by the declarations


def document_of(type: StructType) -> Document:
    """Return the declaration of the document that has this type."""
    try:
        return _declared[type]
    except KeyError:
        raise TypeError(f"No machine declares a document of the type {type.__name__}.") from None


class RecordDocuments(Mapping[str, Any]):
    """The documents of a record by name: stored as the bytes that were written, decoded when read."""

    __slots__ = ("decoded", "raw")

    def __init__(self, raw: Mapping[str, bytes] | None = None) -> None:
        self.raw: dict[str, bytes] = dict(raw) if raw else {}
        self.decoded: dict[StructType, Any] = {}  # those that `Record.find_document` has decoded, by type

    def __getitem__(self, name: str) -> Any:
        return msgspec.json.decode(self.raw[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordDocuments) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(frozenset(self.raw.items()))

    def __repr__(self) -> str:
        return f"RecordDocuments({', '.join(self.raw)})"

    def with_changes(self, changes: Mapping[str, bytes | None]) -> RecordDocuments:
        """Return these documents after a change that writes some of them and removes those given as None."""
        if not changes:
            return self
        merged = {name: body for name, body in {**self.raw, **changes}.items() if body is not None}
        return RecordDocuments(merged)


NO_DOCUMENTS = RecordDocuments()


def is_json(body: bytes) -> bool:
    """Return whether the bytes are JSON. Lone surrogates and numbers of any size are accepted, although not every
    reader can decode them.
    """
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            json.loads(body.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return False
    return True


def _refuse_constant(word: str) -> None:
    raise ValueError(f"JSON has no {word}")


def encode_document(body: Any) -> bytes:
    """Encode a document as every writer does. Raises ValueError for NaN and infinity, which JSON does not have."""
    written = msgspec.json.encode(body)
    if b"null" in written:
        _refuse_non_finite_numbers(body)
    return written


def _refuse_non_finite_numbers(body: Any) -> None:
    """Raise ValueError for NaN and infinity: the encoder would silently write them as null."""
    if isinstance(body, float) and not math.isfinite(body):
        raise ValueError(f"JSON has no number {body}; write it as a text, or leave it out")
    if isinstance(body, msgspec.Struct):
        body = msgspec.structs.asdict(body)
    for each in (
        body.values() if isinstance(body, Mapping) else body if isinstance(body, (list, tuple, set, frozenset)) else ()
    ):
        _refuse_non_finite_numbers(each)
