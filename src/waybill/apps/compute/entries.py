"""Directory entries in the catalogue: objects and directories, each below its parent.

    put an entry (its directory locked, conditions checked again) -> replaced, linked, changed -> removed

Every change is one transaction that takes the row of the directory first. What an entry gives up is noted as garbage in
the same transaction; maintenance removes the bytes when no entry names them any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from waybill.apps.compute.errors import MantaError, not_found
from waybill.apps.compute.paths import AREAS, StoragePath
from waybill.index import CatalogueTables, Row

MAX_ENTRIES = 1_000_000  # of one directory
MAX_LIMIT = 1024  # entries of one page
FIRST, LAST = -(2**62), 2**62  # before and after every time


class Entry(msgspec.Struct, frozen=True, gc=False):
    name: str
    type: str  # "object" or "directory"
    content: str = ""  # the object that holds its bytes
    start: int = 0  # where they begin in it
    etag: str = ""
    size: int = 0
    md5: str = ""  # base64
    content_type: str = ""
    durability: int = 0
    headers: dict[str, str] = {}
    mtime: int = 0  # milliseconds

    @property
    def is_directory(self) -> bool:
        return self.type == "directory"


def entry_of(row: Row) -> Entry:
    return Entry(
        row["name"], row["type"], row["content"], row["start"], row["etag"], row["size"], row["md5"], row["content_type"],
        row["durability"], msgspec.json.decode(row["headers"]) if row["headers"] != "{}" else {}, row["mtime"],
    )  # fmt: skip


def _row_of(folder: str, entry: Entry) -> dict[str, Any]:
    return {
        "folder": folder, "name": entry.name, "type": entry.type, "content": entry.content, "start": entry.start, "etag": entry.etag,
        "size": entry.size, "md5": entry.md5, "content_type": entry.content_type, "durability": entry.durability,
        "headers": msgspec.json.encode(entry.headers).decode(), "mtime": entry.mtime,
    }  # fmt: skip


class ListedPage(NamedTuple):
    entries: list[Entry]
    next: Entry | None  # the first entry of the next page
    total: int  # of all entries of the directory


class Entries:
    """The entries on one connection. Times are milliseconds."""

    def __init__(self, tables: CatalogueTables) -> None:
        self._tables = tables

    def find(self, path: StoragePath) -> Entry | None:
        """The entry of a path; None if there is none. An area is a directory that always exists."""
        if path.is_root:
            return Entry(path.area, "directory") if path.area in AREAS else None
        rows = self._tables.query("entry", folder=path.parent.folder, name=path.name, max_rows=1)
        return entry_of(rows[0]) if rows else None

    def get(self, path: StoragePath) -> Entry:
        if (entry := self.find(path)) is None:
            raise not_found(str(path))
        return entry

    def check_parent(self, path: StoragePath) -> None:
        """Raise unless the directory of a path exists."""
        parent = path.parent
        if parent.is_root or self._tables.query("folder", folder=parent.folder, max_rows=1):
            return
        self._raise_for_parent(parent)

    def _raise_for_parent(self, parent: StoragePath) -> None:
        found = self.find(parent)
        if found is not None and not found.is_directory:
            raise MantaError("ParentNotDirectory", f"{parent} is not a directory")
        raise MantaError("DirectoryDoesNotExist", f"{parent} does not exist")

    def _lock_folder(self, parent: StoragePath) -> int:
        """Inside a transaction: hold the row of a directory; return how many entries it has."""
        folder = parent.folder
        rows = self._tables.query("lock_folder", folder=folder, max_rows=1)
        if not rows and parent.is_root:
            self._tables.execute("make_folder", folder=folder, path=str(parent))
            rows = self._tables.query("lock_folder", folder=folder, max_rows=1)
        if not rows:
            self._raise_for_parent(parent)
        return int(rows[0]["entries"])

    def put(self, path: StoragePath, make: Callable[[Entry | None], Entry | None], *, now: int) -> Entry:
        """Write the entry that `make` returns for the present one, which it may refuse; None leaves that as it is."""
        parent = path.parent
        with self._tables.transaction():
            count = self._lock_folder(parent)
            before = self.find(path)
            entry = make(before)
            if entry is None:
                assert before is not None
                return before
            if before is None:
                if count >= MAX_ENTRIES:
                    raise MantaError("DirectoryLimitExceeded", f"{parent} has {count} entries, and can have no more")
                self._tables.execute("count_entries", folder=parent.folder, change=1)
            elif before.content and before.content != entry.content:
                self._tables.execute("add_garbage", content=before.content, since=now)
            self._tables.execute("write_entry", **_row_of(parent.folder, entry))
            if entry.is_directory and before is None:
                self._tables.execute("make_folder", folder=path.folder, path=str(path))
            return entry

    def put_directory(self, path: StoragePath, headers: dict[str, str], *, now: int) -> Entry:
        """Make a directory; one that exists keeps its entries and takes the headers."""

        def make(before: Entry | None) -> Entry | None:
            if before is not None and not before.is_directory:
                raise MantaError("ParentNotDirectory", f"{path} is not a directory")
            if before is not None and before.headers == headers:
                return None
            return Entry(path.name, "directory", headers=headers, mtime=now)

        return self.put(path, make, now=now)

    def put_many(self, parent: StoragePath, entries: list[Entry], *, now: int) -> None:
        """Write objects of one directory together; safe to repeat."""
        with self._tables.transaction():
            count = self._lock_folder(parent)
            new = 0
            for entry in entries:
                before = self.find(parent.child(entry.name))
                new += before is None
                if before is not None and before.content and before.content != entry.content:
                    self._tables.execute("add_garbage", content=before.content, since=now)
            if count + new > MAX_ENTRIES:
                raise MantaError("DirectoryLimitExceeded", f"{parent} has {count} entries, and can have no more")
            self._tables.execute_all("write_entry", [_row_of(parent.folder, entry) for entry in entries])
            self._tables.execute("count_entries", folder=parent.folder, change=new)

    def remove(self, path: StoragePath, check: Callable[[Entry], None] = lambda entry: None, *, now: int) -> Entry:
        parent = path.parent
        with self._tables.transaction():
            self._lock_folder(parent)
            entry = self.get(path)
            check(entry)
            if entry.is_directory:
                if not self._tables.execute("remove_folder", folder=path.folder):
                    raise MantaError("DirectoryNotEmpty", f"{path} is not empty")
            else:
                self._tables.execute("add_garbage", content=entry.content, since=now)
            self._tables.execute("remove_entry", folder=parent.folder, name=path.name)
            self._tables.execute("count_entries", folder=parent.folder, change=-1)
            return entry

    def list(
        self, path: StoragePath, *, marker: str = "", mtime: int | None = None, by_mtime: bool = False, is_reverse: bool = False,
        type: str = "", limit: int = 256,
    ) -> ListedPage:  # fmt: skip
        """A page from the marker on, which is part of it; by name, or the newest first."""
        folder = path.folder
        counted = self._tables.query("folder", folder=folder, max_rows=1)
        if not counted and not path.is_root:
            raise not_found(str(path))
        values: dict[str, Any] = {"folder": folder, "marker": marker, "type": type, "row_limit": limit + 1}
        statement = "list_by_mtime" if by_mtime else "list_by_name"
        if is_reverse:
            statement += "_reverse"
        if by_mtime:
            values["mtime"] = mtime if mtime is not None else FIRST if is_reverse else LAST
        rows = [entry_of(row) for row in self._tables.query(statement, max_rows=limit + 1, **values)] if limit else []
        count = int(counted[0]["entries"]) if counted else 0
        return ListedPage(rows[:limit], rows[limit] if len(rows) > limit else None, count)

    def iter_below(self, path: StoragePath) -> Iterator[tuple[StoragePath, Entry]]:
        """All entries below a directory, each directory after what is in it; page by page."""
        marker = ""
        while True:
            page = self.list(path, marker=marker, limit=MAX_LIMIT)
            for entry in page.entries:
                below = path.child(entry.name)
                if entry.is_directory:
                    yield from self.iter_below(below)
                yield below, entry
            if page.next is None:
                return
            marker = page.next.name

    def is_named(self, content: str) -> bool:
        return bool(self._tables.query("named", content=content, max_rows=1))
