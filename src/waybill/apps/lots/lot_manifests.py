"""Manifests of lots: the bill of materials of one lot of a dataset, as JSON in object storage.

    {"state":"complete","comment":null,"lotId":"20230227PT5M287","uriType":"identifier","uris":["s3://b/k/a.txt"],
     "v":2,"dataset":"orders/1","generation":1,"count":1,"bytes":3,"objects":[{"size":3,"sha256":"ba78..."}]}

The first five keys are those that Clusterless writes, and enough to read; `objects` has one entry for each of `uris`, in
the same order, with what is known of it. Readers are tolerant: they ignore keys they do not know, and a manifest of the
five keys alone is a whole one. `to_clusterless` leaves the others out, for readers that are not tolerant.

A short manifest has its entries itself. A long one is a root with `children`, each a manifest of one page of entries or
of one partition, named with its size and digest: so a lot of ten million objects is written and read in little memory.
**A root is known to be whole only after its children were read to the end**: one that is missing, was changed or has
other entries than the root says is an error, never a shorter lot.

`uriType` says what the uris are: an `identifier` names one object; a `path` ends with `/` and means all below it; a
`prefix` is the beginning of the name of exactly one object, for writers that do not know the names they write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from waybill.apps.lots.naming import ManifestState
from waybill.errors import InputError
from waybill.manifests import ManifestError
from waybill.objects import ObjectNotFound, Objects

UriType = Literal["identifier", "path", "prefix"]
VERSION = 2
PAGE_SIZE = 10_000  # entries of one manifest
MAX_MANIFEST = 64 * 1024 * 1024  # bytes of one manifest that is read
MAX_DEPTH = 3  # of children: a root, its partitions, their pages


class ObjectFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one object of a manifest."""

    size: int | None = None
    sha256: str | None = None
    modified: str | None = None  # ISO 8601
    format: str | None = None


class ChildManifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page or a partition of a manifest."""

    uri: str  # the name of the child, beside or below the root
    count: int
    bytes: int | None = None
    sha256: str | None = None  # of the child's own bytes
    partition: str | None = None  # such as year=2023/month=01/day=01


class LotManifest(msgspec.Struct, frozen=True, omit_defaults=False):
    """A manifest as it is written. The fields up to `uris` are those of Clusterless, in its order."""

    state: ManifestState
    comment: str | None = None
    lotId: str = ""  # the keys of the format
    uriType: UriType = "identifier"
    uris: tuple[str, ...] = ()
    v: int = 1  # a manifest that does not say is of the five keys
    dataset: str | None = None  # name/version
    generation: int | None = None
    attempt: str | None = None
    created: str | None = None
    count: int | None = None  # of all entries, those of children included
    bytes: int | None = None  # of all entries; None: some size is not known
    objects: tuple[ObjectFacts, ...] = ()
    children: tuple[ChildManifest, ...] = ()
    absent: tuple[str, ...] = ()  # the finer lots that were not there when a roll-up started without them


class LotEntry(msgspec.Struct, frozen=True):
    """One object of a lot."""

    uri: str
    facts: ObjectFacts = ObjectFacts()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LotManifest).decode
_KEYS_OF_CLUSTERLESS = ("state", "comment", "lotId", "uriType", "uris")


def encode_manifest(manifest: LotManifest) -> bytes:
    """Return the bytes of a manifest: the five keys always, the others where they say something."""
    named = {key: getattr(manifest, key) for key in _KEYS_OF_CLUSTERLESS}
    if manifest.v > 1:
        for key in LotManifest.__struct_fields__[len(_KEYS_OF_CLUSTERLESS) :]:
            if (value := getattr(manifest, key)) not in (None, ()):
                named[key] = value
    return _encode(named)


def to_clusterless(manifest: LotManifest) -> bytes:
    """Return the five keys alone. Only of a manifest that has its entries itself."""
    if manifest.children:
        raise InputError(
            f"The manifest of {manifest.lotId} has children, which the form of five keys cannot hold; export them singly."
        )
    return encode_manifest(msgspec.structs.replace(manifest, v=1))


def decode_manifest(body: bytes, name: str) -> LotManifest:
    """Return the manifest of these bytes; raises ManifestError that names it."""
    try:
        manifest = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestError(f"{name} is no manifest of a lot: {error}.") from error
    if manifest.objects and len(manifest.objects) != len(manifest.uris):
        raise ManifestError(
            f"{name} has {len(manifest.uris)} uris and facts of {len(manifest.objects)} objects; it must have as many."
        )
    return manifest


def read_manifest(objects: Objects, name: str, *, sha256: str | None = None) -> LotManifest:
    """Return one manifest, without its children. Raises ManifestError if it is missing or not what it should be."""
    try:
        with objects.get(name) as stored:
            if stored.info.size > MAX_MANIFEST:
                raise ManifestError(
                    f"{name} has {stored.info.size} bytes; a manifest has at most {MAX_MANIFEST}. Long ones have children."
                )
            body = stored.read()
    except ObjectNotFound:
        raise ManifestError(f"There is no manifest {name}, which its lot needs.") from None
    if sha256 is not None and hashlib.sha256(body).hexdigest() != sha256:
        raise ManifestError(
            f"{name} has other bytes than the manifest that names it says; restore it, or replay the lot."
        )
    return decode_manifest(body, name)


def iter_entries(
    objects: Objects, name: str, manifest: LotManifest | None = None, *, depth: int = 0
) -> Iterator[LotEntry]:
    """Yield all entries of a manifest, those of its children included, in order and in bounded memory.

    Raises ManifestError, at the latest after the last entry, when a child is missing or has not what the root says.
    """
    root = manifest if manifest is not None else read_manifest(objects, name)
    if depth > MAX_DEPTH:
        raise ManifestError(f"{name} is a child of a child of a child; manifests have at most {MAX_DEPTH} levels.")
    count = 0
    facts = root.objects or (ObjectFacts(),) * len(root.uris)
    for uri, known in zip(root.uris, facts, strict=True):
        count += 1
        yield LotEntry(uri, known)
    for child in root.children:
        found = 0
        part = read_manifest(objects, child.uri, sha256=child.sha256)
        for entry in iter_entries(objects, child.uri, part, depth=depth + 1):
            found += 1
            yield entry
        if found != child.count:
            raise ManifestError(f"{child.uri} has {found} entries, and {name} says {child.count}.")
        count += found
    if root.count is not None and count != root.count:
        raise ManifestError(f"{name} has {count} entries and says {root.count}.")


class LotManifestWriter:
    """Writes the manifest of one lot from a stream of entries.

    The children are put first, under names below `folder` that are the attempt's own, then the root: so a root that is
    there is whole, and a run that dies leaves only names that its successor writes again.
    """

    def __init__(self, objects: Objects, folder: str, head: LotManifest, *, page_size: int = PAGE_SIZE) -> None:
        self._objects, self._folder, self._head, self._page_size = objects, folder.rstrip("/"), head, page_size
        self._uris: list[str] = []
        self._facts: list[ObjectFacts] = []
        self._children: list[ChildManifest] = []
        self._count = 0
        self._bytes: int | None = 0

    def add(self, entry: LotEntry) -> None:
        if len(self._uris) >= self._page_size:
            self._put_page()
        self._uris.append(entry.uri)
        self._facts.append(entry.facts)

    def add_all(self, entries: Iterable[LotEntry]) -> None:
        for entry in entries:
            self.add(entry)

    def add_child(self, child: ChildManifest) -> None:
        """Take a manifest that is written already: that of a part."""
        self._put_page()
        self._children.append(child)
        self._note(child.count, child.bytes)

    def build(self) -> LotManifest:
        """Return the root. The caller puts it where it belongs."""
        if self._children:
            self._put_page()
        else:
            self._note(len(self._uris), _sum_sizes(self._facts))
        return msgspec.structs.replace(
            self._head,
            v=VERSION,
            uris=tuple(self._uris),
            objects=_strip_unknown(self._facts),
            children=tuple(self._children),
            count=self._count,
            bytes=self._bytes,
        )

    def _put_page(self) -> None:
        if not self._uris:
            return
        size = _sum_sizes(self._facts)
        name = f"{self._folder}/page-{len(self._children):06}.json"
        page = msgspec.structs.replace(
            self._head,
            v=VERSION,
            uris=tuple(self._uris),
            objects=_strip_unknown(self._facts),
            count=len(self._uris),
            bytes=size,
        )
        stored = self._objects.put(name, body := encode_manifest(page))
        digest = stored.sha256 or hashlib.sha256(body).hexdigest()
        self._children.append(ChildManifest(name, len(self._uris), size, digest))
        self._note(len(self._uris), size)
        self._uris, self._facts = [], []

    def _note(self, count: int, size: int | None) -> None:
        self._count += count
        self._bytes = None if size is None or self._bytes is None else self._bytes + size


def _sum_sizes(facts: Iterable[ObjectFacts]) -> int | None:
    total = 0
    for each in facts:
        if each.size is None:
            return None
        total += each.size
    return total


def _strip_unknown(facts: list[ObjectFacts]) -> tuple[ObjectFacts, ...]:
    """Facts of which nothing is known are not written."""
    nothing = ObjectFacts()
    return tuple(facts) if any(each != nothing for each in facts) else ()
