"""The inventory.json of an OCFL object, read as a whole and written as a stream.

An inventory is one JSON document, however many files the object has, so memory matters: the versions of an inventory
that was read stay encoded and are copied into the next inventory unchanged, and the next inventory is never in memory as
a whole. Content is identified by SHA-512, which OCFL prefers, with SHA-256 in the fixity block; or by SHA-256 alone.

The request of a version is the last line of its message (`Request: name`), since OCFL allows no custom fields.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from waybill.apps.ingest.storage.protocol import StorageDamaged, VersionSummary

INVENTORY_TYPE = "https://ocfl.io/1.1/spec/#inventory"
INVENTORY_FILE = "inventory.json"
CHUNK_SIZE = 1024 * 1024
_REQUEST_PREFIX = "Request: "

DigestAlgorithm = Literal["sha256", "sha512"]


class ContentFile(NamedTuple):
    """One content file: its place below the object's root, its digest by the object's algorithm, and its SHA-256."""

    place: str
    digest: bytes
    sha256: bytes


class VersionBlock(msgspec.Struct):
    """A version in the inventory; `state` maps digests to logical paths."""

    created: str
    state: dict[str, list[str]] = {}
    message: str = ""
    user: dict[str, str] = {}

    def to_summary(self, number: int) -> VersionSummary:
        message, _, request = (
            self.message.rpartition(_REQUEST_PREFIX)
            if _REQUEST_PREFIX in self.message.rpartition("\n")[2]
            else (self.message, "", "")
        )
        return VersionSummary(
            number=number,
            created=self.created,
            message=message.strip(),
            user=self.user.get("name", ""),
            request=request,
        )


class _VersionHead(msgspec.Struct):
    created: str
    message: str = ""
    user: dict[str, str] = {}


class OcflInventory(msgspec.Struct):
    """An inventory that was read. Its versions are decoded on demand."""

    id: str
    type: str
    digestAlgorithm: DigestAlgorithm
    head: str
    manifest: dict[str, list[str]]
    versions: dict[str, msgspec.Raw]
    fixity: dict[str, dict[str, list[str]]] = {}
    contentDirectory: str = "content"

    @property
    def algorithm(self) -> DigestAlgorithm:
        return self.digestAlgorithm

    @property
    def number(self) -> int:
        return number_of(self.head)

    def decode_block(self, number: int) -> VersionBlock:
        return msgspec.json.decode(self._get_raw_version(number), type=VersionBlock)

    def list_versions(self) -> list[VersionSummary]:
        """Return all versions, oldest first, without their files."""
        found = []
        for number in range(1, self.number + 1):
            head = msgspec.json.decode(self._get_raw_version(number), type=_VersionHead)
            found.append(VersionBlock(created=head.created, message=head.message, user=head.user).to_summary(number))
        return found

    def iter_contents(self) -> Iterator[ContentFile]:
        """Yield all content files. The SHA-256 is empty if the inventory of another program lacks it."""
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
                yield ContentFile(place, digest, digest if self.algorithm == "sha256" else known.get(place, b""))

    def _get_raw_version(self, number: int) -> msgspec.Raw:
        for name in (f"v{number}", self.head[:1] + str(number).zfill(len(self.head) - 1)):
            if name in self.versions:
                return self.versions[name]
        raise StorageDamaged(f"The inventory of {self.id} does not describe its version {number}.")


def decode_inventory(data: bytes, where: str) -> OcflInventory:
    try:
        found = msgspec.json.decode(data, type=OcflInventory)
        found.list_versions()
    except (msgspec.DecodeError, ValueError) as error:
        raise StorageDamaged(f"{where} is not the inventory of an OCFL object ({error}).") from error
    return found


def number_of(version: str) -> int:
    digits = version[1:]
    if version[:1] != "v" or not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise ValueError(f"{version!r} is not the name of a version")
    return int(digits)


class NewVersion(NamedTuple):
    """The version to write; `files` maps paths to digests by the object's algorithm."""

    id: str
    number: int
    algorithm: DigestAlgorithm
    created: str
    message: str
    request: str
    user: str
    address: str
    contents: Iterable[ContentFile]  # the new ones
    files: Mapping[str, bytes]


def encode_inventory(before: OcflInventory | None, new: NewVersion) -> Iterator[bytes]:
    """Yield the next inventory in chunks; the same bytes each time."""
    return _gather_chunks(_encode_pieces(before, new))


def digest_of(chunks: Iterable[bytes], algorithm: str) -> tuple[int, str, str]:
    """Return size, SHA-256 and digest by the algorithm, in one pass."""
    size, sha256, other = 0, hashlib.sha256(), hashlib.new(algorithm)
    for chunk in chunks:
        size += len(chunk)
        sha256.update(chunk)
        if algorithm != "sha256":
            other.update(chunk)
    text = sha256.hexdigest()
    return size, text, text if algorithm == "sha256" else other.hexdigest()


def sidecar_name_of(algorithm: str) -> str:
    return f"{INVENTORY_FILE}.{algorithm}"


def _encode_pieces(before: OcflInventory | None, new: NewVersion) -> Iterator[bytes]:
    head = {"id": new.id, "type": INVENTORY_TYPE, "digestAlgorithm": new.algorithm, "head": f"v{new.number}"}
    yield _encode_json(head)[:-1] + b',\n"manifest":{\n'
    old = before.manifest.items() if before else ()
    yield from _join_items(
        _encode_item(digest, places)
        for digest, places in itertools.chain(old, _group_by_digest(new.contents, "digest"))
    )
    yield b'},\n"versions":{\n'
    for number in range(1, new.number):
        assert before is not None
        yield _encode_json(f"v{number}") + b":" + bytes(before._get_raw_version(number)) + b",\n"
    # OCFL requires an address, a URI
    user = {"name": new.user, "address": new.address or f"info:waybill/user/{quote(new.user)}"}
    message = "\n".join(part for part in (new.message.strip(), f"{_REQUEST_PREFIX}{new.request}") if part)
    yield (
        _encode_json(f"v{new.number}")
        + b":"
        + _encode_json({"created": new.created, "message": message, "user": user})[:-1]
        + b',"state":{\n'
    )
    by_digest = sorted(new.files, key=lambda path: (new.files[path], path))
    groups = itertools.groupby(by_digest, key=lambda path: new.files[path])
    yield from _join_items(_encode_item(digest.hex(), list(paths)) for digest, paths in groups)
    yield b"}}}"
    if new.algorithm != "sha256":
        yield b',\n"fixity":{"sha256":{\n'
        old_fixity = before.fixity.get("sha256", {}).items() if before else ()
        yield from _join_items(
            _encode_item(digest, places)
            for digest, places in itertools.chain(old_fixity, _group_by_digest(new.contents, "sha256"))
        )
        yield b"}}"
    yield b"}\n"


def _group_by_digest(
    contents: Iterable[ContentFile], field: Literal["digest", "sha256"]
) -> Iterator[tuple[str, list[str]]]:
    return ((getattr(content, field).hex(), [content.place]) for content in contents)


def _encode_item(key: str, value: list[str]) -> bytes:
    return _encode_json(key) + b":" + _encode_json(value)


def _join_items(items: Iterable[bytes]) -> Iterator[bytes]:
    previous: bytes | None = None
    for item in items:
        if previous is not None:
            yield previous + b",\n"
        previous = item
    if previous is not None:
        yield previous + b"\n"


def _gather_chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    buffer: list[bytes] = []
    size = 0
    for piece in pieces:
        buffer.append(piece)
        size += len(piece)
        if size >= CHUNK_SIZE:
            yield b"".join(buffer)
            buffer, size = [], 0
    yield b"".join(buffer)


def _encode_json(value: Any) -> bytes:
    return msgspec.json.encode(value)
