"""The inventory's catalogue: how one stored version is inserted, and how all tables are cleared.

A version is inserted from its manifest alone, in this order: its files, a block at a time; then, in one transaction with
the last of them, the values that searches use and the version itself. So a version in the inventory is complete, and a
retry starts again without harm. A version that is replaced is deleted in that transaction too. If it has more files than
one block, the new ones are first inserted under the negative of its number, where no query looks; the last transaction
moves them to their number. So readers see the complete old version or the complete new one, and no transaction waits for
the manifest.

A version that another storage service stores has a URL as its place. It is searchable like the others, but its content
is not audited, and it cannot be rebuilt from our storage.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from waybill.apps.ingest.storage import MANIFEST_PATH, StoredVersion
from waybill.errors import WaybillError
from waybill.index import CatalogueTables
from waybill.manifests import ManifestEntry, ManifestHeader, ManifestReader
from waybill.record import Conflict

ROWS_PER_TRANSACTION = 1000
MAX_WORDS = 200  # of one object; further words of a long title are not found
MAX_WORD_LENGTH = 64

_TABLE_NAMES = ("objects", "versions", "files", "contents", "localids", "members", "words")
_WORD_PATTERN = re.compile(r"\w+")


class LocalIdTaken(WaybillError):
    """This local id belongs to another object of the same owner."""

    code = "local-id-taken"


class InventoryConflict(WaybillError):
    """The inventory has different data for this version."""

    code = "inventory-conflict"


class InventoryDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a deposit says about its object, as the version's manifest contains it."""

    owner: str = ""
    collections: tuple[str, ...] = ()
    local_ids: tuple[str, ...] = ()
    title: str = ""
    creator: str = ""
    date: str = ""
    embargo: str = ""  # its end, RFC 3339

    @classmethod
    def from_header(cls, header: ManifestHeader) -> InventoryDescription:
        """Read the description in the first line of a version's manifest."""
        values = header.about.get("about")
        return cls.from_mapping(values if isinstance(values, dict) else {})

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> InventoryDescription:
        def read_text(name: str) -> str:
            value = values.get(name, "")
            return _remove_nulls(value) if isinstance(value, str) else ""

        def read_texts(name: str) -> tuple[str, ...]:
            value = values.get(name, [])
            found = (
                [_remove_nulls(item) for item in value if isinstance(item, str) and item]
                if isinstance(value, list | tuple)
                else []
            )
            return tuple(dict.fromkeys(found))

        return cls(
            owner=read_text("owner"),
            collections=read_texts("collections"),
            local_ids=read_texts("local_ids"),
            title=read_text("title"),
            creator=read_text("creator"),
            date=read_text("date"),
            embargo=read_text("embargo"),
        )

    def list_words(self) -> list[str]:
        return words_of(" ".join((self.title, self.creator, self.date)))[:MAX_WORDS]


def _remove_nulls(text: str) -> str:
    return text.replace("\0", "")  # PostgreSQL cannot store them


def words_of(text: str) -> list[str]:
    """Return the distinct words of a text, folded so that case, the form of accents and wide letters make no
    difference.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return list(dict.fromkeys(word[:MAX_WORD_LENGTH] for word in _WORD_PATTERN.findall(folded)))


def is_foreign_place(place: str) -> bool:
    """Whether a place is a URL: places of our own storage are paths, without empty segments."""
    return "://" in place


@dataclass(frozen=True)
class VersionSource:
    """A version to insert, and how to open its manifest."""

    stored: StoredVersion
    open_manifest: Callable[[StoredVersion], ManifestReader]


@dataclass(frozen=True)
class InventoryCatalogue:
    """The Catalogue of the inventory's tables."""

    name: str = "inventory"
    package: str = "waybill.apps.ingest.inventory"

    def clear(self, tables: CatalogueTables) -> int:
        return sum(tables.execute(f"clear_{table}", row_limit=ROWS_PER_TRANSACTION) for table in _TABLE_NAMES)

    def enter(self, tables: CatalogueTables, source: VersionSource) -> None:
        self.record(tables, source)

    def record(self, tables: CatalogueTables, source: VersionSource, *, fix: bool = False) -> bool:
        """Insert a version; return whether anything was changed.

        A version that is recorded with the same data is left alone. If it has different data, InventoryConflict is
        raised, or it is replaced with `fix`.
        """
        stored = source.stored
        known = tables.query("version", ark=stored.object, number=stored.version)
        is_same = bool(known) and (known[0]["sha256"], known[0]["place"]) == (stored.sha256, stored.place)
        if is_same and not fix:
            return False
        if known and not fix:
            raise _build_conflict(stored, str(known[0]["place"]))
        number = stored.version  # under which the files are inserted
        with source.open_manifest(stored) as reader:
            about = InventoryDescription.from_header(reader.header)
            _check_local_ids(tables, stored.object, about)
            blocks, content = reader.iter_blocks(), "correct_content" if fix else "enter_content"
            last = next(blocks, [])
            for block in blocks:
                if fix and number > 0:
                    number = self._prepare_replacement(tables, stored)
                _enter_files(tables, stored.object, number, last, content)
                last = block
            totals = reader.totals
        if fix and number > 0 and len(last) > ROWS_PER_TRANSACTION:
            number = self._prepare_replacement(tables, stored)
        for at in range(0, len(last) - ROWS_PER_TRANSACTION, ROWS_PER_TRANSACTION):
            _enter_files(tables, stored.object, number, last[at : at + ROWS_PER_TRANSACTION], content)
        with tables.transaction():  # the last files (for most objects all of them) and the version in one commit
            if fix:
                self.forget_version(tables, stored.object, stored.version)
            _enter_files(
                tables,
                stored.object,
                number,
                last[-(len(last) % ROWS_PER_TRANSACTION or ROWS_PER_TRANSACTION) :],
                content,
            )
            if (
                number < 0
                and tables.execute("move_files", ark=stored.object, replacement=number, number=stored.version)
                != totals.count
            ):
                raise Conflict(
                    f"Another process recorded version {stored.version} of {stored.object} at the same time: try again."
                )
            self._enter_version(tables, stored, about, totals.count, totals.bytes, fix)
        return True

    def _prepare_replacement(self, tables: CatalogueTables, stored: StoredVersion) -> int:
        """Return the negative number for the new files of a version, cleared of leftovers of an earlier attempt."""
        while tables.execute("forget_files", ark=stored.object, number=-stored.version, row_limit=ROWS_PER_TRANSACTION):
            pass
        return -stored.version

    def forget_version(self, tables: CatalogueTables, ark: str, number: int) -> None:
        tables.execute("forget_version", ark=ark, number=number)
        while tables.execute("forget_files", ark=ark, number=number, row_limit=ROWS_PER_TRANSACTION):
            pass

    def _enter_version(
        self,
        tables: CatalogueTables,
        stored: StoredVersion,
        about: InventoryDescription,
        files: int,
        size: int,
        fix: bool,
    ) -> None:
        ark = stored.object
        own = {
            "path": MANIFEST_PATH,
            "size": stored.size,
            "sha256": stored.sha256,
            "mime": "application/jsonl",
            "place": stored.place,
        }
        tables.execute("enter_file", ark=ark, number=stored.version, **own)
        if not is_foreign_place(stored.place):
            content = {"ark": ark, "place": stored.place, "size": stored.size, "sha256": stored.sha256}
            tables.execute("correct_content" if fix else "enter_content", **content)
        newest = tables.execute(
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
            tables.execute("forget_members", ark=ark)
            tables.execute("forget_words", ark=ark)
            tables.execute_all(
                "enter_member", ({"collection": collection, "ark": ark} for collection in about.collections)
            )
            tables.execute_all("enter_word", ({"word": word, "ark": ark} for word in about.list_words()))
        tables.execute_all(
            "enter_localid", ({"owner": about.owner, "localid": localid, "ark": ark} for localid in about.local_ids)
        )
        _check_local_ids(tables, ark, about)
        tables.execute(
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


def _build_conflict(stored: StoredVersion, known: str) -> InventoryConflict:
    if is_foreign_place(known) or is_foreign_place(stored.place):
        return InventoryConflict(
            f"The inventory has another version {stored.version} of {stored.object}, and another storage service keeps one of the two. "
            "All versions of an object must be in one service."
        )
    return InventoryConflict(
        f"The inventory has another version {stored.version} of {stored.object} than the storage. "
        "Record it again from storage with rebuild."
    )


def _enter_files(tables: CatalogueTables, ark: str, number: int, block: list[ManifestEntry], content: str) -> None:
    for at in range(0, len(block), ROWS_PER_TRANSACTION):
        rows: list[dict[str, Any]] = []
        places: dict[str, dict[str, Any]] = {}
        for entry in block[at : at + ROWS_PER_TRANSACTION]:
            place = str(entry.extra.get("place", ""))
            known = {"ark": ark, "place": place, "size": entry.size, "sha256": entry.sha256}
            rows.append({**known, "number": number, "path": entry.uri, "mime": str(entry.extra.get("mime", ""))})
            if not is_foreign_place(place):  # content of another service is not ours to audit
                places[place] = known
        with tables.transaction():
            tables.execute_all("enter_file", rows)
            tables.execute_all(content, places.values())


def _check_local_ids(tables: CatalogueTables, ark: str, about: InventoryDescription) -> None:
    for localid in about.local_ids:
        for row in tables.query("localid", owner=about.owner, localid=localid):
            if row["ark"] != ark:
                raise LocalIdTaken(
                    f"The local id {localid!r} of {about.owner or 'nobody'} belongs to {row['ark']}, so {ark} cannot have it. "
                    "Deposit as an update of that object, or with another local id."
                )
