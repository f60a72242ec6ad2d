"""The schema: the same whether it was made at once or by migrations, made once by many, and upgraded in one step."""

import re
from importlib import resources
from typing import Any

import psycopg
import pytest

from waybill.record import BadStore
from waybill.stores.conformance import race_in_threads
from waybill.stores.postgres import PostgresStore, schema

CATALOGS = {
    "columns": """
        select c.relname, c.relkind, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, l.collname,
               pg_get_expr(d.adbin, d.adrelid)
        from pg_attribute a join pg_class c on c.oid = a.attrelid left join pg_collation l on l.oid = a.attcollation
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = %s::regnamespace and c.relkind in ('r', 'c') and a.attnum > 0 and not a.attisdropped""",
    "settings": "select relname, reloptions from pg_class where relnamespace = %s::regnamespace and relkind = 'r'",
    "indexes": "select replace(indexdef, schemaname || '.', '') from pg_indexes where schemaname = %s",
    "constraints": """
        select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint where connamespace = %s::regnamespace""",
    "functions": "select pg_get_functiondef(oid) from pg_proc where pronamespace = %s::regnamespace",
    "comments": "select obj_description(oid) from pg_class where relnamespace = %s::regnamespace",
}


def catalog(db: "psycopg.Connection[Any]", name: str) -> dict[str, list[str]]:
    return {
        what: sorted(str(row).replace(name, "SCHEMA") for row in db.execute(query, [name]))
        for what, query in CATALOGS.items()
    }


def test_the_migrations_come_to_the_same_as_the_schema_file(fast_postgres_url: str) -> None:
    with psycopg.connect(fast_postgres_url, autocommit=True) as db:
        for name, texts in (
            ("at_once", [schema.schema_text()]),
            ("step_by_step", [text for _, text in schema.migrations().values()]),
        ):
            db.execute(f"create schema {name}; set search_path = {name}")
            for text in texts:
                db.execute(text.encode())
        db.execute("set search_path = pg_catalog")  # so that every name comes with its schema
        made, grown = catalog(db, "at_once"), catalog(db, "step_by_step")
    assert len(made["columns"]) > 100
    assert len(made["functions"]) > 4
    for what in CATALOGS:
        assert grown[what] == made[what], what


def test_migrations_are_numbered_without_a_gap_and_named_by_what_they_do() -> None:
    files = sorted(
        file.name
        for file in resources.files(schema.PACKAGE).joinpath("migrations").iterdir()
        if file.name.endswith(".sql")
    )
    assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))
    assert all(re.fullmatch(r"\d{4}-[a-z0-9-]+\.sql", name) for name in files)
    assert list(schema.migrations()) == [int(name[:4]) for name in files]


def test_processes_that_start_together_make_it_once(fast_postgres_url: str) -> None:
    stores = race_in_threads(*[lambda: PostgresStore(fast_postgres_url) for _ in range(4)])
    assert all(isinstance(store, PostgresStore) for store in stores), stores
    assert {tuple(store.marks()) for store in stores} == {()}
    for store in stores:
        store.close()


def test_an_older_store_is_upgraded_once_or_refused(fast_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PostgresStore(fast_postgres_url).close()
    known = schema.migrations()
    last = max(known)
    more = {
        **known,
        last + 1: (f"{last + 1:04d}-later.sql", "create table later (x int); insert into later values (1)"),
    }
    monkeypatch.setattr(schema, "migrations", lambda: more)  # as a later release would have it
    with pytest.raises(BadStore, match=f"has schema {last}, and this Waybill needs {last + 1}"):
        PostgresStore(fast_postgres_url, migrate=False)
    stores = race_in_threads(*[lambda: PostgresStore(fast_postgres_url) for _ in range(3)])
    for store in stores:
        store.close()
    with psycopg.connect(fast_postgres_url) as db:
        assert db.execute("select count(*) from waybill.later").fetchone() == (1,)
        assert db.execute("select max(number) from waybill.migration").fetchone() == (last + 1,)


def test_two_stores_share_a_database_in_two_schemas(fast_postgres_url: str) -> None:
    first, second = PostgresStore(fast_postgres_url), PostgresStore(fast_postgres_url, schema='Odd "name"')
    first.mark("closed", True)
    assert (list(first.marks()), list(second.marks())) == (["closed"], [])
    second.remember("colour", "blue")
    assert first.remember("colour", "red") == "red"
    first.close()
    second.close()


def test_a_migration_that_fails_leaves_nothing(fast_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "schema_text", lambda: "create table half (x int); select 1 / 0")
    with pytest.raises(BadStore):
        PostgresStore(fast_postgres_url)
    monkeypatch.undo()
    with psycopg.connect(fast_postgres_url) as db:
        assert db.execute("select count(*) from pg_namespace where nspname = 'waybill'").fetchone() == (0,)
    PostgresStore(fast_postgres_url).close()
