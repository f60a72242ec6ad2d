"""A lock that changes its owner while a call is between two of its statements: taken after it was seen free, dropped
after it was found taken.

An insert that finds the lock taken does not wait and writes nothing; the next statement sees what was committed in the
meantime. A query for another owner would then find none, and the call would take the lock for its own: so the driver
queries whether its own record owns the lock.

    read: free      another takes it      insert: taken      another drops it      who owns it?
               ^ paused here                            ^ paused here
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.servers.process import wait_until
from tests.stores.postgres.commit_barrier import CommitBarrier, connection
from tests.stores.postgres.harness import PostgresHarness
from waybill.record import CommitGroup, CommitResult, OwnedLock, Record, Store, WorkQueue
from waybill.stores.conformance import StoreTester
from waybill.stores.conformance.tester import commit_groups, make_change, records_of

BEFORE, AFTER = 4712, 4713  # the insert of locks: the advisory locks at which a call is paused

TRIGGERS = f"""
create table paused_insert (pid integer not null);
create function pause_at_insert() returns trigger language plpgsql as $$
begin
    if exists (select from paused_insert where pid = pg_backend_pid()) then
        perform pg_advisory_xact_lock_shared(tg_argv[0]::integer);
    end if;
    return new;
end $$;
create trigger pause_before_insert before insert on record_lock for each row execute function pause_at_insert({BEFORE});
create trigger pause_after_insert after insert on record_lock for each statement execute function pause_at_insert({AFTER});
"""


class InsertBarrier:
    """Pauses the calls of a store before and after they insert locks, until they are released."""

    def __init__(self, harness: PostgresHarness) -> None:
        self._admin = harness.admin
        self._admin.execute(TRIGGERS)
        self._keeper = psycopg.connect(harness.url, autocommit=True)

    @contextmanager
    def closed(self, store: Store) -> Iterator[None]:
        self._pid = connection(store).info.backend_pid
        self._admin.execute("insert into paused_insert values (%s)", [self._pid])
        for point in (BEFORE, AFTER):
            self._keeper.execute("select pg_advisory_lock(%s)", [point])
        try:
            yield
        finally:
            self._keeper.execute("select pg_advisory_unlock_all()")
            self._admin.execute("delete from paused_insert")

    def wait_at(self, point: int) -> None:
        stands = "select from pg_locks where pid = %s and locktype = 'advisory' and objid = %s and not granted"
        wait_until(
            lambda: self._admin.execute(stands, [self._pid, point]).fetchone() is not None, "the call to be paused"
        )

    def release(self, point: int) -> None:
        self._keeper.execute("select pg_advisory_unlock(%s)", [point])

    def close(self) -> None:
        self._keeper.close()


@pytest.fixture
def insert_barrier(harness: PostgresHarness) -> Iterator[InsertBarrier]:
    insert_barrier = InsertBarrier(harness)
    yield insert_barrier
    insert_barrier.close()


def claim_parcels(tester: StoreTester, count: int) -> list[tuple[Any, Record]]:
    """`count` workers, each with a connection, a session and a claimed record of its own."""
    tester.make_parcels(count)
    found = []
    for _ in range(count):
        store = tester.harness.open()
        found.append((store, tester.claim_records(store, tester.open_session(store), 1)[0]))
    return found


def test_a9_continuing_into_a_lock_that_is_just_being_dropped_does_not_take_it(
    tester: StoreTester, barrier: CommitBarrier, insert_barrier: InsertBarrier
) -> None:
    (a, mine), (b, theirs) = claim_parcels(tester, 2)
    lock = tester.lock_name_of("k")
    holds = tester.save(theirs, store=b, locks=(lock,))
    with insert_barrier.closed(a):
        going_on = barrier.background(
            lambda: a.commit([CommitGroup((make_change(mine, cause="done", state="Weighing", locks=(lock,)),))])
        )
        insert_barrier.wait_at(BEFORE)
        insert_barrier.release(BEFORE)
        insert_barrier.wait_at(AFTER)  # it did not get the lock
        tester.save(holds, store=b, locks=())  # which no record owns now
    (answer,) = going_on.result(30)
    assert isinstance(answer, CommitResult)
    (moved,) = records_of(answer)
    assert (moved.state, moved.session) == ("Weighing", None), (
        "it continues without its claim, and asks for the lock with the next"
    )
    assert tester.store.list_locks() == []
    assert list(tester.store.check()) == []
    other = tester.harness.open()
    assert tester.ids_of(tester.claim(other, tester.open_session(other), state="Weighing")) == [mine.id]
    assert tester.store.list_locks() == [OwnedLock(lock, (mine.ref,))]


def test_a9_a_save_whose_lock_another_just_took_and_dropped_really_takes_it(
    tester: StoreTester, barrier: CommitBarrier, insert_barrier: InsertBarrier
) -> None:
    (a, mine), (b, theirs) = claim_parcels(tester, 2)
    lock = tester.lock_name_of("k")
    with insert_barrier.closed(a):
        saving = barrier.background(
            lambda: commit_groups(a, CommitGroup((make_change(mine, cause="", locks=(lock,)),)))
        )
        insert_barrier.wait_at(BEFORE)  # it has seen that the lock is free
        holds = tester.save(theirs, store=b, locks=(lock,))
        insert_barrier.release(BEFORE)
        insert_barrier.wait_at(AFTER)
        tester.save(holds, store=b, locks=())
    (answer,) = saving.result(30)
    assert isinstance(answer, CommitResult)
    assert tester.store.list_locks() == [OwnedLock(lock, (mine.ref,))]


def test_a9_a_claim_whose_lock_another_just_took_and_dropped_is_not_made(
    tester: StoreTester, barrier: CommitBarrier, insert_barrier: InsertBarrier
) -> None:
    ((b, theirs),) = claim_parcels(tester, 1)
    a, (lock, further) = tester.harness.open(), (tester.lock_name_of("k"), tester.lock_name_of("l"))
    session = tester.open_session(a)
    made = tester.make_parcel(locks=(lock, further))
    with insert_barrier.closed(a):
        claiming = barrier.background(lambda: a.claim([WorkQueue("parcel", "Packing")], session, 1))
        insert_barrier.wait_at(BEFORE)
        holds = tester.save(theirs, store=b, locks=(lock,))
        insert_barrier.release(BEFORE)
        insert_barrier.wait_at(AFTER)
        tester.save(holds, store=b, locks=())
    assert claiming.result(30) == []
    assert tester.store.list_locks() == [], "nor the other lock that it got"
    assert (tester.get(made).session, tester.get(made).blocked_by) == (None, None)
    assert tester.ids_of(tester.claim(a, session)) == [made.id]
    assert [held.name for held in tester.store.list_locks()] == [lock, further]


def test_a9_of_two_commits_that_take_the_same_lock_the_later_sees_it_unavailable(
    tester: StoreTester, barrier: CommitBarrier, insert_barrier: InsertBarrier
) -> None:
    (a, mine), (b, theirs) = claim_parcels(tester, 2)
    lock = tester.lock_name_of("k")
    with insert_barrier.closed(a):
        later = barrier.background(
            lambda: a.commit([CommitGroup((make_change(mine, cause="done", state="Weighing", locks=(lock,)),))])
        )
        insert_barrier.wait_at(BEFORE)
        tester.save(theirs, store=b, locks=(lock,))
    (moved,) = records_of(later.result(30)[0])
    assert moved.session is None
    assert tester.store.list_locks() == [OwnedLock(lock, (theirs.ref,))]
    assert tester.claim(a, tester.open_session(a), state="Weighing") == []
    assert tester.get(mine).blocked_by == f"lock {lock}"
