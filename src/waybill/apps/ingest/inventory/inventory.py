"""Inventory: what is in storage, for searches and audits, built from the manifests of versions alone.

    inventory = Inventory(index)
    inventory.record(stored, storage)                    records a version; a repetition changes nothing
    inventory.search(owner=..., text="husky chicken")    a page of objects, and the cursor of the next page
    rebuild_object(inventory, storage, ark)              records one object again from storage; rebuild_page some of all

The storage is authoritative, never the inventory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from waybill.apps.ingest.inventory.catalogue import (
    ROWS_PER_TRANSACTION,
    InventoryCatalogue,
    InventoryDescription,
    LocalIdTaken,
    VersionSource,
    is_foreign_place,
    words_of,
)
from waybill.apps.ingest.storage import (
    NotInStorage,
    StorageDamaged,
    StorageError,
    StorageFinding,
    StorageService,
    StoredVersion,
    VersionSummary,
)
from waybill.errors import InputError
from waybill.index import Index, Row
from waybill.manifests import ManifestError
from waybill.objects import ObjectNotFound

PAGE_SIZE = 100
MAX_ROWS = 1000  # of a page
MAX_TERMS = 4  # words in a search

_VERSION_FIELDS = ("object", "version", "request", "created", "place", "sha256", "size")


class InventoryPage(NamedTuple):
    """Some rows, and the value of `after` for the next page; empty at the end."""

    rows: list[Row]
    next: str = ""


class Inventory:
    """The inventory in one index. One connection, so one thread."""

    def __init__(self, index: Index) -> None:
        self.catalogue = InventoryCatalogue()
        self.tables = index.open_catalogue(self.catalogue)

    def record(self, stored: StoredVersion, storage: StorageService, *, fix: bool = False) -> bool:
        """Record a version from its manifest; return whether anything was changed."""
        return self.catalogue.record(self.tables, VersionSource(stored, storage.open_manifest), fix=fix)

    def get_object(self, ark: str) -> Row | None:
        """Return an object with its collections and local ids (the first thousand of each)."""
        rows = self.tables.query("object", ark=ark)
        if not rows:
            return None
        collections = [row["collection"] for row in self.tables.query("members", ark=ark, row_limit=MAX_ROWS)]
        localids = [row["localid"] for row in self.tables.query("localids", ark=ark, row_limit=MAX_ROWS)]
        return {**rows[0], "collections": collections, "local_ids": localids}

    def close_object(self, ark: str, embargo: str) -> None:
        """Set the end of an object's embargo, before the version that says so is stored. No object, no change."""
        self.tables.execute("close_object", ark=ark, embargo=embargo)

    def list_local_ids(self, ark: str, owner: str) -> tuple[str, ...]:
        """Return the local ids that the owner gave an object (of the first thousand)."""
        return tuple(
            row["localid"]
            for row in self.tables.query("localids", ark=ark, row_limit=MAX_ROWS)
            if row["owner"] == owner
        )

    def ark_of(self, owner: str, localid: str) -> str | None:
        """Return the object to which the owner gave this local id."""
        rows = self.tables.query("localid", owner=owner, localid=localid)
        return str(rows[0]["ark"]) if rows else None

    def list_versions(self, ark: str, *, after: int = 0, limit: int = PAGE_SIZE) -> list[Row]:
        return self.tables.query("versions", ark=ark, after=after, row_limit=_check_limit(limit))

    def get_version(self, ark: str, number: int) -> StoredVersion | None:
        """Return a version as the storage returned it."""
        rows = self.tables.query("version", ark=ark, number=number)
        if not rows:
            return None
        values = {**rows[0], "object": ark, "version": number}
        return StoredVersion(**{name: values[name] for name in _VERSION_FIELDS})

    def is_stored_elsewhere(self, ark: str) -> bool:
        """Whether another storage service stores the newest version of an object."""
        rows = self.tables.query("head", ark=ark)
        return bool(rows) and is_foreign_place(rows[0]["place"])

    def list_files(self, ark: str, number: int, *, after: str = "", limit: int = PAGE_SIZE) -> InventoryPage:
        """Return a page of the files of a version, ordered by path, with their places in storage."""
        return _to_page(
            self.tables.query("files", ark=ark, number=number, after=after, row_limit=_check_limit(limit)),
            limit,
            "path",
        )

    def list_checked_files(self, ark: str, number: int, *, after: str = "", limit: int = PAGE_SIZE) -> InventoryPage:
        """Return a page as `list_files` does, with the time and the result of each file's last audit."""
        return _to_page(
            self.tables.query("checked_files", ark=ark, number=number, after=after, row_limit=_check_limit(limit)),
            limit,
            "path",
        )

    def get_file(self, ark: str, number: int, path: str) -> Row | None:
        rows = self.tables.query("file", ark=ark, number=number, path=path)
        return rows[0] if rows else None

    def search(
        self,
        *,
        ark: str = "",
        owner: str = "",
        local_id: str = "",
        collection: str = "",
        text: str = "",
        after: str = "",
        limit: int = PAGE_SIZE,
    ) -> InventoryPage:
        """Return a page of objects, ordered by ARK: one ARK; or by local id, by words of title, creator and date, by
        collection, by owner.

        `owner` can be combined with each of them, `collection` with words; other combinations raise InputError.
        """
        if sum(map(bool, (ark, local_id, text or collection))) > 1:
            raise InputError(
                "Search by ARK, by local id, or by words and collection: one of them at a time.", code="bad-search"
            )
        if ark:
            return InventoryPage(
                [row for row in self.tables.query("object", ark=ark) if not owner or row["owner"] == owner]
            )
        values: dict[str, Any] = {"after": after, "row_limit": _check_limit(limit), "owner": owner}
        if local_id:
            statement, values = "search_localid", {**values, "localid": local_id}
        elif text:
            terms = sorted(words_of(text), key=len, reverse=True)  # long words are rare, so the longest comes first
            if not 1 <= len(terms) <= MAX_TERMS:
                raise InputError(
                    f"A search takes 1 to {MAX_TERMS} words; {text[:80]!r} has {len(terms)}.", code="bad-search"
                )
            words = {f"word{n}": terms[n - 1] if n <= len(terms) else "" for n in range(1, MAX_TERMS + 1)}
            statement, values = "search_word", {**values, **words, "collection": collection}
        elif collection:
            statement, values = "search_collection", {**values, "collection": collection}
        else:
            statement = "search_owner" if owner else "search"
            if not owner:
                del values["owner"]
        return _to_page(self.tables.query(statement, **values), limit, "ark")

    def list_due_audits(self, before: datetime, *, limit: int = PAGE_SIZE) -> list[Row]:
        """Return content that was not audited since, the oldest audit first."""
        return self.tables.query("list_due_audits", before=_format_time(before), row_limit=_check_limit(limit))

    def record_audit(self, row: Row, finding: StorageFinding | None, when: datetime) -> None:
        """Record the result for a row of `list_due_audits`."""
        result = finding.message if finding else ""
        self.tables.execute(
            "record_audit",
            ark=row["ark"],
            place=row["place"],
            sha256=row["sha256"],
            audited=_format_time(when),
            result=result,
        )

    def record_damage(self, ark: str, finding: StorageFinding, when: datetime) -> None:
        """Record what the verification of a whole object has found."""
        self.tables.execute(
            "record_damage", ark=ark, place=finding.place, audited=_format_time(when), result=finding.message
        )

    def list_damaged(self, *, after: tuple[str, str] = ("", ""), limit: int = PAGE_SIZE) -> list[Row]:
        """Return content whose last audit found damage, with the files that need it (the first few)."""
        rows = self.tables.query(
            "list_damaged", after_ark=after[0], after_place=after[1], row_limit=_check_limit(limit)
        )
        for row in rows:
            paths = self.tables.query("paths_of", ark=row["ark"], place=row["place"], row_limit=10)
            row["files"] = [f"v{path['number']} {path['path']}" for path in paths]
        return rows

    def list_damaged_of(self, ark: str) -> list[Row]:
        """Return the content of one object whose last audit found damage (the first thousand)."""
        return self.tables.query("list_damaged_of", ark=ark, row_limit=MAX_ROWS)

    def forget(self, ark: str) -> None:
        """Remove everything about an object."""
        with self.tables.transaction():
            for statement in ("forget_object", "forget_localids", "forget_members", "forget_words"):
                self.tables.execute(statement, ark=ark)
        while versions := self.list_versions(ark):
            for row in versions:
                self.catalogue.forget_version(self.tables, ark, row["number"])
        self.forget_contents(ark)

    def forget_contents(self, ark: str) -> None:
        """Remove the content that no version of an object refers to any more, and files of replacements that were not
        finished.
        """
        while self.tables.execute("forget_replacements", ark=ark, row_limit=ROWS_PER_TRANSACTION):
            pass
        while self.tables.execute("forget_contents", ark=ark, row_limit=ROWS_PER_TRANSACTION):
            pass


def _to_page(rows: list[Row], limit: int, key: str) -> InventoryPage:
    return InventoryPage(rows, str(rows[-1][key]) if len(rows) == limit else "")


def _check_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_ROWS:
        raise InputError(f"A page has 1 to {MAX_ROWS} rows, not {limit}.", code="bad-search")
    return limit


def _format_time(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RebuildResult(NamedTuple):
    """The result of a page: the cursor of the next one (empty at the end), the number of objects, and the errors."""

    cursor: str
    objects: int
    errors: tuple[str, ...] = ()


def rebuild_object(inventory: Inventory, storage: StorageService, ark: str) -> int:
    """Record all versions of an object again as they are in storage, and delete the others; return how many there are.

    Versions in another storage service stay unchanged: they cannot be recorded from our storage.
    """
    known = dict(_list_places(inventory, ark))
    known_local_ids = inventory.tables.query("localids", ark=ark, row_limit=MAX_ROWS)
    is_known = bool(known) or inventory.get_object(ark) is not None
    foreign = {number for number, place in known.items() if is_foreign_place(place)}
    try:
        versions = _list_stored_versions(storage, ark)
    except NotInStorage:
        if foreign:
            raise StorageError(
                f"Another storage service keeps {ark}: it cannot be recorded again from this one."
            ) from None
        if is_known:
            inventory.forget(ark)
        return 0
    numbers = {version.number for version in versions}
    if both := foreign & numbers:
        raise StorageError(
            f"Another storage service keeps version {min(both)} of {ark}, and this one has a version of that number too."
        )
    for number in known.keys() - numbers - foreign:
        inventory.catalogue.forget_version(inventory.tables, ark, number)
    inventory.tables.execute("lower_head", ark=ark, number=max(numbers | foreign))
    local_ids: set[tuple[str, str]] = set()
    for version in versions:
        stored = storage.get_version(ark, version.number)
        inventory.record(stored, storage, fix=True)
        with storage.open_manifest(stored) as reader:
            about = InventoryDescription.from_header(reader.header)
        local_ids.update((about.owner, localid) for localid in about.local_ids)
    # Local ids are deleted last, one by one: until then each must be found, or a deposit would create a second object
    # for it.
    for row in known_local_ids:
        if not foreign and (row["owner"], row["localid"]) not in local_ids:
            inventory.tables.execute("forget_localid", ark=ark, owner=row["owner"], localid=row["localid"])
    inventory.forget_contents(ark)
    return len(versions)


def _list_stored_versions(storage: StorageService, ark: str) -> list[VersionSummary]:
    """Return the versions in storage. An object that has lost its root inventory is restored from its newest version first."""
    try:
        return storage.list_versions(ark)
    except StorageDamaged:
        if not storage.recover(ark).repaired_places:  # raises the damage again if there is nothing to restore it from
            raise
        return storage.list_versions(ark)


def _list_places(inventory: Inventory, ark: str) -> Iterator[tuple[int, str]]:
    """Yield the versions in the inventory, each with the place of its manifest."""
    after = 0
    while rows := inventory.list_versions(ark, after=after):
        yield from ((row["number"], row["place"]) for row in rows)
        after = rows[-1]["number"]


def rebuild_page(inventory: Inventory, storage: StorageService, cursor: str = "", *, limit: int = 100) -> RebuildResult:
    """Record the next objects of the storage again. An error in one of them does not stop the others."""
    errors: list[str] = []
    count = 0
    for at, ark in itertools.islice(storage.list_objects(cursor), limit):
        try:
            if not ark:
                raise StorageDamaged(f"The object at {at} has an invalid OCFL inventory.")
            rebuild_object(inventory, storage, ark)
        except (StorageError, ManifestError, LocalIdTaken, ObjectNotFound) as error:
            errors.append(f"{ark or at}: {error}")
        cursor, count = at, count + 1
    return RebuildResult(cursor if count == limit else "", count, tuple(errors))
