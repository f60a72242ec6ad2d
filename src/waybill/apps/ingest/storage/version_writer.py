"""Writing a version: from a deposit to a stored version. A crash anywhere leaves the previous version, or this one.

    1  the root inventory is read; for a request that made a version before, that version is returned
    2  content, each under its SHA-256:          <object>/v2/content/<sha256>, read back and compared
    3  the version's manifest, a file like any:  <object>/v2/content/<sha256>
    4  <object>/v2/inventory.json and its sidecar
    5  <object>/inventory.json                   **the version is published**, or ConcurrentWrite is raised
    6  <object>/inventory.json.sha512            for a new object its declaration before; leftovers of an earlier attempt are removed

Small files are written together: a new object as one folder, which becomes visible with everything in it, if the object
store can do that; otherwise 2 to 4 in one bulk put, and 5 and 6 in another, so that folders are synced once and not for
each file.

Content is named by its digest, so it cannot be confused with that of another attempt: content that exists and reads back
correctly is used, and two writers of the same version never overwrite each other's content. Nothing of another writer is
removed before step 5 has succeeded, since until then the other one may win. A crash before 5 leaves unreferenced
content, a crash after 5 an outdated sidecar: the next write, or `recover`, removes the former and rewrites the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from waybill.apps.ingest.storage import ocfl_inventory as ocfl
from waybill.apps.ingest.storage.ocfl_integrity import has_matching_sidecars, make_durable, remove_below, repair_object
from waybill.apps.ingest.storage.ocfl_inventory import ContentFile, DigestAlgorithm, NewVersion
from waybill.apps.ingest.storage.ocfl_object import (
    MAX_BYTES_TOGETHER,
    MAX_FILES_TOGETHER,
    EncodedInventory,
    OcflObject,
    PendingWrite,
    build_declaration_write,
    etag_of,
    load_object,
    put_all,
    put_as_folder,
    stored_version_of,
)
from waybill.apps.ingest.storage.protocol import MANIFEST_PATH, ConcurrentWrite, Deposit, SourceOpener, StoredVersion
from waybill.apps.ingest.storage.version_files import (
    ContentWriter,
    PlannedFile,
    build_manifest_entries,
    plan_files,
    rewrite_damaged,
)
from waybill.manifests import ManifestHeader, ManifestWriter
from waybill.objects import Objects, can_put_new_folder


class VersionWriter:
    """One write of one object."""

    def __init__(
        self,
        objects: Objects,
        root: str,
        sources: SourceOpener,
        *,
        algorithm: DigestAlgorithm,
        threads: int,
        now: Callable[[], datetime],
        check: Callable[[], None],
    ) -> None:
        self._objects, self._root, self._sources = objects, root, sources
        self._algorithm, self._threads, self._now, self._check = algorithm, threads, now, check

    @property
    def _content_writer(self) -> ContentWriter:
        """Uses the algorithm of the object, which is known after its inventory is read."""
        return ContentWriter(
            self._objects,
            self._root,
            self._sources,
            algorithm=self._algorithm,
            threads=self._threads,
            check=self._check,
        )

    def write(self, deposit: Deposit) -> StoredVersion:
        stored = self._write(deposit, as_new_folder=True)
        if stored is None:  # another writer was first, or the store cannot: load the object again
            stored = self._write(deposit, as_new_folder=False)
        assert stored is not None
        return stored

    def _write(self, deposit: Deposit, *, as_new_folder: bool) -> StoredVersion | None:
        """Write the deposit. With `as_new_folder` a small new object is written as one folder; returns None, with
        nothing written, if that failed.
        """
        ocfl_object = load_object(self._objects, self._root)
        if ocfl_object is not None:
            for version in ocfl_object.inventory.list_versions():
                if version.request == deposit.request:
                    # The version exists; its sidecars may be outdated, and its last write may not be durable.
                    repair_object(self._objects, ocfl_object)
                    make_durable(self._objects, ocfl_object)
                    return stored_version_of(self._objects, ocfl_object, version.number)
            if not has_matching_sidecars(self._objects, ocfl_object):
                repair_object(self._objects, ocfl_object)
            self._algorithm = ocfl_object.inventory.algorithm
        files = plan_files(self._objects, deposit, ocfl_object)
        number = ocfl_object.inventory.number + 1 if ocfl_object else 1
        folder = f"{self._root}/v{number}"
        has_leftovers = next(iter(self._objects.list(folder, limit=1)), None) is not None  # of an interrupted attempt
        if (
            as_new_folder
            and ocfl_object is None
            and not has_leftovers
            and can_put_new_folder(self._objects)
            and _is_small(files, _find_missing(files, {}))
        ):
            return self._write_new_folder(deposit, files)
        # The etags that this attempt may replace are read now: a writer that was overtaken must not replace later
        # versions.
        main, sidecar = self._get_inventory_names()
        etags = {
            name: etag_of(self._objects, f"{folder}/{name}") if has_leftovers else None for name in (main, sidecar)
        }
        etags["root sidecar"] = etag_of(self._objects, f"{self._root}/{sidecar}") if ocfl_object else None

        contents = {c.sha256: c for c in ocfl_object.inventory.iter_contents() if c.sha256} if ocfl_object else {}
        if ocfl_object is not None and deposit.damaged_places:
            rewrite_damaged(
                self._objects,
                self._root,
                self._sources,
                contents=ocfl_object.inventory.iter_contents(),
                damaged_places=set(deposit.damaged_places),
                files=files,
                check=self._check,
            )
        missing = _find_missing(files, contents)
        writes: list[PendingWrite] = []  # small files, written together at the end
        if not has_leftovers and _is_small(files, missing):
            new = self._content_writer.read_all(files, missing, number, writes)
        else:
            new = self._content_writer.store_all(files, missing, f"v{number}/content", has_leftovers)
        contents.update((content.sha256, content) for content in new)
        new_version, stored = self._describe_version(deposit, files, contents, number, new, writes)
        try:
            self._publish(ocfl_object, new_version, etags, writes)
        except ConcurrentWrite:
            # Published by this write, whose response was lost, or by another run of the same request: its manifest may
            # differ from ours, and the files beside it are not ours to remove.
            if (published := self._find_published(number, deposit.request)) is None:
                raise
            return published
        if has_leftovers:
            own = {content.place.removeprefix(f"v{number}/") for content in new}
            remove_below(self._objects, folder, lambda name, info: name.startswith("content/") and name not in own)
        return stored

    def _write_new_folder(self, deposit: Deposit, files: dict[str, PlannedFile]) -> StoredVersion | None:
        """Write a new object as one folder; None, with nothing written, if that is impossible."""
        writes: list[PendingWrite] = []
        new = self._content_writer.read_all(files, _find_missing(files, {}), 1, writes)
        new_version, stored = self._describe_version(
            deposit, files, {content.sha256: content for content in new}, 1, new, writes
        )
        inventory = EncodedInventory.build(None, new_version)
        writes += [
            *inventory.to_writes(f"{self._root}/v1"),
            build_declaration_write(self._root),
            *inventory.to_writes(self._root),
        ]
        self._check()
        return stored if put_as_folder(self._objects, self._root, writes) else None

    def _describe_version(
        self,
        deposit: Deposit,
        files: dict[str, PlannedFile],
        contents: dict[bytes, ContentFile],
        number: int,
        new: list[ContentFile],
        writes: list[PendingWrite],
    ) -> tuple[NewVersion, StoredVersion]:
        """Return the version, with its manifest added to the new content and the writes, and what `write` returns once
        it is published.
        """
        created = self._now().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        manifest, size = self._add_manifest(deposit, files, contents, number, created, writes)
        new.append(manifest)
        states = {path: contents[planned.sha256].digest for path, planned in files.items()}
        states[MANIFEST_PATH] = manifest.digest
        new_version = NewVersion(
            deposit.object,
            number,
            self._algorithm,
            created,
            deposit.message,
            deposit.request,
            deposit.user,
            deposit.address,
            new,
            states,
        )
        return new_version, StoredVersion(
            object=deposit.object,
            version=number,
            request=deposit.request,
            created=created,
            place=manifest.place,
            sha256=manifest.sha256.hex(),
            size=size,
        )

    def _add_manifest(
        self,
        deposit: Deposit,
        files: dict[str, PlannedFile],
        contents: dict[bytes, ContentFile],
        number: int,
        created: str,
        writes: list[PendingWrite],
    ) -> tuple[ContentFile, int]:
        about = {
            "object": deposit.object,
            "version": number,
            "request": deposit.request,
            "created": created,
            "mode": deposit.mode,
            "about": dict(deposit.about),
        }
        places = {sha256: content.place for sha256, content in contents.items()}

        def encode_chunks() -> Iterable[bytes]:
            return ManifestWriter(ManifestHeader(ordered=True, about=about)).iter_chunks(
                build_manifest_entries(files, places)
            )

        size, sha256, digest = ocfl.digest_of(encode_chunks(), self._algorithm)
        place = f"v{number}/content/{sha256}"
        writes.append(PendingWrite(f"{self._root}/{place}", encode_chunks, size, sha256))
        return ContentFile(place, bytes.fromhex(digest), bytes.fromhex(sha256)), size

    def _get_inventory_names(self) -> tuple[str, str]:
        return ocfl.INVENTORY_FILE, ocfl.sidecar_name_of(self._algorithm)

    def _publish(
        self, ocfl_object: OcflObject | None, new: NewVersion, etags: dict[str, str | None], writes: list[PendingWrite]
    ) -> None:
        inventory = EncodedInventory.build(ocfl_object.inventory if ocfl_object else None, new)
        main, sidecar = self._get_inventory_names()
        writes += inventory.to_writes(f"{self._root}/v{new.number}", etags[main], etags[sidecar])
        put_all(self._objects, writes)
        self._check()
        published, root_sidecar = inventory.to_writes(
            self._root, ocfl_object.etag if ocfl_object else None, etags["root sidecar"]
        )
        # The declaration is written after the root inventory, so that a folder that has it and no inventory has lost one;
        # and before the sidecar, so that a matching sidecar means that nothing is missing.
        declaration = [build_declaration_write(self._root)] if ocfl_object is None else []
        put_all(self._objects, [published, *declaration, root_sidecar])

    def _find_published(self, number: int, request: str) -> StoredVersion | None:
        """Return the version that the request made, if it made one. Files that this attempt wrote beside the newest
        version of another writer are restored to that version.
        """
        ocfl_object = load_object(self._objects, self._root)
        if ocfl_object is None:
            return None
        if ocfl_object.inventory.number == number:
            repair_object(self._objects, ocfl_object)
        if not any(
            (version.number, version.request) == (number, request) for version in ocfl_object.inventory.list_versions()
        ):
            return None
        make_durable(self._objects, ocfl_object)
        return stored_version_of(self._objects, ocfl_object, number)


def _is_small(files: dict[str, PlannedFile], missing: dict[bytes, str]) -> bool:
    """Whether all content may be ocfl_object in memory and written together."""
    return (
        len(missing) < MAX_FILES_TOGETHER // 2
        and sum(files[path].size for path in missing.values()) < MAX_BYTES_TOGETHER // 2
    )


def _find_missing(files: dict[str, PlannedFile], known: dict[bytes, ContentFile]) -> dict[bytes, str]:
    """Return the content that the object does not have yet, ordered by digest, each with the path of one file that
    has it.
    """
    missing: dict[bytes, str] = {}
    for path, planned in files.items():
        if planned.sha256 not in known:
            missing.setdefault(planned.sha256, path)
    return dict(sorted(missing.items()))
