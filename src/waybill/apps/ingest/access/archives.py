"""The files of an order, read from storage: `ArchiveContents` yields them as members of a container, file by file from the
stored manifests, each verified while it is read. A damaged file ends the container with StorageDamaged.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from datetime import datetime

from waybill.apps.ingest.documents import ALL_VERSIONS, AssemblyOrder
from waybill.apps.ingest.storage import MANIFEST_PATH, StorageService, StoredVersion
from waybill.apps.ingest.storage.protocol import StorageDamaged
from waybill.files.containers import MemberNames, MemberToPack
from waybill.files.names import quote_text
from waybill.manifests import ManifestEntry
from waybill.objects import ObjectNotFound, Objects


class ArchiveContents:
    """The members of one archive; `files` and `bytes` count those that were read."""

    def __init__(
        self,
        storage: StorageService,
        objects: Objects,
        order: AssemblyOrder,
        check: Callable[[int], None] = lambda done: None,
    ) -> None:
        """`check` is called for every chunk with the number of bytes read so far; it raises to stop."""
        self._storage, self._order, self._check = storage, order, check
        self._wanted_paths = order.read_file_names(objects)
        self.names = MemberNames(order.top_folder)
        self.files = 0
        self.bytes = 0

    def __iter__(self) -> Iterator[MemberToPack]:
        ark = self._order.object
        all_versions = self._order.version == ALL_VERSIONS
        numbers = (
            [version.number for version in self._storage.list_versions(ark)] if all_versions else [self._order.version]
        )
        for number in numbers:
            stored = self._find_version(ark, number)
            modified = datetime.fromisoformat(stored.created).timestamp()
            for entry in self._iter_entries(stored):
                name = self.names.assign(f"v{number}/{entry.uri}" if all_versions else entry.uri)
                self.files += 1
                yield MemberToPack(name, entry.size, modified, lambda e=entry, s=stored: self._read(s, e))  # type: ignore[misc]

    def _find_version(self, ark: str, number: int) -> StoredVersion:
        try:
            return self._storage.get_version(ark, number)
        except ObjectNotFound:  # of its manifest
            raise StorageDamaged(f"{MANIFEST_PATH} of version {number} of {ark} is missing in storage.") from None

    def _iter_entries(self, stored: StoredVersion) -> Iterator[ManifestEntry]:
        """Yield the wanted files of a version, its manifest last."""
        missing = set(self._wanted_paths) if self._wanted_paths is not None else None
        manifest_entry = ManifestEntry(MANIFEST_PATH, stored.size, stored.sha256, {"place": stored.place})
        self._check_manifest(stored)
        with self._storage.open_manifest(stored) as reader:
            for entry in itertools.chain(reader, [manifest_entry]):
                if missing is not None and entry.uri in missing:
                    missing.discard(entry.uri)
                    yield entry
                elif missing is None and self._order.is_included(entry.uri):
                    yield entry
        if missing:
            raise StorageDamaged(f"Version {stored.version} of {stored.object} has no file {quote_text(min(missing))}.")

    def _check_manifest(self, stored: StoredVersion) -> None:
        """Verify the manifest before it is used: it decides what is in the archive."""
        if not stored.sha256:
            return
        finding = self._storage.check(stored.object, stored.place, stored.size, stored.sha256)
        if finding is not None:
            raise StorageDamaged(
                f"{MANIFEST_PATH} of version {stored.version} of {stored.object} is damaged: {finding.message}"
            )

    def _read(self, stored: StoredVersion, entry: ManifestEntry) -> Iterator[bytes]:
        where = f"{quote_text(entry.uri)} in version {stored.version} of {stored.object}"
        digest, size = hashlib.sha256(), 0
        try:
            with self._storage.read(stored.object, str(entry.extra.get("place", ""))) as body:
                for chunk in body:
                    size += len(chunk)
                    if size > entry.size:
                        raise StorageDamaged(
                            f"{where} is damaged: it has more than the {entry.size} bytes that it should have."
                        )
                    digest.update(chunk)
                    self.bytes += len(chunk)
                    self._check(self.bytes)
                    yield chunk
        except ObjectNotFound:
            raise StorageDamaged(f"{where} is missing in storage.") from None
        if (size, digest.hexdigest()) != (entry.size, entry.sha256):
            raise StorageDamaged(
                f"{where} is damaged: it has {size} bytes of SHA-256 {digest.hexdigest()}; it should have {entry.size} of {entry.sha256}."
            )
