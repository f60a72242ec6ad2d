"""The files of a version: planned from a deposit before anything is written, then their content is stored.

`plan_files` turns a deposit into the files of the next version. It refuses invalid paths, a path that is also the folder
of another, the same path twice, the deletion of a file that does not exist, and the update of an object that another
program wrote in a different layout.

A ContentWriter reads small content into memory, to be written together with the inventory, or stores it file by file in
several threads. `rewrite_damaged` replaces content that an audit found damaged, if the deposit has the same content.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

from waybill import manifests
from waybill.apps.ingest.storage import ocfl_inventory as ocfl
from waybill.apps.ingest.storage.ocfl_inventory import ContentFile, DigestAlgorithm
from waybill.apps.ingest.storage.ocfl_object import OcflObject, PendingWrite, read_back, stored_version_of
from waybill.apps.ingest.storage.protocol import MANIFEST_PATH, Deposit, InvalidDeposit, NotInStorage, SourceOpener
from waybill.manifests import ManifestEntry
from waybill.objects import ContentMismatch, ObjectNotFound, Objects, iter_chunks

MAX_IN_FLIGHT = 2  # files queued for each thread

_SHA256 = re.compile("[0-9a-f]{64}")


class PlannedFile(NamedTuple):
    """A file of the version; `source` is empty for a file of the previous version."""

    sha256: bytes
    size: int
    mime: str
    source: str = ""


def plan_files(objects: Objects, deposit: Deposit, ocfl_object: OcflObject | None) -> dict[str, PlannedFile]:
    """Return the files of the version by path, without its manifest."""
    if not deposit.object or not deposit.request.strip() or not deposit.request.isprintable():
        raise InvalidDeposit("A deposit needs its object, and its request as one line of text.")
    if deposit.mode == "add" and deposit.deletions:
        raise InvalidDeposit("A deposit in mode add lists all files of the version: deletions need mode update.")
    if ocfl_object is not None and (
        ocfl_object.inventory.contentDirectory != "content"
        or ocfl_object.inventory.head != f"v{ocfl_object.inventory.number}"
    ):
        raise InvalidDeposit(
            f"{ocfl_object.inventory.id} was written by another program with other folder names: it can only be read."
        )
    if ocfl_object is not None and not all(content.sha256 for content in ocfl_object.inventory.iter_contents()):
        raise InvalidDeposit(
            f"{ocfl_object.inventory.id} was written by another program, without SHA-256 in its fixity block: it can only be read."
        )
    new: dict[str, PlannedFile] = {}
    for file in deposit.files:
        check_path(file.path)
        if file.path in new:
            raise InvalidDeposit(f"{file.path} is in the deposit twice.")
        if not _SHA256.fullmatch(file.sha256) or file.size < 0:
            raise InvalidDeposit(f"{file.path} needs its size and its SHA-256 in lower-case hex.")
        new[file.path] = PlannedFile(bytes.fromhex(file.sha256), file.size, sys.intern(file.mime), file.source)
    files = dict(_iter_kept_files(objects, deposit, ocfl_object, new)) if deposit.mode == "update" else {}
    files.update(new)
    if not files:
        raise InvalidDeposit("A version needs at least one file.")
    _check_apart(files)
    return files


def check_path(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InvalidDeposit(
            f"{path!a} is not a path of a file: it holds half of a surrogate pair, which UTF-8 cannot express."
        ) from None
    if path == MANIFEST_PATH:
        raise InvalidDeposit(f"{MANIFEST_PATH} is written by the storage itself.")
    if "\0" in path or any(segment in ("", ".", "..") for segment in path.split("/")):
        raise InvalidDeposit(
            f"{path!r} is not a path of a file: it contains a zero byte, or a segment of it is empty, '.' or '..'."
        )


def _iter_kept_files(
    objects: Objects, deposit: Deposit, ocfl_object: OcflObject | None, new: dict[str, PlannedFile]
) -> Iterator[tuple[str, PlannedFile]]:
    """Yield the files of the newest version that are neither replaced nor deleted."""
    deletions = set(deposit.deletions)
    for path, planned in files_of(objects, ocfl_object) if ocfl_object else ():
        if path in deletions:
            deletions.discard(path)
        elif path not in new:
            yield path, planned
    if deletions:
        more = f" and {len(deletions) - 1} more are" if len(deletions) > 1 else " is"
        raise InvalidDeposit(
            f"{min(deletions)!r}{more} to be deleted, and {deposit.object} has no such file. Nothing of the update was stored.",
            code="deletion-target-missing",
        )


def files_of(objects: Objects, ocfl_object: OcflObject) -> Iterator[tuple[str, PlannedFile]]:
    """Yield the files of the newest version, from its manifest, or from the inventory if another program wrote it."""
    try:
        stored = stored_version_of(objects, ocfl_object, ocfl_object.inventory.number)
    except NotInStorage:
        yield from _files_of_foreign_version(objects, ocfl_object)
        return
    with manifests.open_manifest(objects, f"{ocfl_object.root}/{stored.place}") as reader:
        for entry in reader:
            yield (
                entry.uri,
                PlannedFile(bytes.fromhex(entry.sha256), entry.size, sys.intern(str(entry.extra.get("mime", "")))),
            )


def _files_of_foreign_version(objects: Objects, ocfl_object: OcflObject) -> Iterator[tuple[str, PlannedFile]]:
    by_digest = {content.digest: content for content in ocfl_object.inventory.iter_contents()}
    for text, paths in ocfl_object.inventory.decode_block(ocfl_object.inventory.number).state.items():
        content = by_digest[bytes.fromhex(text)]
        if not content.sha256:
            raise InvalidDeposit(
                f"{ocfl_object.inventory.id} was written by another program, without SHA-256 in its fixity block: it can only be read."
            )
        size = objects.head(f"{ocfl_object.root}/{content.place}").size
        for path in paths:
            yield path, PlannedFile(content.sha256, size, "")


def _check_apart(files: dict[str, PlannedFile]) -> None:
    """Refuse a file that is also the folder of another: OCFL forbids it, and it could not be unpacked."""
    for path in files:
        at = path.find("/")
        while at >= 0:
            if path[:at] in files or path[:at] == MANIFEST_PATH:
                raise InvalidDeposit(f"{path[:at]!r} cannot be a file and the folder of {path!r}.")
            at = path.find("/", at + 1)
        if MANIFEST_PATH.startswith(f"{path}/"):
            raise InvalidDeposit(f"{path!r} cannot be a file: it is the folder of {MANIFEST_PATH}.")


def build_manifest_entries(files: dict[str, PlannedFile], places: dict[bytes, str]) -> Iterator[ManifestEntry]:
    """Yield the entries of the version's manifest, ordered by path."""
    for path in sorted(files):
        planned = files[path]
        extra: dict[str, Any] = {"place": places[planned.sha256]}
        if planned.mime:
            extra["mime"] = planned.mime
        yield ManifestEntry(path, planned.size, planned.sha256.hex(), extra)


class ContentWriter:
    """Stores the content of one version of the object at `root`."""

    def __init__(
        self,
        objects: Objects,
        root: str,
        sources: SourceOpener,
        *,
        algorithm: DigestAlgorithm,
        threads: int,
        check: Callable[[], None],
    ) -> None:
        self._objects, self._root, self._sources = objects, root, sources
        self._algorithm, self._threads, self._check = algorithm, threads, check

    def read_all(
        self, files: dict[str, PlannedFile], missing: dict[bytes, str], number: int, writes: list[PendingWrite]
    ) -> list[ContentFile]:
        """Read all missing content into memory and append it to `writes`."""
        self._check()
        return [
            self._read_small(path, files[path], f"v{number}/content/{sha256.hex()}", writes)
            for sha256, path in missing.items()
        ]

    def _read_small(self, path: str, planned_file: PlannedFile, place: str, writes: list[PendingWrite]) -> ContentFile:
        with self._sources(planned_file.source) as data:
            content = b"".join(iter_chunks(data))
        if (len(content), hashlib.sha256(content).digest()) != (planned_file.size, planned_file.sha256):
            raise ContentMismatch(
                f"{path} does not have the expected {planned_file.size} bytes of SHA-256 {planned_file.sha256.hex()}."
            )
        writes.append(
            PendingWrite(f"{self._root}/{place}", lambda: [content], planned_file.size, planned_file.sha256.hex())
        )
        digest = hashlib.new(self._algorithm, content).digest() if self._algorithm != "sha256" else planned_file.sha256
        return ContentFile(place, digest, planned_file.sha256)

    def store_all(
        self, files: dict[str, PlannedFile], missing: dict[bytes, str], folder: str, has_leftovers: bool
    ) -> list[ContentFile]:
        """Store the content that the object does not have yet, several files at a time, ordered by digest, so that a
        retry does the same.
        """

        def store(sha256: bytes) -> ContentFile:
            return self._store(missing[sha256], files[missing[sha256]], f"{folder}/{sha256.hex()}", has_leftovers)

        order = list(missing)
        if len(order) < 2 or self._threads < 2:
            return [store(sha256) for sha256 in self._iter_with_checks(order)]
        stored: list[ContentFile] = []
        running: set[Future[ContentFile]] = set()
        with ThreadPoolExecutor(min(self._threads, len(order))) as pool:
            try:
                for sha256 in self._iter_with_checks(order):
                    running.add(pool.submit(store, sha256))
                    if len(running) >= self._threads * MAX_IN_FLIGHT:
                        done, running = wait(running, return_when=FIRST_COMPLETED)
                        stored.extend(future.result() for future in done)
                stored.extend(future.result() for future in running)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return sorted(stored)

    def _iter_with_checks(self, order: list[bytes]) -> Iterator[bytes]:
        for count, sha256 in enumerate(order):
            if count % 100 == 0:
                self._check()
            yield sha256

    def _store(self, path: str, planned_file: PlannedFile, place: str, has_leftovers: bool) -> ContentFile:
        name = f"{self._root}/{place}"
        sha256 = planned_file.sha256.hex()
        if has_leftovers and (found := self._measure(name)) and found[:2] == (planned_file.size, sha256):
            return ContentFile(place, bytes.fromhex(found[2]), planned_file.sha256)
        tee = _DigestTee(self._algorithm)
        with self._sources(planned_file.source) as data:
            try:
                self._objects.put(name, tee.pass_through(iter_chunks(data)), size=planned_file.size, sha256=sha256)
            except ContentMismatch as error:
                raise ContentMismatch(f"{path}: {error}") from error
        read_back(self._objects, name, planned_file.size, sha256)
        return ContentFile(place, tee.digest or planned_file.sha256, planned_file.sha256)

    def _measure(self, name: str) -> tuple[int, str, str] | None:
        try:
            with self._objects.get(name) as body:
                return ocfl.digest_of(body, self._algorithm)
        except ObjectNotFound:
            return None


class _DigestTee:
    """Computes the digest of the object's algorithm from passing bytes; none for SHA-256, which is already known."""

    def __init__(self, algorithm: DigestAlgorithm) -> None:
        self._hash = hashlib.new(algorithm) if algorithm != "sha256" else None

    @property
    def digest(self) -> bytes:
        return self._hash.digest() if self._hash else b""

    def pass_through(self, data: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in data:
            if self._hash:
                self._hash.update(chunk)
            yield chunk


def rewrite_damaged(
    objects: Objects,
    root: str,
    sources: SourceOpener,
    *,
    contents: Iterable[ContentFile],
    damaged_places: Container[str],
    files: Mapping[str, PlannedFile],
    check: Callable[[], None],
) -> list[str]:
    """Write the content at damaged places again, if one of the files has the same content; return the places."""
    sources_by_sha256 = {planned.sha256: planned for planned in files.values() if planned.source}
    rewritten: list[str] = []
    for content in contents:
        planned = sources_by_sha256.get(content.sha256)
        if planned is None or content.place not in damaged_places:
            continue
        check()
        name, sha256 = f"{root}/{content.place}", planned.sha256.hex()
        with sources(planned.source) as data:
            objects.put(name, iter_chunks(data), size=planned.size, sha256=sha256)
        read_back(objects, name, planned.size, sha256)
        rewritten.append(content.place)
    return rewritten
