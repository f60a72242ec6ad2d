"""The store's schema: made on an empty database, brought up to date by numbered migrations, refused when it is newer
than this driver.

A fresh store is made by schema.sql and functions.sql as they are; an older one by the files of migrations/ that it has
not had. Both come to the same (a test compares the two). All of it happens in one transaction under a lock, so that
processes which start together do it once.
"""

from __future__ import annotations

import re
from importlib import resources

import psycopg
from psycopg import sql

from waybill.record import BadStore
from waybill.stores.postgres.connection import Row

PACKAGE = "waybill.stores.postgres"
_NAME = re.compile(r"(\d{4})-[a-z0-9-]+\.sql")

_MADE = (
    "select n.oid is not null, c.oid is not null from (select %s::text as name) s left join pg_namespace n on n.nspname = s.name"
    " left join pg_class c on c.relnamespace = n.oid and c.relname = 'migration'"
)


def migrations() -> dict[int, tuple[str, str]]:
    """Their names and texts, by number."""
    found = {}
    for file in resources.files(PACKAGE).joinpath("migrations").iterdir():
        if match := _NAME.fullmatch(file.name):
            found[int(match[1])] = (file.name, file.read_text("utf-8"))
    return dict(sorted(found.items()))


def schema_text() -> str:
    folder = resources.files(PACKAGE)
    return folder.joinpath("schema.sql").read_text("utf-8") + folder.joinpath("functions.sql").read_text("utf-8")


def prepare(db: psycopg.Connection[Row], schema: str, place: str, migrate: bool) -> None:
    """See that the schema is the one that this driver works with."""
    known = migrations()
    newest = max(known)
    had = version(db, schema)
    if had == newest:
        return
    if had > newest:
        raise BadStore(
            f"{place} was made by a newer Waybill (schema {had}; this one knows {newest}). Upgrade Waybill here."
        )
    if not migrate:
        state = f"has schema {had}, and this Waybill needs {newest}" if had else "holds no store"
        does = "brings it up to date" if had else "makes one"
        raise BadStore(f"{place} {state}; `waybill up` or `waybill migrate` {does}.")
    if db.execute("select pg_is_in_recovery()").fetchall()[0][0]:
        raise BadStore(
            f"{place} is a read-only standby; name the primary server, or add target_session_attrs=read-write to the URL."
        )
    with db.transaction():
        db.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"waybill {schema}"])
        had = version(db, schema)  # another process may have done it while we waited
        if had == 0:
            create(db, schema, schema_text())
        for number, (_name, text) in known.items():
            if 0 < had < number:
                db.execute(text.encode())
        if had > newest:
            raise BadStore(
                f"{place} was made by a newer Waybill (schema {had}; this one knows {newest}). Upgrade Waybill here."
            )
        db.cursor().executemany(
            "insert into migration (number, name, at) values (%s, %s, waybill_now()) on conflict do nothing",
            [(number, name) for number, (name, _text) in known.items()],
        )


def create(db: psycopg.Connection[Row], schema: str, text: str) -> None:
    """Make the schema where it is not there yet, and all that `text` says in it."""
    if not db.execute(_MADE, [schema]).fetchall()[0][0]:
        db.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
    db.execute(text.encode())


def version(db: psycopg.Connection[Row], schema: str) -> int:
    """The number of the last migration; 0: there is no store yet."""
    if not db.execute(_MADE, [schema]).fetchall()[0][1]:
        return 0
    # With the schema's name, so that a user who may not use it is told so, and not that there is no such table.
    (number,) = db.execute(
        sql.SQL("select coalesce(max(number), 0) from {}").format(sql.Identifier(schema, "migration"))
    ).fetchall()[0]
    return int(number)
