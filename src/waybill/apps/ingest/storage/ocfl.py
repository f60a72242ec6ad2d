"""OcflStorage: the storage service that keeps objects in an OCFL 1.1 storage root, on any object store.

    storage = OcflStorage(objects, "ocfl", sources) stored = storage.write(Deposit(object="ark:/99999/fk4x",
    request="job 7", files=[FileToStore("producer/a.txt", 3, sha, "file:...")]))

root.py says where an object lies, writing.py how a version comes to be, recovery.py and auditing.py what happens when
something went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from waybill import manifests
from waybill.apps.ingest.storage import auditing, recovery
from waybill.apps.ingest.storage.holding import Held, load, stored_in
from waybill.apps.ingest.storage.ocfl_inventory import Algorithm
from waybill.apps.ingest.storage.protocol import (
    Deposit,
    Finding,
    Late,
    NotStored,
    Recovered,
    Sources,
    Stored,
    Unsound,
    Version,
)
from waybill.apps.ingest.storage.root import Root
from waybill.apps.ingest.storage.writing import VersionWriter
from waybill.manifests import Reader
from waybill.objects import Body, Objects


class OcflStorage:
    """A storage service on an object store. May be used from many threads; each object from one writer at a time."""

    def __init__(
        self,
        objects: Objects,
        prefix: str,
        sources: Sources,
        *,
        algorithm: Algorithm = "sha512",
        threads: int = 4,
        declare_layout: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`algorithm` is for new objects: with sha256 content is digested once instead of twice, and validators warn
        about it (W004).
        """
        self._objects, self._sources = objects, sources
        self._algorithm, self._threads, self._now = algorithm, threads, now
        self._root = Root(objects, prefix, declare_layout=declare_layout)

    def write(self, deposit: Deposit, *, check: Callable[[], None] = lambda: None) -> Stored:
        self._root.make()
        writer = VersionWriter(
            self._objects,
            self._root.place(deposit.object),
            self._sources,
            algorithm=self._algorithm,
            threads=self._threads,
            now=self._now,
            check=check,
        )
        return writer.write(deposit)

    def look(self, object_id: str, request: str) -> Stored | None:
        held = load(self._objects, self._root.place(object_id))
        for version in held.inventory.described() if held else ():
            if held is not None and version.request == request:
                return stored_in(self._objects, held, version.number)
        return None

    def versions(self, object_id: str) -> list[Version]:
        return self._held(object_id).inventory.described()

    def stored(self, object_id: str, number: int = 0) -> Stored:
        held = self._held(object_id)
        return stored_in(self._objects, held, self._number(held, number))

    def manifest(self, stored: Stored) -> Reader:
        return manifests.read(self._objects, f"{self._root.place(stored.object)}/{stored.place}")

    def read(self, object_id: str, place: str, *, start: int = 0, end: int | None = None) -> Body:
        return self._objects.get(f"{self._root.place(object_id)}/{place}", start=start, end=end)

    def open(self, object_id: str, path: str, number: int = 0, *, start: int = 0, end: int | None = None) -> Body:
        held = self._held(object_id)
        number = self._number(held, number)
        for digest, paths in held.inventory.block(number).state.items():
            if path in paths:
                return self.read(object_id, held.inventory.manifest[digest][0], start=start, end=end)
        raise NotStored(f"Version {number} of {object_id} has no file {path!r}.")

    def check(self, object_id: str, place: str, size: int, sha256: str) -> Finding | None:
        return auditing.check(self._objects, self._root.place(object_id), place, size, sha256)

    def verify(self, object_id: str) -> Iterator[Finding]:
        return auditing.verify(self._objects, self._root.place(object_id), object_id)

    def recover(self, object_id: str) -> Recovered:
        return recovery.recover(self._objects, self._root.place(object_id))

    def recover_all(self, older_than: float, after: str = "") -> Iterator[tuple[str, Recovered]]:
        """Recover every object, also those that never got an id, as (cursor, what was done) for each where something
        was.

        Only leftovers that are older than so many seconds are removed: of them it is known that nobody is writing them
        any more.
        """
        before = self._now() - timedelta(seconds=older_than)
        for root in self._root.walk(after):
            if (done := self._recover_old(root, before)) != Recovered():
                yield self._root.cursor(root), done

    def recover_some(
        self, older_than: float, after: str = "", *, most: int = 100
    ) -> tuple[str, list[tuple[str, Recovered]]]:
        """The same for the next few objects: where to go on (empty: all were seen), and what was done."""
        before = self._now() - timedelta(seconds=older_than)
        roots = list(islice(self._root.walk(after), most))
        done = [(self._root.cursor(root), self._recover_old(root, before)) for root in roots]
        return done[-1][0] if len(roots) == most else "", [(at, each) for at, each in done if each != Recovered()]

    def _recover_old(self, root: str, before: datetime) -> Recovered:
        try:
            return recovery.recover(self._objects, root, old=lambda info: info.modified < before, folders=False)
        except Late:
            return Recovered()  # somebody writes it just now
        except Unsound as error:
            return Recovered(trouble=str(error))

    def objects(self, after: str = "") -> Iterator[tuple[str, str]]:
        for root in self._root.walk(after):
            try:
                held = load(self._objects, root)
            except Unsound:
                yield self._root.cursor(root), ""
                continue
            if held is not None:
                yield self._root.cursor(root), held.inventory.id

    def _held(self, object_id: str) -> Held:
        held = load(self._objects, self._root.place(object_id))
        if held is None:
            raise NotStored(f"There is no object {object_id} in the storage.")
        return held

    def _number(self, held: Held, number: int) -> int:
        if not 0 <= number <= held.inventory.number:
            raise NotStored(f"{held.inventory.id} has no version {number}; it has {held.inventory.number}.")
        return number or held.inventory.number
