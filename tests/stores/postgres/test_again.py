"""Others got in the way, by a deadlock or otherwise: the statement is sent again.

A worker never hears of it, or that the store is away.
"""

from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.stores.postgres.harness import PostgresHarness
from tests.stores.postgres.held import Hold
from waybill.record import Ask, Committed, Group, Record, Role, Store, Unavailable
from waybill.stores.conformance import Yard
from waybill.stores.conformance.yard import change, commit
from waybill.stores.postgres.connection import TRIES

# As the server says it; the sequence counts on whatever is rolled back.
REFUSAL = """
create sequence refused;
create function refuse() returns trigger language plpgsql as $$
begin
    if nextval('refused') <= current_setting('waybill.refusals')::bigint then
        raise exception 'deadlock detected' using errcode = tg_argv[0];
    end if;
    return null;
end $$;
"""


class Refusals:
    """Makes the server refuse the next statements that write a table, so many times."""

    def __init__(self, harness: PostgresHarness) -> None:
        self._admin = harness.admin
        self._schema = harness.schema
        self._admin.execute(REFUSAL)

    def begin(self, store: Store, table: str, times: int, code: str = "40P01") -> None:
        store._connection._ready().execute(f"select set_config('waybill.refusals', '{times}', false)")  # type: ignore[attr-defined]
        self._admin.execute(
            f"create trigger refuse after insert or update or delete on {table} for each statement execute function refuse('{code}')"
        )

    @property
    def told(self) -> int:
        (last,) = self._admin.execute(
            "select case when is_called then last_value else 0 end from refused"
        ).fetchone() or (0,)
        return int(last)


@pytest.fixture
def refusals(harness: PostgresHarness) -> Refusals:
    return Refusals(harness)


def _free(store: Store) -> Record:
    return next(record for record in store.find("parcel").records if record.session is None)


VERBS: dict[str, tuple[str, Callable[[Yard, Store, str, Record], object]]] = {
    "claim": ("record", lambda yard, store, session, held: store.claim([Role("parcel", "Packing")], session, 1)),
    "take": ("record", lambda yard, store, session, held: store.take("parcel", _free(store).id, session)),
    "open_session": ("session", lambda yard, store, session, held: store.open_session(host="here", ttl=60, about={})),
    "renew": ("session", lambda yard, store, session, held: store.renew(session, {"a": [1, 2, "b"]})),
    "close_session": ("session", lambda yard, store, session, held: store.close_session(session)),
    "ask": ("ask", lambda yard, store, session, held: store.ask(Ask(held.ref, "stop", "me", ""))),
    "mark": ("mark", lambda yard, store, session, held: store.mark("owner/ann", True, "me")),
    "remember": ("memory", lambda yard, store, session, held: store.remember("a", "b")),
    "wake": ("record", lambda yard, store, session, held: store.wake()),
    "sweep": ("tally", lambda yard, store, session, held: store.sweep()),
}


@pytest.mark.parametrize("code", ["40P01", "40001"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_writes_is_tried_again(yard: Yard, refusals: Refusals, verb: str, code: str) -> None:
    table, call = VERBS[verb]
    yard.make(2)
    store, session = yard.store, yard.session()
    (held,) = yard.claimed(store, session, 1)
    refusals.begin(store, table, TRIES - 1, code)
    call(yard, store, session, held)
    assert refusals.told >= TRIES


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_refused_again_and_again_is_a_store_that_is_away(yard: Yard, refusals: Refusals, verb: str) -> None:
    """Unavailable, which a worker outlives; nothing was written, and the connection goes on."""
    table, call = VERBS[verb]
    yard.make(2)
    store, session = yard.store, yard.session()
    (held,) = yard.claimed(store, session, 1)
    before = store.find("parcel").records
    refusals.begin(store, table, 10_000)
    with pytest.raises(Unavailable, match=rf"deadlock detected.* It was tried {TRIES} times; nothing was written\."):
        call(yard, store, session, held)
    assert store.find("parcel").records == before
    assert [info.name for info in store.sessions()] == [session]


def test_a_commit_is_tried_as_often_and_answered_group_by_group(yard: Yard, refusals: Refusals) -> None:
    first, second = yard.make(2)
    refusals.begin(yard.store, "history", 2 * TRIES)  # together, then the first of them alone
    answers = commit(yard.store, Group((change(first, owner="ann"),)), Group((change(second, owner="bob"),)))
    assert [type(answer) for answer in answers] == [Unavailable, Committed]


class TestADeadlock:
    """A real one: a second connection locks rows in an order that no driver would."""

    @pytest.fixture
    def other(self, harness: PostgresHarness) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        with psycopg.connect(
            harness.url, options=f"-c search_path={harness.schema} -c deadlock_timeout=1h -c lock_timeout=60s"
        ) as db:
            yield db  # it is never the victim: it does not look

    def test_a_mark_that_is_cleared(
        self, yard: Yard, hold: Hold, other: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        yard.store.mark("owner/ann", True, "me")
        records = yard.make(2, gates=("owner/ann",))
        assert yard.claim(yard.store, yard.session()) == []
        a, b = sorted(records, key=lambda record: record.id)
        self._patient(yard.store)
        other.execute("update record set owner = 'b' where id = %s", [b.id])
        clearing = hold.background(lambda: yard.store.mark("owner/ann", False))
        hold.wait_until_blocked(yard.store)  # it has locked the first, and waits for the second
        other.execute("update record set owner = 'a' where id = %s", [a.id])
        other.commit()
        clearing.result(60)
        assert [(yard.get(record).owner, yard.get(record).parked) for record in (a, b)] == [("a", None), ("b", None)]

    def test_a_session_that_is_ended(
        self, yard: Yard, hold: Hold, other: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        yard.one()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        self._patient(yard.store)
        other.execute("update record set owner = 'b' where id = %s", [mine.id])
        closing = hold.background(lambda: yard.store.close_session(session))
        hold.wait_until_blocked(yard.store)
        other.execute("update session set host = 'elsewhere' where name = %s", [session])
        other.commit()
        closing.result(60)
        assert yard.get(mine).session is None
        assert yard.store.sessions() == []

    def _patient(self, store: Store) -> None:
        """It looks whether it is part of a deadlock once, after so long: late enough for the other one to have come."""
        store._connection._ready().execute("set deadlock_timeout = '3s'")  # type: ignore[attr-defined]
