"""A statement that fails because of others, by a deadlock or otherwise, is sent again.

A worker does not notice, or finds the store unavailable.
"""

from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.stores.postgres.commit_barrier import CommitBarrier
from tests.stores.postgres.harness import PostgresHarness
from waybill.record import ActionRequest, CommitGroup, CommitResult, Record, Store, StoreUnavailable, WorkQueue
from waybill.stores.conformance import StoreTester
from waybill.stores.conformance.tester import commit_groups, make_change
from waybill.stores.postgres.connection import MAX_TRIES

# With the server's own message; the sequence keeps counting whatever is rolled back.
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
    """Makes the server refuse the next statements that write a table, a given number of times."""

    def __init__(self, harness: PostgresHarness) -> None:
        self._admin = harness.admin
        self._schema = harness.schema
        self._admin.execute(REFUSAL)

    def begin(self, store: Store, table: str, times: int, code: str = "40P01") -> None:
        store._connection._ensure_open().execute(f"select set_config('waybill.refusals', '{times}', false)")  # type: ignore[attr-defined]
        self._admin.execute(
            f"create trigger refuse after insert or update or delete on {table} for each statement execute function refuse('{code}')"
        )

    @property
    def count(self) -> int:
        (last,) = self._admin.execute(
            "select case when is_called then last_value else 0 end from refused"
        ).fetchone() or (0,)
        return int(last)


@pytest.fixture
def refusals(harness: PostgresHarness) -> Refusals:
    return Refusals(harness)


def _find_unclaimed(store: Store) -> Record:
    return next(record for record in store.find("parcel").records if record.session is None)


METHODS: dict[str, tuple[str, Callable[[StoreTester, Store, str, Record], object]]] = {
    "claim": (
        "record",
        lambda tester, store, session, claimed: store.claim([WorkQueue("parcel", "Packing")], session, 1),
    ),
    "claim_one": (
        "record",
        lambda tester, store, session, claimed: store.claim_one("parcel", _find_unclaimed(store).id, session),
    ),
    "open_session": (
        "session",
        lambda tester, store, session, claimed: store.open_session(host="here", ttl=60, about={}),
    ),
    "renew_session": (
        "session",
        lambda tester, store, session, claimed: store.renew_session(session, {"a": [1, 2, "b"]}),
    ),
    "close_session": ("session", lambda tester, store, session, claimed: store.close_session(session)),
    "request_action": (
        "action_request",
        lambda tester, store, session, claimed: store.request_action(ActionRequest(claimed.ref, "stop", "me", "")),
    ),
    "set_hold": ("hold", lambda tester, store, session, claimed: store.set_hold("owner/ann", "me")),
    "remember": ("remembered_value", lambda tester, store, session, claimed: store.remember("a", "b")),
    "release_due_waits": ("record", lambda tester, store, session, claimed: store.release_due_waits()),
    "maintain_indexes": ("state_count", lambda tester, store, session, claimed: store.maintain_indexes()),
}


@pytest.mark.parametrize("code", ["40P01", "40001"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_that_writes_is_tried_again(
    tester: StoreTester, refusals: Refusals, method: str, code: str
) -> None:
    table, call = METHODS[method]
    tester.make_parcels(2)
    store, session = tester.store, tester.open_session()
    (claimed,) = tester.claim_records(store, session, 1)
    refusals.begin(store, table, MAX_TRIES - 1, code)
    call(tester, store, session, claimed)
    assert refusals.count >= MAX_TRIES


@pytest.mark.parametrize("method", METHODS)
def test_repeated_refusals_make_the_store_unavailable(tester: StoreTester, refusals: Refusals, method: str) -> None:
    """StoreUnavailable, which a worker survives; nothing was written, and the connection stays usable."""
    table, call = METHODS[method]
    tester.make_parcels(2)
    store, session = tester.store, tester.open_session()
    (claimed,) = tester.claim_records(store, session, 1)
    before = store.find("parcel").records
    refusals.begin(store, table, 10_000)
    with pytest.raises(
        StoreUnavailable, match=rf"deadlock detected.* It was tried {MAX_TRIES} times; nothing was written\."
    ):
        call(tester, store, session, claimed)
    assert store.find("parcel").records == before
    assert [info.name for info in store.list_sessions()] == [session]


def test_a_commit_is_tried_as_often_and_answered_group_by_group(tester: StoreTester, refusals: Refusals) -> None:
    first, second = tester.make_parcels(2)
    refusals.begin(tester.store, "history", 2 * MAX_TRIES)  # together, then the first of them alone
    answers = commit_groups(
        tester.store, CommitGroup((make_change(first, owner="ann"),)), CommitGroup((make_change(second, owner="bob"),))
    )
    assert [type(answer) for answer in answers] == [StoreUnavailable, CommitResult]


class TestADeadlock:
    """A real one: a second connection locks rows in an order that no driver would."""

    @pytest.fixture
    def other(self, harness: PostgresHarness) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        with psycopg.connect(
            harness.url, options=f"-c search_path={harness.schema} -c deadlock_timeout=1h -c lock_timeout=60s"
        ) as db:
            yield db  # it is never the victim: it does not check for deadlocks

    def test_a_hold_that_is_cleared(
        self, tester: StoreTester, barrier: CommitBarrier, other: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        tester.store.set_hold("owner/ann", "me")
        records = tester.make_parcels(2, hold_names=("owner/ann",))
        assert tester.claim(tester.store, tester.open_session()) == []
        a, b = sorted(records, key=lambda record: record.id)
        self._delay_deadlock_check(tester.store)
        other.execute("update record set owner = 'b' where id = %s", [b.id])
        clearing = barrier.background(lambda: tester.store.clear_hold("owner/ann"))
        barrier.wait_until_blocked(tester.store)  # it has locked the first, and waits for the second
        other.execute("update record set owner = 'a' where id = %s", [a.id])
        other.commit()
        clearing.result(60)
        assert [(tester.get(record).owner, tester.get(record).blocked_by) for record in (a, b)] == [
            ("a", None),
            ("b", None),
        ]

    def test_a_session_that_is_ended(
        self, tester: StoreTester, barrier: CommitBarrier, other: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        self._delay_deadlock_check(tester.store)
        other.execute("update record set owner = 'b' where id = %s", [mine.id])
        closing = barrier.background(lambda: tester.store.close_session(session))
        barrier.wait_until_blocked(tester.store)
        other.execute("update session set host = 'elsewhere' where name = %s", [session])
        other.commit()
        closing.result(60)
        assert tester.get(mine).session is None
        assert tester.store.list_sessions() == []

    def _delay_deadlock_check(self, store: Store) -> None:
        """It checks for a deadlock after this time: late enough for the other connection to be waiting."""
        store._connection._ensure_open().execute("set deadlock_timeout = '3s'")  # type: ignore[attr-defined]
