"""The store's schema: created in an empty database, brought up to date by numbered migrations, refused when it is newer
than this driver.

A new store is created by schema.sql and functions.sql, which are always the newest schema. An older store gets the files
of migrations/ that it lacks: NNNN_name.sql, from 0002 on (schema.sql of the first release is version 1). All of it
happens in one transaction under an advisory lock, so that processes which start together do it once.
"""

from __future__ import annotations

import re
from importlib import resources

import psycopg
from psycopg import sql

from waybill.record import BadStore
from waybill.stores.postgres.connection import Row

PACKAGE = "waybill.stores.postgres"
_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")

_EXISTS_QUERY = (
    "select n.oid is not null, c.oid is not null from (select %s::text as name) s left join pg_namespace n on n.nspname = s.name"
    " left join pg_class c on c.relnamespace = n.oid and c.relname = 'migration'"
)


def load_migrations() -> dict[int, tuple[str, str]]:
    """The names and texts of the files of migrations/, by their numbers, in order."""
    folder = resources.files(PACKAGE).joinpath("migrations")
    found = {}
    for file in folder.iterdir() if folder.is_dir() else ():
        if match := _FILE_NAME.fullmatch(file.name):
            found[int(match[1])] = (file.name, file.read_text("utf-8"))
    return dict(sorted(found.items()))


def read_schema() -> str:
    folder = resources.files(PACKAGE)
    return folder.joinpath("schema.sql").read_text("utf-8") + folder.joinpath("functions.sql").read_text("utf-8")


def prepare_schema(db: psycopg.Connection[Row], schema: str, safe_url: str, migrate: bool) -> None:
    """Make the schema the one that this driver works with, or raise BadStore."""
    migrations = load_migrations()
    newest = max(migrations, default=1)
    present = schema_version_of(db, schema)
    if present == newest:
        return
    _refuse_newer(present, newest, safe_url)
    if not migrate:
        state = f"has schema {present}, and this Waybill needs {newest}" if present else "holds no store"
        effect = "brings it up to date" if present else "makes one"
        raise BadStore(f"{safe_url} {state}; `waybill up` or `waybill migrate` {effect}.")
    if db.execute("select pg_is_in_recovery()").fetchall()[0][0]:
        raise BadStore(
            f"{safe_url} is a read-only standby; name the primary server, or add target_session_attrs=read-write to the URL."
        )
    with db.transaction():
        db.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"waybill {schema}"])
        present = schema_version_of(db, schema)  # again: another process may have done it while we waited
        _refuse_newer(present, newest, safe_url)
        if present == 0:
            create_schema(db, schema, read_schema())
        for number, (_name, text) in migrations.items():
            if 0 < present < number:
                db.execute(text.encode())
        db.cursor().executemany(
            "insert into migration (number, name, at) values (%s, %s, waybill_now()) on conflict do nothing",
            [(1, "schema.sql"), *((number, name) for number, (name, _text) in migrations.items())],
        )


def _refuse_newer(present: int, newest: int, safe_url: str) -> None:
    if present > newest:
        raise BadStore(
            f"{safe_url} was made by a newer Waybill (schema {present}; this one knows {newest}). Upgrade Waybill here."
        )


def create_schema(db: psycopg.Connection[Row], schema: str, text: str) -> None:
    """Create the schema unless it exists, and run `text` in it."""
    if not db.execute(_EXISTS_QUERY, [schema]).fetchall()[0][0]:
        db.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
    db.execute(text.encode())


def schema_version_of(db: psycopg.Connection[Row], schema: str) -> int:
    """The version of the schema; 0 where there is no store yet."""
    if not db.execute(_EXISTS_QUERY, [schema]).fetchall()[0][1]:
        return 0
    # Qualified with the schema's name: a user without rights on the schema then gets that error, and not that the table
    # does not exist.
    (number,) = db.execute(
        sql.SQL("select coalesce(max(number), 0) from {}").format(sql.Identifier(schema, "migration"))
    ).fetchall()[0]
    return int(number)
