"""Two connections, one order of events each: the races that lost or doubled records, made to happen every time."""

import random
from typing import Any

import psycopg
import pytest

from tests.budget import Budget
from tests.servers.process import wait_until
from tests.stores.postgres.harness import PostgresHarness
from tests.stores.postgres.held import Hold, connection
from waybill.record import (
    Ask,
    Change,
    ClaimLost,
    Committed,
    Conflict,
    Group,
    Record,
    Role,
    SessionLost,
    StoreError,
    Taken,
    Unavailable,
)
from waybill.stores.conformance import Yard
from waybill.stores.conformance.yard import change, commit, present
from waybill.stores.postgres import troubles


class TestSessions:
    """A3: claims against the reaper."""

    def expired(self, yard: Yard) -> tuple[Any, Any, str]:
        """A worker whose session has run out, and a reaper that may say so."""
        h = yard.harness
        worker, reaper = h.open(), h.open()
        doomed = yard.session(worker, ttl=h.ttl)
        # in small steps: a gap of a ttl, also one in which the test itself stood still, would begin anew
        for _ in range(12):
            h.tick(h.ttl / 10)
            reaper.now()
        return worker, reaper, doomed

    def test_a3_a_claim_of_a_session_that_is_being_reaped_is_refused(self, yard: Yard, hold: Hold) -> None:
        made = yard.make(2)
        worker, reaper, doomed = self.expired(yard)
        assert yard.ids(yard.claim(worker, doomed, 1)) == [made[0].id]
        with hold.at_commit(reaper):
            reaping = hold.background(reaper.reap)
            hold.wait_for(reaper)
            claiming = hold.background(lambda: worker.claim([Role("parcel", "Packing")], doomed, 1))
            hold.wait_until_blocked(worker)
        assert reaping.result(30) == [doomed]
        with pytest.raises(SessionLost):
            claiming.result(30)
        assert [yard.get(record).session for record in made] == [None, None]

    def test_a3_b_a_claim_that_commits_after_the_reaper_began_is_freed_by_it(self, yard: Yard, hold: Hold) -> None:
        made = yard.one()
        worker, reaper, doomed = self.expired(yard)
        with hold.at_commit(worker):
            claiming = hold.background(lambda: worker.claim([Role("parcel", "Packing")], doomed, 1))
            hold.wait_for(worker)
            reaping = hold.background(reaper.reap)
            hold.wait_until_blocked(reaper)
        (mine,) = claiming.result(30)
        assert reaping.result(30) == [doomed]
        freed = yard.get(made)
        assert (freed.session, freed.version) == (None, mine.record.version + 1)
        assert type(commit(worker, Group((change(mine.record, session=None),)))[0]) is ClaimLost

    def test_a3_a_renewal_in_the_last_moment_wins_over_the_reaper(
        self, yard: Yard, hold: Hold, harness: PostgresHarness
    ) -> None:
        worker, reaper, doomed = self.expired(yard)
        db = connection(worker)
        db.autocommit = False
        assert worker.renew(doomed).alive  # written, not yet committed
        reaping = hold.background(reaper.reap)
        hold.wait_until_blocked(reaper)
        db.commit()
        db.autocommit = True
        assert reaping.result(30) == []
        assert worker.renew(doomed).alive


class TestChildren:
    """A5: the last two children of a parent close at once."""

    @pytest.fixture
    def family(self, yard: Yard) -> tuple[Record, Any, Any]:
        crate = yard.crate()
        closing = [
            Group((change(child, state="Sent", open=False, event="done"),)) for child in yard.make(2, parent=crate)
        ]
        return crate, *closing

    def test_a5_the_later_of_two_commits_sees_both_closed(self, family: Any, yard: Yard, hold: Hold) -> None:
        crate, first, second = family
        a, b = yard.harness.open(), yard.harness.open()
        with hold.at_commit(a):
            later = hold.background(lambda: a.commit([first]))
            hold.wait_for(a)
            assert b.commit([second])[0].idle == (), "the other's is not committed yet, and it cannot know"
        assert later.result(30)[0].idle == (crate.ref,)

    def test_a5_a_parent_that_waits_for_children_while_the_last_one_calls_looks_again(
        self, yard: Yard, hold: Hold
    ) -> None:
        joins = yard.one()
        a, b = yard.harness.open(), yard.harness.open()
        (mine,) = yard.claimed(a, yard.session(a))
        with hold.at_commit(b):
            calling = hold.background(lambda: b.commit([Group((), (joins.ref,))]))
            hold.wait_for(b)
            waiting = hold.background(lambda: a.commit([Group((change(mine, session=None, parked="children"),))]))
            hold.wait_until_blocked(a)
        assert isinstance(calling.result(30)[0], Committed)
        assert waiting.result(30)[0].records[0].parked is None
        assert yard.get(joins).parked is None


class TestParking:
    """A10: a record that is being parked on what is being let go."""

    def held_key(self, yard: Yard) -> tuple[Any, Any, str, Group, Record]:
        """One holds a key, another waits in the queue for it; the group that drops it."""
        a, b = yard.harness.open(), yard.harness.open()
        key = yard.key("k")
        yard.one(keys=(key,))
        (holder,) = yard.claimed(a, yard.session(a))
        waiter = yard.one(keys=(key,))
        return a, b, yard.session(b), Group((change(holder, session=None, state="Shelved", keys=()),)), waiter

    def test_a10_park_before_release(self, yard: Yard, hold: Hold) -> None:
        """The claim has parked it and is not committed: the release waits for that, and then finds the waiter."""
        a, b, session, dropping, waiter = self.held_key(yard)
        with hold.at_commit(b):
            claiming = hold.background(lambda: b.claim([Role("parcel", "Packing")], session, 1))
            hold.wait_for(b)
            releasing = hold.background(lambda: a.commit([dropping]))
            hold.wait_until_blocked(a)
        assert claiming.result(30) == []
        assert isinstance(releasing.result(30)[0], Committed)
        assert yard.get(waiter).parked is None
        assert yard.ids(yard.claim(b, session)) == [waiter.id]

    def test_a10_park_after_release(self, yard: Yard, hold: Hold) -> None:
        """The key is dropped and that is not committed: nothing is parked on it any more."""
        a, b, session, dropping, waiter = self.held_key(yard)
        with hold.at_commit(a):
            releasing = hold.background(lambda: a.commit([dropping]))
            hold.wait_for(a)
            assert b.claim([Role("parcel", "Packing")], session, 1) == []
            assert yard.get(waiter).parked is None
        assert isinstance(releasing.result(30)[0], Committed)
        assert yard.ids(yard.claim(b, session)) == [waiter.id]

    def test_a10_a_waiter_that_is_being_nudged_is_not_passed_over(self, yard: Yard, hold: Hold) -> None:
        a, b, session, dropping, waiter = self.held_key(yard)
        assert b.claim([Role("parcel", "Packing")], session, 1) == []
        assert yard.get(waiter).parked == f"key {yard.key('k')}"
        with hold.at_commit(b):
            calling = hold.background(lambda: b.commit([Group((), (waiter.ref,))]))
            hold.wait_for(b)
            releasing = hold.background(lambda: a.commit([dropping]))
            hold.wait_until_blocked(a)
        assert isinstance(calling.result(30)[0], Committed)
        assert isinstance(releasing.result(30)[0], Committed)
        assert (yard.get(waiter).parked, yard.get(waiter).nudges) == (None, 1)

    def test_a10_a_nudge_in_the_middle_of_a_release_unparks_the_waiter(self, yard: Yard, hold: Hold) -> None:
        a, b, session, dropping, waiter = self.held_key(yard)
        assert b.claim([Role("parcel", "Packing")], session, 1) == []
        # The waiter is locked by a call that has not yet looked at the key when the release passes it over.
        db = connection(b)
        db.autocommit = False
        db.execute("select from record where id = %s for update", [waiter.id])
        assert isinstance(a.commit([dropping])[0], Committed)
        assert isinstance(b.commit([Group((), (waiter.ref,))])[0], Committed)
        db.commit()
        db.autocommit = True
        assert yard.get(waiter).parked is None

    def test_a10_park_before_mark_off(self, yard: Yard, hold: Hold) -> None:
        a, b = yard.harness.open(), yard.harness.open()
        session = yard.session(b)
        gate = yard.gate("closed")
        made = yard.one(gates=(gate,))
        a.mark(gate, True)
        with hold.at_commit(b):
            claiming = hold.background(lambda: b.claim([Role("parcel", "Packing")], session, 1))
            hold.wait_for(b)
            clearing = hold.background(lambda: a.mark(gate, False))
            hold.wait_until_blocked(a)
        assert claiming.result(30) == []
        clearing.result(30)
        assert yard.get(made).parked is None

    def test_a9_a_key_that_is_being_taken_is_waited_for_and_not_doubled(self, yard: Yard, hold: Hold) -> None:
        a, b = yard.harness.open(), yard.harness.open()
        first, second = yard.session(a), yard.session(b)
        made = yard.make(2, keys=(yard.key("k"), yard.key("l")))
        with hold.at_commit(a):
            one = hold.background(lambda: a.claim([Role("parcel", "Packing")], first, 1))
            hold.wait_for(a)
            two = hold.background(lambda: b.claim([Role("parcel", "Packing")], second, 1))
            hold.wait_until_blocked(b)
        assert yard.ids(one.result(30)) == [made[0].id]
        assert two.result(30) == []
        assert yard.get(made[1]).session is None


class TestCreation:
    """B6: a creator that commits late."""

    def test_b6_no_page_passes_over_a_late_creator(self, yard: Yard, hold: Hold) -> None:
        a, b = yard.harness.open(), yard.harness.open()
        with hold.at_commit(a):
            late = hold.background(lambda: a.commit([Group((yard.draft(message="late"),))]))
            hold.wait_for(a)
            early = hold.background(lambda: b.commit([Group((yard.draft(message="early"),))]))
            hold.wait_until_blocked(b)
            assert yard.store.find("parcel").records == []
        (first,), (second,) = (present(answer.result(30)[0]) for answer in (late, early))
        assert first.seq < second.seq
        assert [record.message for record in yard.store.find("parcel").records] == ["late", "early"]

    def test_a11_a_request_that_is_being_made_is_waited_for(self, yard: Yard, hold: Hold) -> None:
        a, b = yard.harness.open(), yard.harness.open()
        with hold.at_commit(a):
            one = hold.background(lambda: a.commit([Group((yard.draft(request="r"),))]))
            hold.wait_for(a)
            two = hold.background(
                lambda: b.commit([Group((yard.draft(request="r"),)), Group((yard.draft(message="neighbour"),))])
            )
            hold.wait_until_blocked(b)
        (first,) = present(one.result(30)[0])
        again, neighbour = two.result(30)
        assert again.records == (first,)
        assert neighbour.records[0].message == "neighbour"

    def test_b10_a_later_life_of_an_id_waits_for_the_end_of_the_former(self, yard: Yard, hold: Hold) -> None:
        a, b = yard.harness.open(), yard.harness.open()
        made = yard.one(id="own")
        for _ in range(5):
            made = yard.update(made)
        with hold.at_commit(a):
            removing = hold.background(lambda: a.commit([Group((Change(made, None, event="remove"),))]))
            hold.wait_for(a)
            (refused,) = b.commit([Group((yard.draft(id="own"),))])
        assert type(refused).__name__ == "Exists"
        assert isinstance(removing.result(30)[0], Committed)
        again = present(b.commit([Group((yard.draft(id="own"),))])[0])[0]
        assert again.version > made.version


class TestAsks:
    def test_b11_a_request_is_seen_by_the_release_or_sees_it(self, yard: Yard, hold: Hold) -> None:
        made = yard.one()
        a, b = yard.harness.open(), yard.harness.open()
        (mine,) = yard.claimed(a, yard.session(a))
        with hold.at_commit(a):
            releasing = hold.background(lambda: a.commit([Group((change(mine, session=None),))]))
            hold.wait_for(a)
            asking = hold.background(lambda: b.ask(Ask(made.ref, "cancel", "ann", "")))
            hold.wait_until_blocked(b)
        assert releasing.result(30)[0].asked == ()
        assert asking.result(30) is False
        assert b.asks() == []

    def test_b11_a_release_that_waited_for_a_request_tells_of_it(self, yard: Yard, hold: Hold) -> None:
        """It began before the request was there, and is answered after: what it tells must not be older than the row
        it waited for.
        """
        made = yard.one()
        a, b = yard.harness.open(), yard.harness.open()
        (mine,) = yard.claimed(a, yard.session(a))
        ask = Ask(made.ref, "cancel", "ann", "")
        db = connection(b)
        db.autocommit = False
        assert b.ask(ask) is True  # left, not yet committed
        releasing = hold.background(lambda: a.commit([Group((change(mine, session=None),))]))
        hold.wait_until_blocked(a)
        db.commit()
        db.autocommit = True
        assert releasing.result(30)[0].asked == (ask,)


DEADLOCK = "40P01"
STAND_AT_SECOND_KEY = """
create function stand_at_second_key() returns trigger language plpgsql as $$
begin
    if current_setting('test.keys', true) = 'one' and exists (select from held_back where pid = pg_backend_pid()) then
        perform pg_advisory_xact_lock_shared(4711);
    end if;
    perform set_config('test.keys', 'one', true);
    return new;
end $$;
create trigger stand_at_second_key before insert on key for each row execute function stand_at_second_key();
"""


class TestLockOrder:
    @pytest.fixture
    def refusals(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The codes of all errors that the server answered; the driver sends again what a deadlock undid, and nobody
        would notice.
        """
        codes: list[str] = []

        def told(error: psycopg.Error, user: str, calling: Any = troubles.calling) -> StoreError:
            codes.append(error.sqlstate or "")
            refusal: StoreError = calling(error, user)
            return refusal

        monkeypatch.setattr(troubles, "calling", told)
        return codes

    def test_six_writers_of_the_same_records_and_keys_never_deadlock(
        self, yard: Yard, budget: Budget, refusals: list[str]
    ) -> None:
        """Groups of several records in any order, keys taken and dropped in any order: whole or not at all, and
        nobody is the victim.
        """
        h = yard.harness
        assert isinstance(h, PostgresHarness)
        records = yard.make(8)
        names = [yard.key(c) for c in "abcd"]
        rounds = budget.pick(small=40, long=2_000)

        def write(seed: int) -> list[Any]:
            store, rng = h.open(), random.Random(seed)
            session = store.open_session(host="", ttl=1e6, about={})
            answers: list[Any] = []
            for _ in range(rounds):
                for each in store.claim([Role("parcel", "Packing")], session, 2):
                    answers += store.commit(
                        [Group((change(each.record, event="done", keys=tuple(rng.sample(names, 2))),))]
                    )
                    if isinstance(answers[-1], Committed) and (on := answers[-1].records[0]) is not None and on.session:
                        answers += store.commit([Group((change(on, session=None, keys=tuple(rng.sample(names, 1))),))])
                some = [store.get(record.kind, record.id) for record in rng.sample(records, 4)]
                free = [record for record in some if record.session is None]
                groups = [Group(tuple(change(r, message=f"{seed}", keys=tuple(rng.sample(names, 2))) for r in free))]
                answers += store.commit([*groups, Group((), tuple(record.ref for record in some))])
            store.close_session(session)
            return answers

        answers = [answer for each in h.race(*[lambda s=seed: write(s) for seed in range(6)]) for answer in each]
        assert all(isinstance(answer, (Committed, Conflict)) for answer in answers), {
            type(answer) for answer in answers
        }
        assert sum(isinstance(answer, Committed) for answer in answers) > rounds
        assert DEADLOCK not in refusals
        assert list(h.open().check()) == []

    def test_keys_are_taken_in_the_order_of_their_names(self, yard: Yard, hold: Hold, refusals: list[str]) -> None:
        """One stands between its first key and its second, and the other asks for the same two, named the other way
        round.
        """
        h = yard.harness
        assert isinstance(h, PostgresHarness)
        yard.make(2)
        a, b = h.open(), h.open()
        first, second = yard.claimed(a, yard.session(a), 1)[0], yard.claimed(b, yard.session(b), 1)[0]
        h.admin.execute(STAND_AT_SECOND_KEY)
        one, two = yard.key("1"), yard.key("2")
        with hold.at_commit(a):
            taking = hold.background(lambda: commit(a, Group((change(first, event="", keys=(two, one)),))))
            hold.wait_for(a)
            asking = hold.background(lambda: commit(b, Group((change(second, event="", keys=(one, two)),))))
            hold.wait_until_blocked(b)
        assert isinstance(taking.result(30)[0], Committed)
        assert isinstance(asking.result(30)[0], Taken)
        assert DEADLOCK not in refusals

    def test_a_key_is_handed_on_only_when_no_other_is_waited_for(
        self, yard: Yard, hold: Hold, refusals: list[str]
    ) -> None:
        """One has its first key, and wants a second that another's group hands on, which wants the first as well."""
        h = yard.harness
        assert isinstance(h, PostgresHarness)
        yard.make(3)
        a, b = h.open(), h.open()
        one, two = yard.key("1"), yard.key("2")
        (going,) = yard.claimed(a, yard.session(a), 1)
        giving, getting = yard.claimed(b, yard.session(b), 2)
        (giving,) = present(commit(b, Group((change(giving, event="", keys=(two,)),)))[0])
        h.admin.execute(STAND_AT_SECOND_KEY)
        with hold.at_commit(a):
            taking = hold.background(lambda: commit(a, Group((change(going, event="done", keys=(one, two)),))))
            hold.wait_for(a)
            group = Group((change(giving, event="", keys=()), change(getting, event="done", keys=(one, two))))
            handing = hold.background(lambda: commit(b, group))
            hold.wait_until_blocked(b)
        assert isinstance(taking.result(30)[0], Committed)
        assert isinstance(handing.result(30)[0], Committed)
        assert DEADLOCK not in refusals
        assert list(h.open().check()) == []


class TestCutOff:
    """A backend that is terminated: before, in the middle of, and after what it does."""

    def test_a11_a_commit_that_is_cut_off_is_unknown_for_every_group_and_the_store_goes_on(
        self, yard: Yard, hold: Hold
    ) -> None:
        h = yard.harness
        assert isinstance(h, PostgresHarness)
        a = h.open()
        session = yard.session(a)
        first, second = yard.make(2)
        with hold.at_commit(a):
            cut = hold.background(
                lambda: commit(a, Group((change(first, message="x"),)), Group((change(second, message="y"),)))
            )
            hold.wait_for(a)
            h.admin.execute("select pg_terminate_backend(%s)", [connection(a).info.backend_pid])
            answers = cut.result(30)
        assert [type(answer).__name__ for answer in answers] == ["Unknown", "Unknown"]
        assert yard.get(first).message == "", "this one was cut off before it was committed"
        assert a.renew(session).alive
        assert isinstance(commit(a, Group((change(first, message="again"),)))[0], Committed)

    def test_a_connection_that_was_lost_while_idle_is_replaced_before_anything_is_sent(self, yard: Yard) -> None:
        h = yard.harness
        assert isinstance(h, PostgresHarness)
        made = yard.one()
        a = h.open()
        pid = connection(a).info.backend_pid
        h.admin.execute("select pg_terminate_backend(%s, 10000)", [pid])
        assert isinstance(commit(a, Group((change(made, message="written"),)))[0], Committed)
        assert connection(a).info.backend_pid != pid

    def test_rows_that_somebody_keeps_locked_are_given_up_with_nothing_written(self, yard: Yard) -> None:
        h = yard.harness
        assert isinstance(h, PostgresHarness)
        first, second = yard.make(2)
        a = h.open()
        connection(a).execute("set lock_timeout = '100ms'")
        with h.admin.transaction():
            h.admin.execute("select from record where id = %s for update", [second.id])
            with pytest.raises(Unavailable, match="locked for too long"):
                a.commit([Group((change(first, message="x"),)), Group((change(second, message="y"),))])
        assert [yard.get(record).message for record in (first, second)] == ["", ""]
        assert isinstance(commit(a, Group((change(second, message="y"),)))[0], Committed)

    def test_a_read_that_is_cut_off_is_unavailable_and_can_be_repeated(self, yard: Yard, hold: Hold) -> None:
        h = yard.harness
        assert isinstance(h, PostgresHarness)
        made = yard.one()
        a = h.open()
        with pytest.raises(Unavailable, match="lost"):
            cut_off(h, hold, lambda: a.get(made.kind, made.id))
        assert a.get(made.kind, made.id) == made


def blocked(h: PostgresHarness) -> bool:
    return (
        h.admin.execute(
            "select from pg_stat_activity where wait_event_type = 'Lock' and wait_event = 'relation'"
        ).fetchone()
        is not None
    )


def cut_off(h: PostgresHarness, hold: Hold, call: Any) -> Any:
    """Terminate the call's backend while it waits for a lock."""
    h.admin.execute("begin; lock table record in access exclusive mode")
    waiting = hold.background(call)
    wait_until(lambda: blocked(h), "the call to be blocked")
    h.admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock' and wait_event = 'relation'"
    )
    h.admin.execute("rollback")
    return waiting.result(30)
