"""The inventory.json of an OCFL object, read whole and written as a stream.

An inventory is one JSON document, however many files the object has, so care is taken of memory: versions that were
read stay the bytes they were and go into the next inventory as they are, and the next inventory is never in memory as a
whole. The digest that binds it all is SHA-512, which OCFL prefers, with SHA-256 in the fixity block; or SHA-256 alone.

A version's request is the last line of its message (`Request: name`), for OCFL allows no fields of one's own.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from waybill.apps.ingest.storage.protocol import Unsound, Version

TYPE = "https://ocfl.io/1.1/spec/#inventory"
FILE = "inventory.json"
PORTION = 1024 * 1024
_REQUEST = "Request: "

Algorithm = Literal["sha256", "sha512"]


class Content(NamedTuple):
    """One file of bytes: where it lies below the object's root, its digest by the object's algorithm, and its
    SHA-256, as bytes.
    """

    place: str
    digest: bytes
    sha256: bytes


class Block(msgspec.Struct):
    """A version as the inventory has it; `state` is digest -> logical paths."""

    created: str
    state: dict[str, list[str]] = {}
    message: str = ""
    user: dict[str, str] = {}

    def version(self, number: int) -> Version:
        words, _, request = (
            self.message.rpartition(_REQUEST)
            if _REQUEST in self.message.rpartition("\n")[2]
            else (self.message, "", "")
        )
        return Version(
            number=number, created=self.created, message=words.strip(), user=self.user.get("name", ""), request=request
        )


class _Glance(msgspec.Struct):
    created: str
    message: str = ""
    user: dict[str, str] = {}


class Inventory(msgspec.Struct):
    """As it was read. Everything that is said of versions is decoded when asked for."""

    id: str
    type: str
    digestAlgorithm: Algorithm
    head: str
    manifest: dict[str, list[str]]
    versions: dict[str, msgspec.Raw]
    fixity: dict[str, dict[str, list[str]]] = {}
    contentDirectory: str = "content"

    @property
    def algorithm(self) -> Algorithm:
        return self.digestAlgorithm

    @property
    def number(self) -> int:
        return number_of(self.head)

    def block(self, number: int) -> Block:
        return msgspec.json.decode(self._raw(number), type=Block)

    def described(self) -> list[Version]:
        """All versions, oldest first, without their files."""
        found = []
        for number in range(1, self.number + 1):
            glance = msgspec.json.decode(self._raw(number), type=_Glance)
            found.append(Block(created=glance.created, message=glance.message, user=glance.user).version(number))
        return found

    def contents(self) -> Iterator[Content]:
        """Every file of bytes. A SHA-256 that the inventory does not know (another program wrote it) is empty."""
        known: dict[str, bytes] = {}
        if self.algorithm != "sha256":
            known = {
                place: bytes.fromhex(digest)
                for digest, places in self.fixity.get("sha256", {}).items()
                for place in places
            }
        for text, places in self.manifest.items():
            digest = bytes.fromhex(text)
            for place in places:
                yield Content(place, digest, digest if self.algorithm == "sha256" else known.get(place, b""))

    def _raw(self, number: int) -> msgspec.Raw:
        for name in (f"v{number}", self.head[:1] + str(number).zfill(len(self.head) - 1)):
            if name in self.versions:
                return self.versions[name]
        raise Unsound(f"The inventory of {self.id} does not describe its version {number}.")


def decode(data: bytes, where: str) -> Inventory:
    try:
        found = msgspec.json.decode(data, type=Inventory)
        found.described()
    except (msgspec.DecodeError, ValueError) as error:
        raise Unsound(f"{where} is no inventory of an OCFL object ({error}).") from error
    return found


def number_of(version: str) -> int:
    digits = version[1:]
    if version[:1] != "v" or not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise ValueError(f"{version!r} is not the name of a version")
    return int(digits)


class NewVersion(NamedTuple):
    """The version to be: what it is made of, with `files` as path -> digest by the object's algorithm."""

    id: str
    number: int
    algorithm: Algorithm
    created: str
    message: str
    request: str
    user: str
    address: str
    contents: Iterable[Content]  # those that are new
    files: Mapping[str, bytes]


def encode(before: Inventory | None, new: NewVersion) -> Iterator[bytes]:
    """The next inventory, in portions; the same bytes each time."""
    return _gathered(_pieces(before, new))


def digest_of(portions: Iterable[bytes], algorithm: str) -> tuple[int, str, str]:
    """Size, SHA-256 and digest by the algorithm, in one pass."""
    size, sha256, other = 0, hashlib.sha256(), hashlib.new(algorithm)
    for portion in portions:
        size += len(portion)
        sha256.update(portion)
        if algorithm != "sha256":
            other.update(portion)
    plain = sha256.hexdigest()
    return size, plain, plain if algorithm == "sha256" else other.hexdigest()


def sidecar(algorithm: str) -> str:
    return f"{FILE}.{algorithm}"


def _pieces(before: Inventory | None, new: NewVersion) -> Iterator[bytes]:
    head = {"id": new.id, "type": TYPE, "digestAlgorithm": new.algorithm, "head": f"v{new.number}"}
    yield _json(head)[:-1] + b',\n"manifest":{\n'
    old = before.manifest.items() if before else ()
    yield from _joined(
        _item(digest, places) for digest, places in itertools.chain(old, _grouped(new.contents, "digest"))
    )
    yield b'},\n"versions":{\n'
    for number in range(1, new.number):
        assert before is not None
        yield _json(f"v{number}") + b":" + bytes(before._raw(number)) + b",\n"
    # OCFL wants an address, and a URI
    user = {"name": new.user, "address": new.address or f"info:waybill/user/{quote(new.user)}"}
    words = "\n".join(part for part in (new.message.strip(), f"{_REQUEST}{new.request}") if part)
    yield (
        _json(f"v{new.number}")
        + b":"
        + _json({"created": new.created, "message": words, "user": user})[:-1]
        + b',"state":{\n'
    )
    by_digest = sorted(new.files, key=lambda path: (new.files[path], path))
    groups = itertools.groupby(by_digest, key=lambda path: new.files[path])
    yield from _joined(_item(digest.hex(), list(paths)) for digest, paths in groups)
    yield b"}}}"
    if new.algorithm != "sha256":
        yield b',\n"fixity":{"sha256":{\n'
        kept = before.fixity.get("sha256", {}).items() if before else ()
        yield from _joined(
            _item(digest, places) for digest, places in itertools.chain(kept, _grouped(new.contents, "sha256"))
        )
        yield b"}}"
    yield b"}\n"


def _grouped(contents: Iterable[Content], field: Literal["digest", "sha256"]) -> Iterator[tuple[str, list[str]]]:
    return ((getattr(content, field).hex(), [content.place]) for content in contents)


def _item(key: str, value: list[str]) -> bytes:
    return _json(key) + b":" + _json(value)


def _joined(items: Iterable[bytes]) -> Iterator[bytes]:
    ahead: bytes | None = None
    for item in items:
        if ahead is not None:
            yield ahead + b",\n"
        ahead = item
    if ahead is not None:
        yield ahead + b"\n"


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= PORTION:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)
