"""The schema: created once by many processes, upgraded in one step, refused when it is newer."""

import psycopg
import pytest

from waybill.record import BadStore
from waybill.stores.conformance import race_in_threads
from waybill.stores.postgres import PostgresStore, schema


def test_migrations_are_numbered_without_a_gap_after_the_schema_file() -> None:
    assert list(schema.load_migrations()) == list(range(2, len(schema.load_migrations()) + 2))


def test_processes_that_start_together_make_it_once(fast_postgres_url: str) -> None:
    stores = race_in_threads(*[lambda: PostgresStore(fast_postgres_url) for _ in range(4)])
    assert all(isinstance(store, PostgresStore) for store in stores), stores
    assert {tuple(store.list_holds()) for store in stores} == {()}
    for store in stores:
        store.close()


def test_an_older_store_is_upgraded_once_or_refused(fast_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PostgresStore(fast_postgres_url).close()
    known = schema.load_migrations()
    last = max(known, default=1)
    more = {
        **known,
        last + 1: (f"{last + 1:04d}_later.sql", "create table later (x int); insert into later values (1)"),
    }
    monkeypatch.setattr(schema, "load_migrations", lambda: more)  # as a later release would have it
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
    first.set_hold("closed")
    assert (list(first.list_holds()), list(second.list_holds())) == (["closed"], [])
    second.remember("colour", "blue")
    assert first.remember("colour", "red") == "red"
    first.close()
    second.close()


def test_a_migration_that_fails_leaves_nothing(fast_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "read_schema", lambda: "create table half (x int); select 1 / 0")
    with pytest.raises(BadStore):
        PostgresStore(fast_postgres_url)
    monkeypatch.undo()
    with psycopg.connect(fast_postgres_url) as db:
        assert db.execute("select count(*) from pg_namespace where nspname = 'waybill'").fetchone() == (0,)
    PostgresStore(fast_postgres_url).close()
