"""What is done with the catalogue: each is one short transaction, and safe to repeat.

take_number, enter_migration, claim_paths   when a request is made, in one transaction
enter_archives, note_sent, enter_files      by the stages of a PUT
note_read, note_checked                     by the read-back and the scrub
remove_migration_rows                       by DELETE_COMPLETED; the row of the migration itself stays
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Literal

import msgspec

from waybill.apps.archive.catalogue.paths import encode_path, list_ancestors, range_below
from waybill.index import CatalogueTables, Row
from waybill.manifests.record_lists import RecordList

MAX_NUMBER = 2**62
PAGE_SIZE = 1000


class MigrationRow(msgspec.Struct, frozen=True):
    number: int
    id: str
    request: str
    owner: str
    workspace: str
    storage: str
    label: str
    common_path: str
    made: float
    removed: float | None = None


class ArchiveRow(msgspec.Struct, frozen=True):
    """An archive of a migration. `sha256` is that of the bytes that were sent; empty: it was not sent yet."""

    migration: int
    number: int
    name: str
    plan: str
    size: int
    files: int
    entries: str
    sha256: str = ""
    read_size: int | None = None
    read_sha256: str = ""
    checked: float | None = None

    @property
    def entry_list(self) -> RecordList:
        return msgspec.json.decode(self.entries, type=RecordList)

    @property
    def is_proven(self) -> bool:
        """Whether it was read back, and is what was sent."""
        return bool(self.sha256) and (self.read_size, self.read_sha256) == (self.size, self.sha256)


class FileRow(msgspec.Struct, frozen=True, array_like=True):
    """A file, in the order of the columns."""

    migration: int
    number: int
    archive: int
    path: str  # absolute, encoded
    name: str
    kind: str
    size: int
    mtime: float
    sha256: str
    link: str


_FILE_COLUMNS = FileRow.__struct_fields__
SearchBy = Literal["path", "name", "digest"]


class ArchiveTables:
    """The catalogue on one connection."""

    def __init__(self, tables: CatalogueTables) -> None:
        self._tables = tables

    def transaction(self) -> AbstractContextManager[None]:
        return self._tables.transaction()

    # --- migrations

    def take_number(self, name: Literal["migration", "request"]) -> int:
        """The next number, which nobody else gets."""
        with self._tables.transaction():
            self._tables.execute("count_up", name=name)  # its row is locked until the end of the transaction
            return int(self._tables.query("counter", name=name)[0]["number"])

    def raise_number(self, name: Literal["migration", "request"], least: int) -> None:
        """Let the numbers go on behind this one."""
        self._tables.execute("raise_counter", name=name, least=least)

    def enter_migration(self, row: MigrationRow) -> None:
        values = msgspec.structs.asdict(row)
        del values["removed"]
        self._tables.execute("enter_migration", **values)

    def enter_origin(self, number: int, origin: str, version: int) -> None:
        self._tables.execute("enter_origin", migration=number, origin=origin, version=version)

    def find_origin(self, number: int) -> tuple[str, int] | None:
        """Of which thing of another application a migration is the copy, and of which version; None: of none."""
        rows = self._tables.query("origin", migration=number)
        return (rows[0]["origin"], rows[0]["version"]) if rows else None

    def list_migrations_of(self, origin: str, limit: int) -> list[tuple[int, int]]:
        """The migrations of a thing of another application: (number, version)."""
        rows = self._tables.query("migrations_of_origin", origin=origin, row_limit=limit)
        return [(row["migration"], row["version"]) for row in rows]

    def forget_migration(self, number: int) -> None:
        """Remove what was entered for a migration that never came to be."""
        with self._tables.transaction():
            self._tables.execute("remove_origin", migration=number)
            self._tables.execute("remove_livepaths", migration=number)
            self._tables.execute("remove_tags", migration=number)
            self._tables.execute("forget_migration", number=number)

    def find_migration(self, number: int) -> MigrationRow | None:
        rows = self._tables.query("migration", number=number)
        return _to_migration(rows[0]) if rows else None

    def iter_migrations(self, *, owner: str = "", workspace: str = "", label: str = "") -> Iterator[MigrationRow]:
        """Migrations in the order of their numbers."""
        rows = self._tables.iter_rows(
            "migrations", keys=("number",), after=(0,), owner=owner, workspace=workspace, label=label
        )
        return map(_to_migration, rows)

    def list_newest_migrations(
        self, limit: int, *, before: int = MAX_NUMBER, owner: str = "", workspace: str = "", label: str = ""
    ) -> list[MigrationRow]:
        rows = self._tables.query(
            "newest_migrations", before=before, owner=owner, workspace=workspace, label=label, row_limit=limit
        )
        return list(map(_to_migration, rows))

    def iter_migrations_by_tag(self, key: str, value: str = "") -> Iterator[MigrationRow]:
        rows = self._tables.iter_rows("migrations_by_tag", keys=("number",), after=(0,), tag_key=key, tag_value=value)
        return map(_to_migration, rows)

    def change_label(self, number: int, label: str) -> None:
        self._tables.execute("change_label", number=number, label=label)

    def change_storage(self, number: int, storage: str) -> None:
        self._tables.execute("change_storage", number=number, storage=storage)

    def list_tags(self, number: int) -> list[tuple[str, str]]:
        return [(row["tag_key"], row["tag_value"]) for row in self._tables.query("tags", migration=number)]

    def add_tag(self, number: int, key: str, value: str) -> None:
        self._tables.execute("add_tag", migration=number, tag_key=key, tag_value=value)

    def remove_tag(self, number: int, key: str, value: str = "") -> int:
        return self._tables.execute("remove_tag", migration=number, tag_key=key, tag_value=value)

    # --- paths

    def claim_paths(self, number: int, paths: Iterable[str]) -> tuple[str, int] | None:
        """Enter the paths of a migration, unless one overlaps with a path of another: return that, and whose it is.

        Call it in the transaction that took the number: whoever else takes one waits for its end, so of two that ask for
        the same files one sees the other.
        """
        for path in map(encode_path, paths):
            first, beyond = range_below(path)
            found = self._tables.query("livepath_below", first=first, beyond=beyond, migration=number)
            for each in (path, *list_ancestors(path)):
                found = found or self._tables.query("livepath_at", path=each, migration=number)
            if found:
                return str(found[0]["path"]), int(found[0]["migration"])
            self._tables.execute("add_livepath", path=path, migration=number)
        return None

    def release_paths(self, number: int) -> None:
        self._tables.execute("remove_livepaths", migration=number)

    # --- archives

    def enter_archives(self, rows: Sequence[ArchiveRow]) -> None:
        """Write the archives of a plan; `rows` are all of them."""
        with self._tables.transaction():
            self._tables.execute_all(
                "enter_archive",
                (
                    {
                        name: getattr(row, name)
                        for name in ("migration", "number", "name", "plan", "size", "files", "entries", "sha256")
                    }
                    for row in rows
                ),
            )

    def remove_archives_beyond(self, migration: int, number: int) -> None:
        """Remove the archives of an earlier plan that had more."""
        self._tables.execute("remove_archives_beyond", migration=migration, number=number)

    def iter_archives(self, migration: int, after: int = 0) -> Iterator[ArchiveRow]:
        rows = self._tables.iter_rows("archives", keys=("number",), after=(after,), page=200, migration=migration)
        return (ArchiveRow(**row) for row in rows)

    def list_archives(self, migration: int, after: int, limit: int) -> list[ArchiveRow]:
        rows = self._tables.query("archives", migration=migration, after_number=after, row_limit=limit)
        return [ArchiveRow(**row) for row in rows]

    def find_archive(self, migration: int, number: int) -> ArchiveRow | None:
        rows = self._tables.query("archive", migration=migration, number=number)
        return ArchiveRow(**rows[0]) if rows else None

    def sum_archives(self, migration: int) -> tuple[int, int, int]:
        """How many archives a migration has, their bytes, and the files in them."""
        (row,) = self._tables.query("sum_archives", migration=migration)
        return int(row["archives"]), int(row["bytes"]), int(row["files"])

    def note_sent(self, row: ArchiveRow, size: int, sha256: str, entries: RecordList, files: Iterable[FileRow]) -> None:
        """Write what was sent of an archive, and the files in it. Changes nothing if there is another plan by now."""
        with self._tables.transaction():
            changed = self._tables.execute(
                "note_sent", migration=row.migration, number=row.number, plan=row.plan, size=size, sha256=sha256,
                entries=msgspec.json.encode(entries).decode(),
            )  # fmt: skip
            if changed:
                self._tables.execute("remove_files_of_archive", migration=row.migration, archive=row.number)
                self._tables.load("archive_file", _FILE_COLUMNS, (msgspec.structs.astuple(each) for each in files))

    def note_not_sent(self, migration: int, number: int) -> None:
        """An archive is to be sent again."""
        self._tables.execute("note_not_sent", migration=migration, number=number)

    def note_read(self, migration: int, number: int, size: int, sha256: str) -> None:
        self._tables.execute("note_read", migration=migration, number=number, read_size=size, read_sha256=sha256)

    def note_checked(self, migration: int, number: int, at: float) -> None:
        with self._tables.transaction():
            self._tables.execute("note_checked", migration=migration, number=number, checked=at)
            self._tables.execute("remove_finding", migration=migration, archive=number)

    def list_archives_to_scrub(self, before: float, limit: int, storage: str = "") -> list[Row]:
        return self._tables.query("archives_to_scrub", before=before, storage=storage, row_limit=limit)

    def remove_migration_rows(self, number: int, *, removed: float) -> None:
        """Remove the archives and files of a migration, in short transactions; its own row says when it was removed."""
        while self._tables.execute("remove_files", migration=number, row_limit=PAGE_SIZE):
            pass
        with self._tables.transaction():
            self._tables.execute("remove_archives", migration=number)
            self._tables.execute("remove_findings", migration=number)
            self._tables.execute("remove_livepaths", migration=number)
            self._tables.execute("mark_removed", number=number, removed=removed)

    # --- files

    def iter_files(self, migration: int, archive: int | None = None) -> Iterator[FileRow]:
        """The files of a migration, or of one of its archives."""
        if archive is None:
            rows = self._tables.iter_rows("files", keys=("number",), after=(0,), migration=migration)
        else:
            rows = self._tables.iter_rows(
                "files_of_archive", keys=("number",), after=(0,), migration=migration, archive=archive
            )
        return (FileRow(**row) for row in rows)

    def list_files(
        self, migration: int, *, after: int = 0, limit: int = PAGE_SIZE, archive: int | None = None
    ) -> list[FileRow]:
        if archive is None:
            rows = self._tables.query("files", migration=migration, after_number=after, row_limit=limit)
        else:
            rows = self._tables.query(
                "files_of_archive", migration=migration, archive=archive, after_number=after, row_limit=limit
            )
        return [FileRow(**row) for row in rows]

    def has_file(self, migration: int, path: str) -> bool:
        """Whether a migration has an encoded path, or one below it."""
        first, beyond = range_below(path)
        return bool(self._tables.query("file_at_or_below", migration=migration, path=path, first=first, beyond=beyond))

    def iter_found(self, by: SearchBy, text: str) -> Iterator[Row]:
        """Files of all migrations, each with whose it is: at a path or below it, with a name, or with a digest."""
        if by == "path":
            path = encode_path(text.rstrip("/") or "/")
            first, beyond = range_below(path)
            return self._tables.iter_rows(
                "files_by_path",
                keys=("path", "migration"),
                after=("", 0),
                page=200,
                path=path,
                first=first,
                beyond=beyond,
            )
        if by == "name":
            return self._tables.iter_rows(
                "files_by_name", keys=("migration", "number"), after=(0, 0), page=200, name=encode_path(text)
            )
        return self._tables.iter_rows(
            "files_by_digest", keys=("migration", "number"), after=(0, 0), page=200, sha256=text.lower()
        )

    # --- findings and people

    def enter_finding(self, migration: int, archive: int, storage: str, found: float, problem: str) -> None:
        """Until its next turn nobody reads it again, except on demand."""
        self._tables.execute("note_checked", migration=migration, number=archive, checked=found)
        self._tables.execute(
            "enter_finding", migration=migration, archive=archive, storage=storage, found=found, problem=problem[:2000]
        )

    def iter_findings(self) -> Iterator[Row]:
        return self._tables.iter_rows("findings", keys=("migration", "archive"), after=(0, 0), page=200)

    def find_person(self, name: str) -> tuple[str, bool] | None:
        """The mail address of a person, and whether mail is wanted."""
        rows = self._tables.query("person", name=name)
        return (str(rows[0]["email"]), bool(rows[0]["notify"])) if rows else None

    def enter_person(self, name: str, email: str, notify: bool) -> None:
        self._tables.execute("enter_person", name=name, email=email, notify=int(notify))


def _to_migration(row: Row) -> MigrationRow:
    return MigrationRow(**{name: row[name] for name in MigrationRow.__struct_fields__})
