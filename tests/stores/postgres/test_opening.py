"""The errors of a store that cannot be opened say what to do, and never show a password."""

import shutil
import subprocess
import traceback
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.servers.postgres import PostgresServer
from waybill.record import BadStore, CommitGroup, Store, StoreError, StoreUnavailable
from waybill.stores import open_store
from waybill.stores.conformance import StoreTester
from waybill.stores.conformance.tester import commit_groups, make_change
from waybill.stores.postgres import PostgresStore, schema
from waybill.stores.postgres.connection import SETTINGS

SECRET = "hush-hush"


@pytest.fixture(scope="module")
def guarded() -> Iterator[PostgresServer]:
    """A server that asks everybody but postgres for a password."""
    with PostgresServer(fast=True) as server:
        hba = server._folder / "hba.conf"
        hba.write_text("local all postgres trust\nlocal all all scram-sha-256\n")
        hba.chmod(0o644)
        admin = psycopg.connect(server.url(), autocommit=True)
        admin.execute(f"alter system set hba_file = '{hba}'")
        admin.execute("create role ann login password 'hush-hush'")
        admin.execute("create database mine owner ann")
        admin.execute("create database theirs")
        admin.close()
        server.restart(immediate=False)
        yield server


def at(server: PostgresServer, user: str, database: str, password: str | None = None) -> str:
    return server.url(database).replace("postgres@", f"{user}{'' if password is None else f':{password}'}@")


def refused(url: str, kind: type[StoreError] = BadStore, **options: Any) -> str:
    """The sentence with which it is refused; no part of the traceback shows the password."""
    with pytest.raises(kind) as refusal:
        open_store(url, **options)
    trace = "".join(traceback.format_exception(refusal.value))
    assert SECRET not in trace
    assert str(refusal.value).endswith(".")
    return str(refusal.value)


def test_it_opens_with_its_password_and_keeps_it_to_itself(guarded: PostgresServer) -> None:
    store = open_store(at(guarded, "ann", "mine", SECRET))
    assert isinstance(store, Store)
    assert isinstance(store, PostgresStore)
    assert store.count_by_state("parcel") == {}
    assert SECRET not in f"{store.url} {store!r} {store}"
    assert store.url.startswith("postgresql://ann:***@")
    store.close()


def test_a_wrong_password(guarded: PostgresServer) -> None:
    assert "password" in refused(at(guarded, "ann", "mine", f"{SECRET}-not"))
    assert "PGPASSWORD" in refused(at(guarded, "ann", "mine"))


def test_a_malformed_url() -> None:
    assert "malformed" in refused(f"postgresql://ann:{SECRET}%zz@db/x")
    assert "malformed" in refused(f"postgresql://ann:{SECRET}@db/x?colour=blue")


def test_no_such_database(guarded: PostgresServer) -> None:
    assert "createdb" in refused(at(guarded, "postgres", "nowhere"))


def test_no_such_user(fast_postgres_url: str) -> None:
    assert "refuses this user" in refused(fast_postgres_url.replace("postgres@", "absent@"))


def test_no_server(tmp_path: object) -> None:
    assert "Start the server" in refused(f"postgresql://ann:{SECRET}@127.0.0.1:1/x", StoreUnavailable)
    assert "Start the server" in refused(f"postgresql://ann:{SECRET}@/x?host={tmp_path}", StoreUnavailable)


def test_a_server_that_goes_down_while_the_store_is_opened_can_be_tried_again(
    fast_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        schema, "prepare_schema", lambda db, *more: db.execute("select pg_terminate_backend(pg_backend_pid())")
    )
    assert "going down or coming up" in refused(fast_postgres_url, StoreUnavailable)


def test_a_user_who_may_not_make_the_schema(guarded: PostgresServer) -> None:
    message = refused(at(guarded, "ann", "theirs", SECRET))
    assert "may not" in message
    assert "Grant" in message


def test_a_user_who_may_not_use_what_is_there(guarded: PostgresServer) -> None:
    PostgresStore(at(guarded, "postgres", "theirs")).close()
    assert "may not" in refused(at(guarded, "ann", "theirs", SECRET))


def test_a_schema_that_was_made_beforehand_needs_no_right_on_the_database(guarded: PostgresServer) -> None:
    admin = psycopg.connect(at(guarded, "postgres", "theirs"), autocommit=True)
    admin.execute("create schema given authorization ann")
    store = PostgresStore(at(guarded, "ann", "theirs", SECRET), schema="given")
    assert store.count_by_state("parcel") == {}
    store.close()
    admin.close()


def test_a_right_that_is_lost_later_is_reported(guarded: PostgresServer) -> None:
    store = PostgresStore(at(guarded, "ann", "mine", SECRET))
    admin = psycopg.connect(at(guarded, "postgres", "mine"), autocommit=True)
    admin.execute("alter table waybill.hold owner to postgres")
    with pytest.raises(StoreUnavailable, match=r"ann may not do this.*Grant"):
        store.set_hold("closed")
    admin.execute("alter table waybill.hold owner to ann")
    store.set_hold("closed")
    store.close()
    admin.close()


def test_a_database_of_another_encoding(guarded: PostgresServer) -> None:
    admin = psycopg.connect(guarded.url(), autocommit=True)
    admin.execute("create database latin encoding 'LATIN1' locale 'C' template template0")
    admin.close()
    assert "--encoding=UTF8" in refused(guarded.url("latin"))


def test_a_store_that_is_not_there_is_made_only_when_migration_is_allowed(fast_postgres_url: str) -> None:
    assert "holds no store" in refused(fast_postgres_url, migrate=False)
    PostgresStore(fast_postgres_url).close()
    PostgresStore(fast_postgres_url, migrate=False).close()


def test_a_store_of_a_newer_waybill(fast_postgres_url: str) -> None:
    PostgresStore(fast_postgres_url).close()
    with psycopg.connect(fast_postgres_url, autocommit=True) as admin:
        admin.execute("insert into waybill.migration values (9999, '9999-later.sql', 0)")
    for migrate in (True, False):
        assert "newer Waybill" in refused(fast_postgres_url, migrate=migrate)


def test_a_standby_is_refused_and_named(fast_postgres_server: PostgresServer) -> None:
    primary = fast_postgres_server
    url = primary.create_database()
    with PostgresServer(fast=True) as standby:
        standby.stop()
        shutil.rmtree(standby._data)
        account = standby._account
        subprocess.run(
            [
                str(standby._binaries / "pg_basebackup"),
                "-h",
                str(primary._folder),
                "-U",
                "postgres",
                "-D",
                str(standby._data),
                "-R",
                "-c",
                "fast",
            ],
            check=True,
            cwd=standby._folder,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
        standby.start()
        there = url.replace(str(primary._folder).replace("/", "%2F"), str(standby._folder).replace("/", "%2F"))
        assert there != url
        assert "standby" in refused(there)
    primary.drop_database(url)


def test_a_database_that_became_read_only_is_reported(tester: StoreTester) -> None:
    made = tester.make_parcel()
    store = tester.store
    assert isinstance(store, PostgresStore)
    store._connection._ensure_open().execute("set default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match="read-only"):
        store.commit([CommitGroup((make_change(made, message="x"),))])
    assert tester.harness.open().get(made.kind, made.id) == made


def test_a_full_disk_is_reported_and_writes_nothing(tester: StoreTester) -> None:
    """The server's code for it, raised where the row is written."""
    made = tester.make_parcel()
    tester.harness.admin.execute(  # type: ignore[attr-defined]
        "create function full_disk() returns trigger language plpgsql as"
        " $$ begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;"
        "create trigger full_disk before insert on history execute function full_disk()"
    )
    with pytest.raises(StoreUnavailable, match=r"disk of the database is full.*free some space"):
        tester.store.commit([CommitGroup((make_change(made, message="x"),))])
    assert tester.get(made) == made
    tester.harness.admin.execute("drop trigger full_disk on history")  # type: ignore[attr-defined]
    assert commit_groups(tester.store, CommitGroup((make_change(made, message="x"),)))[0].records[0].message == "x"


def test_the_connection_says_what_it_needs_whatever_the_database_says(fast_postgres_url: str) -> None:
    with psycopg.connect(fast_postgres_url, autocommit=True) as admin:
        name = admin.info.dbname
        for setting, value in (
            ("synchronous_commit", "off"),
            ("default_transaction_isolation", "'repeatable read'"),
            ("jit", "on"),
        ):
            admin.execute(f"alter database {name} set {setting} = {value}")
    store = PostgresStore(fast_postgres_url)
    db = store._connection._ensure_open()
    for setting, value in SETTINGS.items():
        (message,) = db.execute(f"show {setting}").fetchone() or (None,)
        assert message in (value, value.replace("60s", "1min")), setting
    store.close()
