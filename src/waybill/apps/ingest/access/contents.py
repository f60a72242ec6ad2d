"""What an order asks for, file by file from the manifests at rest, each verified while it is read.

Everything comes from storage: the list from the manifest of the version, whose own digest is checked, and the bytes
from their places. A file that is not what its manifest says stops the packing, and the sentence names it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from datetime import datetime

from waybill.apps.ingest.access.members import Member
from waybill.apps.ingest.access.naming import Naming
from waybill.apps.ingest.access.order import ALL, Order
from waybill.apps.ingest.names import shown
from waybill.apps.ingest.storage import MANIFEST, StorageService, Stored
from waybill.manifests import Entry
from waybill.objects import NotFound, Objects


class Unfit(Exception):
    """The object is not as it should be, so nothing is made of it."""


class Contents:
    """The members of one archive; `files` and `bytes` count those that went by."""

    def __init__(
        self, storage: StorageService, objects: Objects, order: Order, check: Callable[[int], None] = lambda done: None
    ) -> None:
        """`check` is told of every portion how many bytes have gone by, and raises if that is enough."""
        self._storage, self._order, self._check = storage, order, check
        self._named = order.named(objects)
        self.naming = Naming(order.top)
        self.files = 0
        self.bytes = 0

    def __iter__(self) -> Iterator[Member]:
        ark = self._order.object
        whole = self._order.version == ALL
        numbers = [version.number for version in self._storage.versions(ark)] if whole else [self._order.version]
        for number in numbers:
            stored = self._stored(ark, number)
            modified = datetime.fromisoformat(stored.created).timestamp()
            for entry in self._entries(stored):
                name = self.naming.name(f"v{number}/{entry.uri}" if whole else entry.uri)
                self.files += 1
                yield Member(name, entry.size, modified, lambda e=entry, s=stored: self._read(s, e))  # type: ignore[misc]

    def _stored(self, ark: str, number: int) -> Stored:
        try:
            return self._storage.stored(ark, number)
        except NotFound:  # its manifest, whose size is asked for
            raise Unfit(f"{MANIFEST} of version {number} of {ark} is missing in storage.") from None

    def _entries(self, stored: Stored) -> Iterator[Entry]:
        """The files of a version that are wanted, its manifest last."""
        left = set(self._named) if self._named is not None else None
        own = Entry(MANIFEST, stored.size, stored.sha256, {"place": stored.place})
        self._check_manifest(stored)
        with self._storage.manifest(stored) as reader:
            for entry in itertools.chain(reader, [own]):
                if left is not None and entry.uri in left:
                    left.discard(entry.uri)
                    yield entry
                elif left is None and self._order.wants(entry.uri):
                    yield entry
        if left:
            raise Unfit(f"Version {stored.version} of {stored.object} has no file {shown(min(left))}.")

    def _check_manifest(self, stored: Stored) -> None:
        """The list of files decides what is in the archive, so it is read and compared before it is believed."""
        if not stored.sha256:
            return
        finding = self._storage.check(stored.object, stored.place, stored.size, stored.sha256)
        if finding is not None:
            raise Unfit(f"{MANIFEST} of version {stored.version} of {stored.object} is damaged: {finding.words}")

    def _read(self, stored: Stored, entry: Entry) -> Iterator[bytes]:
        where = f"{shown(entry.uri)} in version {stored.version} of {stored.object}"
        digest, size = hashlib.sha256(), 0
        try:
            with self._storage.read(stored.object, str(entry.extra.get("place", ""))) as body:
                for portion in body:
                    size += len(portion)
                    if size > entry.size:
                        raise Unfit(f"{where} is damaged: it has more than the {entry.size} bytes that it should have.")
                    digest.update(portion)
                    self.bytes += len(portion)
                    self._check(self.bytes)
                    yield portion
        except NotFound:
            raise Unfit(f"{where} is missing in storage.") from None
        if (size, digest.hexdigest()) != (entry.size, entry.sha256):
            raise Unfit(
                f"{where} is damaged: it has {size} bytes of SHA-256 {digest.hexdigest()}; it should have {entry.size} of {entry.sha256}."
            )
