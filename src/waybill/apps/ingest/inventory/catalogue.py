"""The inventory's catalogue: how one version at rest is entered, and how everything is cleared.

A version is entered from its manifest and nothing else, in this order: its files, a block at a time; then, in one
transaction with the last of them, what people find it by and the version itself. So a version that is in the inventory
is there whole, and a second try begins again without harm. One that is replaced goes in that transaction too. If it has
more files than one block, the new ones are entered beside it first, under the negative of its number, where nobody
looks; the last transaction moves them to their place. So readers see the old version or the new one, whole, and no
transaction waits for the manifest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from waybill.apps.ingest.inventory.about import About
from waybill.apps.ingest.inventory.elsewhere import is_elsewhere
from waybill.apps.ingest.storage import MANIFEST, Stored
from waybill.index import Shelf
from waybill.manifests import Entry, Reader

PORTION = 1000  # rows of one transaction

_CLEAR = ("objects", "versions", "files", "contents", "localids", "members", "words")


class LocalIdTaken(Exception):
    """This local id belongs to another object of the same owner."""

    permanent = True


class Overtaken(Exception):
    """Somebody else recorded this version at the same time: try again."""

    permanent = False


class Contradiction(Exception):
    """The inventory knows this version otherwise."""

    permanent = True


@dataclass(frozen=True)
class Source:
    """A version to enter, and how to read its manifest."""

    stored: Stored
    manifest: Callable[[Stored], Reader]


@dataclass(frozen=True)
class InventoryCatalogue:
    name: str = "inventory"
    package: str = "waybill.apps.ingest.inventory"

    def clear(self, shelf: Shelf) -> int:
        return sum(shelf.execute(f"clear_{table}", portion=PORTION) for table in _CLEAR)

    def enter(self, shelf: Shelf, source: Source) -> None:
        self.record(shelf, source)

    def record(self, shelf: Shelf, source: Source, *, fix: bool = False) -> bool:
        """Enter a version; whether anything had to be done.

        One that is there as it should be is left alone. One that is there otherwise is a Contradiction, or with `fix`
        is replaced.
        """
        stored = source.stored
        there = shelf.query("version", ark=stored.object, number=stored.version)
        same = bool(there) and (there[0]["sha256"], there[0]["place"]) == (stored.sha256, stored.place)
        if same and not fix:
            return False
        if there and not fix:
            raise _contradiction(stored, str(there[0]["place"]))
        number = stored.version  # under which the files are entered
        with source.manifest(stored) as reader:
            about = About.of(reader.header)
            _check_localids(shelf, stored.object, about)
            blocks, content = reader.blocks(), "correct_content" if fix else "enter_content"
            last = next(blocks, [])
            for block in blocks:
                if fix and number > 0:
                    number = self._beside(shelf, stored)
                _enter_files(shelf, stored.object, number, last, content)
                last = block
            totals = reader.totals
        if fix and number > 0 and len(last) > PORTION:
            number = self._beside(shelf, stored)
        for at in range(0, len(last) - PORTION, PORTION):
            _enter_files(shelf, stored.object, number, last[at : at + PORTION], content)
        with shelf.transaction():  # the last files, of most objects all, go with the version: one commit
            if fix:
                self.forget_version(shelf, stored.object, stored.version)
            _enter_files(shelf, stored.object, number, last[-(len(last) % PORTION or PORTION) :], content)
            if (
                number < 0
                and shelf.execute("move_files", ark=stored.object, beside=number, number=stored.version) != totals.count
            ):
                raise Overtaken(
                    f"Somebody else recorded version {stored.version} of {stored.object} at the same time: try again."
                )
            self._enter_version(shelf, stored, about, totals.count, totals.bytes, fix)
        return True

    def _beside(self, shelf: Shelf, stored: Stored) -> int:
        """The number under which files wait for their version, free of what a try before has left there."""
        while shelf.execute("forget_files", ark=stored.object, number=-stored.version, portion=PORTION):
            pass
        return -stored.version

    def forget_version(self, shelf: Shelf, ark: str, number: int) -> None:
        shelf.execute("forget_version", ark=ark, number=number)
        while shelf.execute("forget_files", ark=ark, number=number, portion=PORTION):
            pass

    def _enter_version(self, shelf: Shelf, stored: Stored, about: About, files: int, size: int, fix: bool) -> None:
        ark = stored.object
        own = {
            "path": MANIFEST,
            "size": stored.size,
            "sha256": stored.sha256,
            "mime": "application/jsonl",
            "place": stored.place,
        }
        shelf.execute("enter_file", ark=ark, number=stored.version, **own)
        if not is_elsewhere(stored.place):
            content = {"ark": ark, "place": stored.place, "size": stored.size, "sha256": stored.sha256}
            shelf.execute("correct_content" if fix else "enter_content", **content)
        newest = shelf.execute(
            "enter_object",
            ark=ark,
            owner=about.owner,
            number=stored.version,
            title=about.title,
            creator=about.creator,
            date=about.date,
            created=stored.created,
            embargo=about.embargo,
        )
        if newest:
            shelf.execute("forget_members", ark=ark)
            shelf.execute("forget_words", ark=ark)
            shelf.execute_all(
                "enter_member", ({"collection": collection, "ark": ark} for collection in about.collections)
            )
            shelf.execute_all("enter_word", ({"word": word, "ark": ark} for word in about.words()))
        shelf.execute_all(
            "enter_localid", ({"owner": about.owner, "localid": localid, "ark": ark} for localid in about.local_ids)
        )
        _check_localids(shelf, ark, about)
        shelf.execute(
            "enter_version",
            ark=ark,
            number=stored.version,
            request=stored.request,
            created=stored.created,
            place=stored.place,
            sha256=stored.sha256,
            size=stored.size,
            files=files,
            bytes=size,
        )


def _contradiction(stored: Stored, known: str) -> Contradiction:
    if is_elsewhere(known) or is_elsewhere(stored.place):
        return Contradiction(
            f"The inventory has another version {stored.version} of {stored.object}, and another storage service keeps one of the two. "
            "One service has to keep all versions of an object."
        )
    return Contradiction(
        f"The inventory has another version {stored.version} of {stored.object} than the storage. "
        "Record it again from storage with rebuild."
    )


def _enter_files(shelf: Shelf, ark: str, number: int, block: list[Entry], content: str) -> None:
    for at in range(0, len(block), PORTION):
        rows: list[dict[str, Any]] = []
        places: dict[str, dict[str, Any]] = {}
        for entry in block[at : at + PORTION]:
            place = str(entry.extra.get("place", ""))
            known = {"ark": ark, "place": place, "size": entry.size, "sha256": entry.sha256}
            rows.append({**known, "number": number, "path": entry.uri, "mime": str(entry.extra.get("mime", ""))})
            if not is_elsewhere(place):  # another service's bytes are not ours to audit
                places[place] = known
        with shelf.transaction():
            shelf.execute_all("enter_file", rows)
            shelf.execute_all(content, places.values())


def _check_localids(shelf: Shelf, ark: str, about: About) -> None:
    for localid in about.local_ids:
        for row in shelf.query("localid", owner=about.owner, localid=localid):
            if row["ark"] != ark:
                raise LocalIdTaken(
                    f"The local id {localid!r} of {about.owner or 'nobody'} belongs to {row['ark']}, so {ark} cannot have it. "
                    "Deposit as an update of that object, or with another local id."
                )
