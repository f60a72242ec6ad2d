"""What the suite needs of PostgreSQL: a clock that can be advanced, an outage, an answer that is lost on its way."""

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg

from tests.stores.postgres.proxy import Proxy
from waybill.record import CommitGroup, Ref, Store
from waybill.stores.conformance import StoreHarness
from waybill.stores.postgres import PostgresStore

CLOCK = """
set search_path = {schema};
create table test_clock (seconds double precision not null);
insert into test_clock values (0);
create or replace function waybill_now() returns double precision language sql volatile
as $$ select extract(epoch from clock_timestamp())::double precision + (select seconds from {schema}.test_clock) $$;
"""


class PostgresHarness(StoreHarness):
    """A schema of its own in the database of `url`. `admin` is a plain connection to it."""

    _numbers = itertools.count(1)

    def __init__(self, url: str) -> None:
        self.url = url
        self.schema = f"waybill_{next(self._numbers)}"
        self._stores: list[PostgresStore] = []
        self.open()
        self.admin = psycopg.connect(url, autocommit=True)
        self.admin.execute(CLOCK.format(schema=self.schema))
        self._folder = tempfile.TemporaryDirectory(prefix="waybill-proxy-")
        self._proxy = Proxy(Path(self._folder.name), parse_qs(urlsplit(url).query)["host"][0])

    def open(self, **options: Any) -> PostgresStore:
        store = PostgresStore(self.url, schema=self.schema, **options)
        self._stores.append(store)
        return store

    def tick(self, seconds: float) -> None:
        self.admin.execute("update test_clock set seconds = seconds + %s", [seconds])

    def expire_session(self, store: Store, session: str) -> None:
        reaper = self.open()
        while session not in reaper.reap_sessions():
            self.tick(self.ttl / 2)

    def simulate_outage(self, seconds: float) -> None:
        self.admin.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        self.tick(seconds)

    @contextmanager
    def lose_answer(self, store: Store) -> Iterator[None]:
        """The store connects through the proxy, which forwards the commit and not the answer."""
        assert isinstance(store, PostgresStore)
        direct = store._connection._conninfo
        store._connection._ensure_open().close()
        store._connection._conninfo = {**direct, "host": str(self._proxy.folder)}
        # the statement is prepared: what comes next is the commit and no more
        store.commit([CommitGroup((), (Ref("nothing", "nobody"),))])
        store._connection._conninfo = direct
        self._proxy.lose_next_answer()
        yield
        assert self._proxy.lost.is_set()

    def block_record(self, ref: Ref, blocked_by: str) -> bool:
        self.admin.execute("update record set blocked_by = %s where kind = %s and id = %s", [blocked_by, *ref])
        return True

    def close_stores(self) -> None:
        for store in self._stores:
            store.close()

    def close(self) -> None:
        self.close_stores()
        self.admin.execute(f"drop schema {self.schema} cascade")
        self.admin.close()
        self._proxy.close()
        self._folder.cleanup()
