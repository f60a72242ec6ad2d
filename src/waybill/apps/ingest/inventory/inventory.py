"""Inventory: what is at rest, for people to find and for audits to go through, built from storage manifests alone.

    inventory = Inventory(index)
    inventory.record(stored, storage)                    a version, once; a second time changes nothing
    inventory.search(owner=..., text="husky chicken")    a page of objects, and from where the next one begins
    rebuild_object(inventory, storage, ark)              one object again from storage; rebuild_some goes through all (rebuilding.py)

It is never the truth: the storage is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from waybill.apps.ingest.inventory.about import words_of
from waybill.apps.ingest.inventory.catalogue import PORTION, InventoryCatalogue, Source
from waybill.apps.ingest.inventory.elsewhere import is_elsewhere
from waybill.apps.ingest.storage import Finding, StorageService, Stored
from waybill.index import Index, Row

PAGE = 100
MOST = 1000  # rows of a page
MOST_TERMS = 4  # words that a search may have

_FIELDS = ("object", "version", "request", "created", "place", "sha256", "size")


class BadSearch(Exception):
    """This cannot be searched for."""

    permanent = True


class Page(NamedTuple):
    """Some rows, and what to say as `after` for the next ones; empty at the end."""

    rows: list[Row]
    next: str = ""


class Inventory:
    """The catalogue of one index. One connection, so one thread."""

    def __init__(self, index: Index) -> None:
        self.catalogue = InventoryCatalogue()
        self.shelf = index.shelf(self.catalogue)

    def record(self, stored: Stored, storage: StorageService, *, fix: bool = False) -> bool:
        """Enter a version from its manifest; whether anything had to be done."""
        return self.catalogue.record(self.shelf, Source(stored, storage.manifest), fix=fix)

    def object(self, ark: str) -> Row | None:
        """An object with its collections and local ids (the first thousand of each)."""
        rows = self.shelf.query("object", ark=ark)
        if not rows:
            return None
        collections = [row["collection"] for row in self.shelf.query("members", ark=ark, portion=MOST)]
        localids = [row["localid"] for row in self.shelf.query("localids", ark=ark, portion=MOST)]
        return {**rows[0], "collections": collections, "local_ids": localids}

    def local_ids(self, ark: str, owner: str) -> tuple[str, ...]:
        """The local ids that the owner gave an object (of the first thousand)."""
        return tuple(
            row["localid"] for row in self.shelf.query("localids", ark=ark, portion=MOST) if row["owner"] == owner
        )

    def ark_of(self, owner: str, localid: str) -> str | None:
        """The object to which the owner gave this local id."""
        rows = self.shelf.query("localid", owner=owner, localid=localid)
        return str(rows[0]["ark"]) if rows else None

    def versions(self, ark: str, *, after: int = 0, most: int = PAGE) -> list[Row]:
        return self.shelf.query("versions", ark=ark, after=after, portion=_most(most))

    def stored(self, ark: str, number: int) -> Stored | None:
        """A version as the storage told it."""
        rows = self.shelf.query("version", ark=ark, number=number)
        if not rows:
            return None
        told = {**rows[0], "object": ark, "version": number}
        return Stored(**{name: told[name] for name in _FIELDS})

    def kept_elsewhere(self, ark: str) -> bool:
        """Whether another storage service keeps the newest version of an object."""
        rows = self.shelf.query("head", ark=ark)
        return bool(rows) and is_elsewhere(rows[0]["place"])

    def files(self, ark: str, number: int, *, after: str = "", most: int = PAGE) -> Page:
        """The files of a version by their paths, with the place by which the storage finds their bytes."""
        return _page(self.shelf.query("files", ark=ark, number=number, after=after, portion=_most(most)), most, "path")

    def file(self, ark: str, number: int, path: str) -> Row | None:
        rows = self.shelf.query("file", ark=ark, number=number, path=path)
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
        most: int = PAGE,
    ) -> Page:
        """Objects in the order of their ARKs: one ARK; or by local id, by words of title, creator and date, by
        collection, by owner.

        An owner narrows each of them, a collection narrows words; everything else is one or the other.
        """
        if sum(map(bool, (ark, local_id, text or collection))) > 1:
            raise BadSearch("Search by ARK, by local id, or by words and collection: one of them at a time.")
        if ark:
            return Page([row for row in self.shelf.query("object", ark=ark) if not owner or row["owner"] == owner])
        values: dict[str, Any] = {"after": after, "portion": _most(most), "owner": owner}
        if local_id:
            statement, values = "search_localid", {**values, "localid": local_id}
        elif text:
            terms = sorted(words_of(text), key=len, reverse=True)  # long words are rare: the longest leads
            if not 1 <= len(terms) <= MOST_TERMS:
                raise BadSearch(f"A search takes 1 to {MOST_TERMS} words; {text[:80]!r} has {len(terms)}.")
            words = {f"word{n}": terms[n - 1] if n <= len(terms) else "" for n in range(1, MOST_TERMS + 1)}
            statement, values = "search_word", {**values, **words, "collection": collection}
        elif collection:
            statement, values = "search_collection", {**values, "collection": collection}
        else:
            statement = "search_owner" if owner else "search"
            if not owner:
                del values["owner"]
        return _page(self.shelf.query(statement, **values), most, "ark")

    def to_audit(self, before: datetime, *, most: int = PAGE) -> list[Row]:
        """Content that was not audited since, the longest ago first."""
        return self.shelf.query("to_audit", before=_time(before), portion=_most(most))

    def audited(self, row: Row, finding: Finding | None, when: datetime) -> None:
        """Note the outcome for a row of `to_audit`."""
        result = finding.words if finding else ""
        self.shelf.execute(
            "audited", ark=row["ark"], place=row["place"], sha256=row["sha256"], audited=_time(when), result=result
        )

    def found_damaged(self, ark: str, finding: Finding, when: datetime) -> None:
        """Note what a reading of the whole object has found."""
        self.shelf.execute("found_damaged", ark=ark, place=finding.place, audited=_time(when), result=finding.words)

    def damaged(self, *, after: tuple[str, str] = ("", ""), most: int = PAGE) -> list[Row]:
        """Content whose last audit found something, with the files that need it (the first few)."""
        rows = self.shelf.query("damaged", after_ark=after[0], after_place=after[1], portion=_most(most))
        for row in rows:
            paths = self.shelf.query("paths_of", ark=row["ark"], place=row["place"], portion=10)
            row["files"] = [f"v{path['number']} {path['path']}" for path in paths]
        return rows

    def damaged_of(self, ark: str) -> list[Row]:
        """Content of one object whose last audit found something (the first thousand)."""
        return self.shelf.query("damaged_of", ark=ark, portion=MOST)

    def forget(self, ark: str) -> None:
        """Remove everything about an object."""
        with self.shelf.transaction():
            for statement in ("forget_object", "forget_localids", "forget_members", "forget_words"):
                self.shelf.execute(statement, ark=ark)
        while versions := self.versions(ark):
            for row in versions:
                self.catalogue.forget_version(self.shelf, ark, row["number"])
        self.forget_contents(ark)

    def forget_contents(self, ark: str) -> None:
        """Remove the content to which no version of an object refers any more, and files that never came to be of
        one.
        """
        while self.shelf.execute("forget_beside", ark=ark, portion=PORTION):
            pass
        while self.shelf.execute("forget_contents", ark=ark, portion=PORTION):
            pass


def _page(rows: list[Row], most: int, key: str) -> Page:
    return Page(rows, str(rows[-1][key]) if len(rows) == most else "")


def _most(most: int) -> int:
    if not 1 <= most <= MOST:
        raise BadSearch(f"A page has 1 to {MOST} rows, not {most}.")
    return most


def _time(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
