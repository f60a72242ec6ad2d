"""Commits that are held back at their very end: all is written, nothing is committed, until the test lets go.

    with hold.at_commit(a):
        first = background(lambda: a.commit(...))      # runs up to its COMMIT
        hold.wait_for(a)                               # ... and stands there
        ...                                            # what others do meanwhile
    first.result()

A deferred trigger on `record` takes an advisory lock that the test holds. It fires at the commit of any transaction
that wrote a record on a connection marked by `at_commit`; the driver's own code runs unchanged.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import psycopg

from tests.servers.process import wait_until
from tests.stores.postgres.harness import PostgresHarness
from waybill.stores.postgres import PostgresStore
from waybill.stores.postgres.connection import Row

T = TypeVar("T")

TRIGGER = """
create table held_back (pid integer not null);
create function stand() returns trigger language plpgsql as $$
begin
    if exists (select from held_back where pid = pg_backend_pid()) then
        perform pg_advisory_xact_lock_shared(4711);
    end if;
    return null;
end $$;
create constraint trigger stand after insert or update or delete on record deferrable initially deferred
for each row execute function stand();
"""


class Hold:
    def __init__(self, harness: PostgresHarness) -> None:
        self._admin = harness.admin
        self._admin.execute(TRIGGER)
        self._barrier = psycopg.connect(harness.url, autocommit=True)
        self._threads = ThreadPoolExecutor(8)

    def background(self, call: Callable[[], T]) -> Future[T]:
        return self._threads.submit(call)

    @contextmanager
    def at_commit(self, *stores: PostgresStore) -> Iterator[None]:
        self._admin.cursor().executemany(
            "insert into held_back values (%s)", [(connection(store).info.backend_pid,) for store in stores]
        )
        self._barrier.execute("select pg_advisory_lock(4711)")
        try:
            yield
        finally:
            self._barrier.execute("select pg_advisory_unlock(4711)")
            self._admin.execute("delete from held_back")

    def wait_for(self, store: PostgresStore) -> None:
        """Until it stands at its commit."""
        wait_until(lambda: self._waits(store, "advisory"), "the commit to be held back")

    def wait_until_blocked(self, store: PostgresStore) -> None:
        """Until it waits for a row that somebody else has locked."""
        wait_until(lambda: self._waits(store, "t%"), "the call to be blocked by another")

    def _waits(self, store: PostgresStore, event: str) -> bool:
        pid = connection(store).info.backend_pid
        rows = self._admin.execute(
            "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock' and wait_event like %s",
            [pid, event],
        )
        return rows.fetchone() is not None

    def close(self) -> None:
        self._barrier.close()
        self._threads.shutdown(wait=True)


def connection(store: PostgresStore) -> psycopg.Connection[Row]:
    """The one that the store has now; another thread may be using it, so it is only looked at."""
    db = store._connection._db
    assert db is not None
    return db
