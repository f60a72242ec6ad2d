"""The schema of a store's file: created on an empty file, brought up to date by numbered migrations, refused when it is
newer than this driver.

An empty file gets schema.sql, which is always the newest schema. An older file gets the files of migrations/ that it
lacks: NNNN_name.sql, from 0002 on (schema.sql of the first release is version 1). All are files of named statements that
are executed one by one: of several statements in one call SQLite runs those after a row only once the row is read.

The file itself records its version (user_version) and that it is a Waybill store (application_id).
"""

from __future__ import annotations

import re
from importlib import resources

from waybill.record import BadStore
from waybill.sql_statements import load_statements
from waybill.stores.sqlite.database import SqliteDatabase

APPLICATION_ID = 0x57617962  # "Wayb"
_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


def list_migrations() -> dict[int, str]:
    """The files of migrations/ by their numbers, in order."""
    folder = resources.files(__package__).joinpath("migrations")
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    found = {int(match[1]): match[0] for name in names if (match := _FILE_NAME.fullmatch(name))}
    if list(found) != list(range(2, len(found) + 2)):
        raise BadStore(
            f"The migrations of the SQLite schema are not numbered from 0002 on without a gap: {', '.join(names)}."
        )
    return found


def prepare_schema(database: SqliteDatabase, *, migrate: bool) -> None:
    """Make the schema the one that this driver works with, or raise BadStore."""
    migrations = list_migrations()
    newest = max(migrations, default=1)
    with database.read():  # one snapshot: another process may be creating the schema at this moment
        present = _schema_version_of(database, newest)
    if present == newest:
        return
    if not migrate:
        raise BadStore(
            f"{database.location} has schema {present}; this Waybill needs {newest}. Let one process open it that may migrate it."
        )
    with database.write() as execute:
        present = _schema_version_of(database, newest)  # again: another process may have been first
        files = ["schema.sql"] if present == 0 else [f"migrations/{migrations[n]}" for n in migrations if n > present]
        for file in files:
            for statement in load_statements(__package__, file).values():
                execute(statement).fetchall()
        execute(f"pragma user_version = {newest}").fetchall()
        execute(f"pragma application_id = {APPLICATION_ID}").fetchall()


def _schema_version_of(database: SqliteDatabase, newest: int) -> int:
    """The version of the file's schema; 0 for an empty file."""
    ((version,),) = database.execute("pragma user_version").fetchall()
    ((application_id,),) = database.execute("pragma application_id").fetchall()
    ((table_count,),) = database.execute("select count(*) from sqlite_schema").fetchall()
    if application_id != APPLICATION_ID and (table_count or version or application_id):
        raise BadStore(
            f"{database.location} is a database of another program. Name another file for the store; it was not changed."
        )
    if version > newest:
        raise BadStore(
            f"{database.location} was written by a newer Waybill (schema {version}; this one knows up to {newest}). "
            "Upgrade Waybill here, or use the newer one."
        )
    return int(version)
