"""A key that changes hands while a call is between two of its statements: taken after it was seen free, dropped
after it was found taken.

An insert that finds the key taken waits for nobody and writes nothing; the statement after it sees what was committed
meanwhile. Whoever then asks who else has the key hears "nobody", and takes it for his own: so the driver asks whether
it has the key itself.

    looked at, free      another takes it      insert: taken      another drops it      who has it?
                    ^ stands here                            ^ stands here
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.servers.process import wait_until
from tests.stores.postgres.harness import PostgresHarness
from tests.stores.postgres.held import Hold, connection
from waybill.record import Committed, Group, HeldKey, Record, Role
from waybill.stores.conformance import Yard
from waybill.stores.conformance.yard import change, commit, present
from waybill.stores.postgres import PostgresStore

BEFORE, AFTER = 4712, 4713  # the insert of keys: the numbers of the locks at which a call stands

TRIGGERS = f"""
create table standing (pid integer not null);
create function stand_at_keys() returns trigger language plpgsql as $$
begin
    if exists (select from standing where pid = pg_backend_pid()) then
        perform pg_advisory_xact_lock_shared(tg_argv[0]::integer);
    end if;
    return new;
end $$;
create trigger stand_before_keys before insert on key for each row execute function stand_at_keys({BEFORE});
create trigger stand_after_keys after insert on key for each statement execute function stand_at_keys({AFTER});
"""


class Gates:
    """Where a store's calls stand until they are let through."""

    def __init__(self, harness: PostgresHarness) -> None:
        self._admin = harness.admin
        self._admin.execute(TRIGGERS)
        self._keeper = psycopg.connect(harness.url, autocommit=True)

    @contextmanager
    def closed(self, store: PostgresStore) -> Iterator[None]:
        self._pid = connection(store).info.backend_pid
        self._admin.execute("insert into standing values (%s)", [self._pid])
        for gate in (BEFORE, AFTER):
            self._keeper.execute("select pg_advisory_lock(%s)", [gate])
        try:
            yield
        finally:
            self._keeper.execute("select pg_advisory_unlock_all()")
            self._admin.execute("delete from standing")

    def wait_at(self, gate: int) -> None:
        stands = "select from pg_locks where pid = %s and locktype = 'advisory' and objid = %s and not granted"
        wait_until(
            lambda: self._admin.execute(stands, [self._pid, gate]).fetchone() is not None, "the call to stand there"
        )

    def let_through(self, gate: int) -> None:
        self._keeper.execute("select pg_advisory_unlock(%s)", [gate])

    def close(self) -> None:
        self._keeper.close()


@pytest.fixture
def gates(harness: PostgresHarness) -> Iterator[Gates]:
    gates = Gates(harness)
    yield gates
    gates.close()


def claimed(yard: Yard, count: int) -> list[tuple[Any, Record]]:
    """So many workers, each with a connection, a session and a record of its own."""
    yard.make(count)
    found = []
    for _ in range(count):
        store = yard.harness.open()
        found.append((store, yard.claimed(store, yard.session(store), 1)[0]))
    return found


def test_a9_who_goes_on_into_a_key_that_is_dropped_in_that_moment_has_it_not(
    yard: Yard, hold: Hold, gates: Gates
) -> None:
    (a, mine), (b, theirs) = claimed(yard, 2)
    key = yard.key("k")
    holds = yard.save(theirs, store=b, keys=(key,))
    with gates.closed(a):
        going_on = hold.background(
            lambda: a.commit([Group((change(mine, event="done", state="Weighing", keys=(key,)),))])
        )
        gates.wait_at(BEFORE)
        gates.let_through(BEFORE)
        gates.wait_at(AFTER)  # it did not get the key
        yard.save(holds, store=b, keys=())  # which nobody has now
    (answer,) = going_on.result(30)
    assert isinstance(answer, Committed)
    (moved,) = present(answer)
    assert (moved.state, moved.session) == ("Weighing", None), (
        "it goes on without its claim, and asks for the key with the next"
    )
    assert yard.store.held_keys() == []
    assert list(yard.store.check()) == []
    other = yard.harness.open()
    assert yard.ids(yard.claim(other, yard.session(other), state="Weighing")) == [mine.id]
    assert yard.store.held_keys() == [HeldKey(key, mine.ref)]


def test_a9_a_save_whose_key_another_took_and_dropped_in_that_moment_really_takes_it(
    yard: Yard, hold: Hold, gates: Gates
) -> None:
    (a, mine), (b, theirs) = claimed(yard, 2)
    key = yard.key("k")
    with gates.closed(a):
        saving = hold.background(lambda: commit(a, Group((change(mine, event="", keys=(key,)),))))
        gates.wait_at(BEFORE)  # it has seen that the key is free
        holds = yard.save(theirs, store=b, keys=(key,))
        gates.let_through(BEFORE)
        gates.wait_at(AFTER)
        yard.save(holds, store=b, keys=())
    (answer,) = saving.result(30)
    assert isinstance(answer, Committed)
    assert yard.store.held_keys() == [HeldKey(key, mine.ref)]


def test_a9_a_claim_whose_key_another_took_and_dropped_in_that_moment_is_none(
    yard: Yard, hold: Hold, gates: Gates
) -> None:
    ((b, theirs),) = claimed(yard, 1)
    a, (key, further) = yard.harness.open(), (yard.key("k"), yard.key("l"))
    session = yard.session(a)
    made = yard.one(keys=(key, further))
    with gates.closed(a):
        claiming = hold.background(lambda: a.claim([Role("parcel", "Packing")], session, 1))
        gates.wait_at(BEFORE)
        holds = yard.save(theirs, store=b, keys=(key,))
        gates.let_through(BEFORE)
        gates.wait_at(AFTER)
        yard.save(holds, store=b, keys=())
    assert claiming.result(30) == []
    assert yard.store.held_keys() == [], "nor the other key that it got"
    assert (yard.get(made).session, yard.get(made).parked) == (None, None)
    assert yard.ids(yard.claim(a, session)) == [made.id]
    assert [held.name for held in yard.store.held_keys()] == [key, further]


def test_a9_of_two_commits_that_take_the_same_key_the_later_sees_that_it_is_taken(
    yard: Yard, hold: Hold, gates: Gates
) -> None:
    (a, mine), (b, theirs) = claimed(yard, 2)
    key = yard.key("k")
    with gates.closed(a):
        later = hold.background(lambda: a.commit([Group((change(mine, event="done", state="Weighing", keys=(key,)),))]))
        gates.wait_at(BEFORE)
        yard.save(theirs, store=b, keys=(key,))
    (moved,) = present(later.result(30)[0])
    assert moved.session is None
    assert yard.store.held_keys() == [HeldKey(key, theirs.ref)]
    assert yard.claim(a, yard.session(a), state="Weighing") == []
    assert yard.get(mine).parked == f"key {key}"
