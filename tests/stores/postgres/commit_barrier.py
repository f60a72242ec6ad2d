"""CommitBarrier: commits that are paused at their end, when all is written and nothing is committed.

    with barrier.at_commit(a):
        first = barrier.background(lambda: a.commit(...))  # runs up to its COMMIT
        barrier.wait_for(a)                                # ... and waits there
        ...                                                # what others do in the meantime
    first.result()

A deferred trigger on `record` takes an advisory lock that the test has. It fires at the commit of any transaction that
wrote a record on a connection that `at_commit` named; the driver's own code runs unchanged.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import psycopg

from tests.servers.process import wait_until
from tests.stores.postgres.harness import PostgresHarness
from waybill.record import Store
from waybill.stores.postgres import PostgresStore
from waybill.stores.postgres.connection import Row

T = TypeVar("T")

TRIGGER = """
create table paused_backend (pid integer not null);
create function pause_at_commit() returns trigger language plpgsql as $$
begin
    if exists (select from paused_backend where pid = pg_backend_pid()) then
        perform pg_advisory_xact_lock_shared(4711);
    end if;
    return null;
end $$;
create constraint trigger pause_at_commit after insert or update or delete on record deferrable initially deferred
for each row execute function pause_at_commit();
"""


class CommitBarrier:
    def __init__(self, harness: PostgresHarness) -> None:
        self._admin = harness.admin
        self._admin.execute(TRIGGER)
        self._barrier = psycopg.connect(harness.url, autocommit=True)
        self._threads = ThreadPoolExecutor(8)

    def background(self, call: Callable[[], T]) -> Future[T]:
        return self._threads.submit(call)

    @contextmanager
    def at_commit(self, *stores: Store) -> Iterator[None]:
        self._admin.cursor().executemany(
            "insert into paused_backend values (%s)", [(connection(store).info.backend_pid,) for store in stores]
        )
        self._barrier.execute("select pg_advisory_lock(4711)")
        try:
            yield
        finally:
            self._barrier.execute("select pg_advisory_unlock(4711)")
            self._admin.execute("delete from paused_backend")

    def wait_for(self, store: Store) -> None:
        """Wait until it is paused at its commit."""
        wait_until(lambda: self._waits(store, "advisory"), "the commit to be paused")

    def wait_until_blocked(self, store: Store) -> None:
        """Wait until it waits for a row that another transaction has locked."""
        wait_until(lambda: self._waits(store, "t%"), "the call to be blocked by another")

    def _waits(self, store: Store, event: str) -> bool:
        pid = connection(store).info.backend_pid
        rows = self._admin.execute(
            "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock' and wait_event like %s",
            [pid, event],
        )
        return rows.fetchone() is not None

    def close(self) -> None:
        self._barrier.close()
        self._threads.shutdown(wait=True)


def connection(store: Store) -> psycopg.Connection[Row]:
    """The current connection of the store. Another thread may be using it, so it is only inspected."""
    assert isinstance(store, PostgresStore)
    db = store._connection._db
    assert db is not None
    return db
