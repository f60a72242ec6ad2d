"""Two connections, one order of events each: the races that lost or doubled records, made to happen every time."""

import random
from typing import Any

import psycopg
import pytest

from tests.budget import Budget
from tests.servers.process import wait_until
from tests.stores.postgres.commit_barrier import CommitBarrier, connection
from tests.stores.postgres.harness import PostgresHarness
from waybill.record import (
    ActionRequest,
    Change,
    ClaimLost,
    CommitGroup,
    CommitResult,
    Conflict,
    LockUnavailable,
    Record,
    SessionLost,
    StoreError,
    StoreUnavailable,
    WorkQueue,
)
from waybill.stores.conformance import StoreTester
from waybill.stores.conformance.tester import commit_groups, make_change, records_of
from waybill.stores.postgres import errors


class TestSessions:
    """A3: claims against the reaper."""

    def expire_session(self, tester: StoreTester) -> tuple[Any, Any, str]:
        """A worker whose session has expired, and a reaper that may end it."""
        h = tester.harness
        worker, reaper = h.open(), h.open()
        dying = tester.open_session(worker, ttl=h.ttl)
        # in small steps: after a gap of a ttl, also one in which the test itself was paused, the reaper would start again
        for _ in range(12):
            h.tick(h.ttl / 10)
            reaper.now()
        return worker, reaper, dying

    def test_a3_a_claim_of_a_session_that_is_being_reaped_is_refused(
        self, tester: StoreTester, barrier: CommitBarrier
    ) -> None:
        made = tester.make_parcels(2)
        worker, reaper, dying = self.expire_session(tester)
        assert tester.ids_of(tester.claim(worker, dying, 1)) == [made[0].id]
        with barrier.at_commit(reaper):
            reaping = barrier.background(reaper.reap_sessions)
            barrier.wait_for(reaper)
            claiming = barrier.background(lambda: worker.claim([WorkQueue("parcel", "Packing")], dying, 1))
            barrier.wait_until_blocked(worker)
        assert reaping.result(30) == [dying]
        with pytest.raises(SessionLost):
            claiming.result(30)
        assert [tester.get(record).session for record in made] == [None, None]

    def test_a3_b_a_claim_that_commits_after_the_reaper_began_is_released_by_it(
        self, tester: StoreTester, barrier: CommitBarrier
    ) -> None:
        made = tester.make_parcel()
        worker, reaper, dying = self.expire_session(tester)
        with barrier.at_commit(worker):
            claiming = barrier.background(lambda: worker.claim([WorkQueue("parcel", "Packing")], dying, 1))
            barrier.wait_for(worker)
            reaping = barrier.background(reaper.reap_sessions)
            barrier.wait_until_blocked(reaper)
        (mine,) = claiming.result(30)
        assert reaping.result(30) == [dying]
        freed = tester.get(made)
        assert (freed.session, freed.version) == (None, mine.record.version + 1)
        assert type(commit_groups(worker, CommitGroup((make_change(mine.record, session=None),)))[0]) is ClaimLost

    def test_a3_a_renewal_in_the_last_moment_wins_over_the_reaper(
        self, tester: StoreTester, barrier: CommitBarrier, harness: PostgresHarness
    ) -> None:
        worker, reaper, dying = self.expire_session(tester)
        db = connection(worker)
        db.autocommit = False
        assert worker.renew_session(dying).alive  # written, not yet committed
        reaping = barrier.background(reaper.reap_sessions)
        barrier.wait_until_blocked(reaper)
        db.commit()
        db.autocommit = True
        assert reaping.result(30) == []
        assert worker.renew_session(dying).alive


class TestChildren:
    """A5: the last two children of a parent close at once."""

    @pytest.fixture
    def family(self, tester: StoreTester) -> tuple[Record, Any, Any]:
        crate = tester.make_crate()
        closing = [
            CommitGroup((make_change(child, state="Sent", open=False, cause="done"),))
            for child in tester.make_parcels(2, parent=crate)
        ]
        first, second = closing
        return crate, first, second

    def test_a5_the_later_of_two_commits_sees_both_closed(
        self, family: Any, tester: StoreTester, barrier: CommitBarrier
    ) -> None:
        crate, first, second = family
        a, b = tester.harness.open(), tester.harness.open()
        with barrier.at_commit(a):
            later = barrier.background(lambda: commit_groups(a, first))
            barrier.wait_for(a)
            assert commit_groups(b, second)[0].idle_parents == (), "the other's commit is not visible yet"
        assert later.result(30)[0].idle_parents == (crate.ref,)

    def test_a5_a_parent_that_waits_for_children_while_the_last_one_wakes_it_is_not_blocked(
        self, tester: StoreTester, barrier: CommitBarrier
    ) -> None:
        joins = tester.make_parcel()
        a, b = tester.harness.open(), tester.harness.open()
        (mine,) = tester.claim_records(a, tester.open_session(a))
        with barrier.at_commit(b):
            calling = barrier.background(lambda: commit_groups(b, CommitGroup((), (joins.ref,))))
            barrier.wait_for(b)
            waiting = barrier.background(
                lambda: commit_groups(a, CommitGroup((make_change(mine, session=None, blocked_by="children"),)))
            )
            barrier.wait_until_blocked(a)
        assert isinstance(calling.result(30)[0], CommitResult)
        assert waiting.result(30)[0].records[0].blocked_by is None
        assert tester.get(joins).blocked_by is None


class TestBlocking:
    """A10: a record that is being blocked by what is being dropped."""

    def claim_lock(self, tester: StoreTester) -> tuple[Any, Any, str, CommitGroup, Record]:
        """One record owns a lock, another waits for it in the queue; and the group that drops the lock."""
        a, b = tester.harness.open(), tester.harness.open()
        lock = tester.lock_name_of("k")
        tester.make_parcel(locks=(lock,))
        (holder,) = tester.claim_records(a, tester.open_session(a))
        waiter = tester.make_parcel(locks=(lock,))
        return (
            a,
            b,
            tester.open_session(b),
            CommitGroup((make_change(holder, session=None, state="Shelved", locks=()),)),
            waiter,
        )

    def test_a10_block_before_release(self, tester: StoreTester, barrier: CommitBarrier) -> None:
        """The claim has blocked it and is not committed: the release waits for that, and then finds the waiter."""
        a, b, session, dropping, waiter = self.claim_lock(tester)
        with barrier.at_commit(b):
            claiming = barrier.background(lambda: b.claim([WorkQueue("parcel", "Packing")], session, 1))
            barrier.wait_for(b)
            releasing = barrier.background(lambda: commit_groups(a, dropping))
            barrier.wait_until_blocked(a)
        assert claiming.result(30) == []
        assert isinstance(releasing.result(30)[0], CommitResult)
        assert tester.get(waiter).blocked_by is None
        assert tester.ids_of(tester.claim(b, session)) == [waiter.id]

    def test_a10_block_after_release(self, tester: StoreTester, barrier: CommitBarrier) -> None:
        """The lock is dropped and that is not committed: nothing is blocked by it any more."""
        a, b, session, dropping, waiter = self.claim_lock(tester)
        with barrier.at_commit(a):
            releasing = barrier.background(lambda: commit_groups(a, dropping))
            barrier.wait_for(a)
            assert b.claim([WorkQueue("parcel", "Packing")], session, 1) == []
            assert tester.get(waiter).blocked_by is None
        assert isinstance(releasing.result(30)[0], CommitResult)
        assert tester.ids_of(tester.claim(b, session)) == [waiter.id]

    def test_a10_a_waiter_that_is_being_woken_is_not_skipped(self, tester: StoreTester, barrier: CommitBarrier) -> None:
        a, b, session, dropping, waiter = self.claim_lock(tester)
        assert b.claim([WorkQueue("parcel", "Packing")], session, 1) == []
        assert tester.get(waiter).blocked_by == f"lock {tester.lock_name_of('k')}"
        with barrier.at_commit(b):
            calling = barrier.background(lambda: commit_groups(b, CommitGroup((), (waiter.ref,))))
            barrier.wait_for(b)
            releasing = barrier.background(lambda: commit_groups(a, dropping))
            barrier.wait_until_blocked(a)
        assert isinstance(calling.result(30)[0], CommitResult)
        assert isinstance(releasing.result(30)[0], CommitResult)
        assert (tester.get(waiter).blocked_by, tester.get(waiter).wake_count) == (None, 1)

    def test_a10_a_wake_in_the_middle_of_a_release_unblocks_the_waiter(
        self, tester: StoreTester, barrier: CommitBarrier
    ) -> None:
        a, b, session, dropping, waiter = self.claim_lock(tester)
        assert b.claim([WorkQueue("parcel", "Packing")], session, 1) == []
        # The waiter is locked by a call that has not yet read the lock when the release skips it.
        db = connection(b)
        db.autocommit = False
        db.execute("select from record where id = %s for update", [waiter.id])
        assert isinstance(commit_groups(a, dropping)[0], CommitResult)
        assert isinstance(commit_groups(b, CommitGroup((), (waiter.ref,)))[0], CommitResult)
        db.commit()
        db.autocommit = True
        assert tester.get(waiter).blocked_by is None

    def test_a10_block_before_clear_hold(self, tester: StoreTester, barrier: CommitBarrier) -> None:
        a, b = tester.harness.open(), tester.harness.open()
        session = tester.open_session(b)
        hold = tester.hold_name_of("closed")
        made = tester.make_parcel(hold_names=(hold,))
        a.set_hold(hold)
        with barrier.at_commit(b):
            claiming = barrier.background(lambda: b.claim([WorkQueue("parcel", "Packing")], session, 1))
            barrier.wait_for(b)
            clearing = barrier.background(lambda: a.clear_hold(hold))
            barrier.wait_until_blocked(a)
        assert claiming.result(30) == []
        clearing.result(30)
        assert tester.get(made).blocked_by is None

    def test_a9_a_lock_that_is_being_taken_is_waited_for_and_not_doubled(
        self, tester: StoreTester, barrier: CommitBarrier
    ) -> None:
        a, b = tester.harness.open(), tester.harness.open()
        first, second = tester.open_session(a), tester.open_session(b)
        made = tester.make_parcels(2, locks=(tester.lock_name_of("k"), tester.lock_name_of("l")))
        with barrier.at_commit(a):
            one = barrier.background(lambda: a.claim([WorkQueue("parcel", "Packing")], first, 1))
            barrier.wait_for(a)
            two = barrier.background(lambda: b.claim([WorkQueue("parcel", "Packing")], second, 1))
            barrier.wait_until_blocked(b)
        assert tester.ids_of(one.result(30)) == [made[0].id]
        assert two.result(30) == []
        assert tester.get(made[1]).session is None


class TestCreation:
    """B6: a creator that commits late."""

    def test_b6_no_page_passes_over_a_late_creator(self, tester: StoreTester, barrier: CommitBarrier) -> None:
        a, b = tester.harness.open(), tester.harness.open()
        with barrier.at_commit(a):
            late = barrier.background(lambda: commit_groups(a, CommitGroup((tester.draft_parcel(message="late"),))))
            barrier.wait_for(a)
            early = barrier.background(lambda: commit_groups(b, CommitGroup((tester.draft_parcel(message="early"),))))
            barrier.wait_until_blocked(b)
            assert tester.store.find("parcel").records == []
        (first,), (second,) = (records_of(answer.result(30)[0]) for answer in (late, early))
        assert first.seq < second.seq
        assert [record.message for record in tester.store.find("parcel").records] == ["late", "early"]

    def test_a11_a_creation_with_the_same_idempotency_key_is_waited_for(
        self, tester: StoreTester, barrier: CommitBarrier
    ) -> None:
        a, b = tester.harness.open(), tester.harness.open()
        with barrier.at_commit(a):
            one = barrier.background(lambda: commit_groups(a, CommitGroup((tester.draft_parcel(idempotency_key="r"),))))
            barrier.wait_for(a)
            two = barrier.background(
                lambda: commit_groups(
                    b,
                    CommitGroup((tester.draft_parcel(idempotency_key="r"),)),
                    CommitGroup((tester.draft_parcel(message="neighbour"),)),
                )
            )
            barrier.wait_until_blocked(b)
        (first,) = records_of(one.result(30)[0])
        again, neighbour = two.result(30)
        assert again.records == (first,)
        assert neighbour.records[0].message == "neighbour"

    def test_b10_a_later_life_of_an_id_waits_for_the_end_of_the_former(
        self, tester: StoreTester, barrier: CommitBarrier
    ) -> None:
        a, b = tester.harness.open(), tester.harness.open()
        made = tester.make_parcel(id="own")
        for _ in range(5):
            made = tester.update(made)
        with barrier.at_commit(a):
            removing = barrier.background(lambda: commit_groups(a, CommitGroup((Change(made, None, cause="remove"),))))
            barrier.wait_for(a)
            (refused,) = commit_groups(b, CommitGroup((tester.draft_parcel(id="own"),)))
        assert type(refused).__name__ == "RecordExists"
        assert isinstance(removing.result(30)[0], CommitResult)
        again = records_of(commit_groups(b, CommitGroup((tester.draft_parcel(id="own"),)))[0])[0]
        assert again.version > made.version


class TestActionRequests:
    def test_b11_a_request_is_seen_by_the_release_or_sees_it(self, tester: StoreTester, barrier: CommitBarrier) -> None:
        made = tester.make_parcel()
        a, b = tester.harness.open(), tester.harness.open()
        (mine,) = tester.claim_records(a, tester.open_session(a))
        with barrier.at_commit(a):
            releasing = barrier.background(lambda: commit_groups(a, CommitGroup((make_change(mine, session=None),))))
            barrier.wait_for(a)
            asking = barrier.background(lambda: b.request_action(ActionRequest(made.ref, "cancel", "ann", "")))
            barrier.wait_until_blocked(b)
        assert releasing.result(30)[0].action_requests == ()
        assert asking.result(30) is False
        assert b.list_action_requests() == []

    def test_b11_a_release_that_waited_for_a_request_returns_it(
        self, tester: StoreTester, barrier: CommitBarrier
    ) -> None:
        """It began before the request existed, and returns after: its answer must not be older than the row it waited for."""
        made = tester.make_parcel()
        a, b = tester.harness.open(), tester.harness.open()
        (mine,) = tester.claim_records(a, tester.open_session(a))
        request = ActionRequest(made.ref, "cancel", "ann", "")
        db = connection(b)
        db.autocommit = False
        assert b.request_action(request) is True  # written, not yet committed
        releasing = barrier.background(lambda: commit_groups(a, CommitGroup((make_change(mine, session=None),))))
        barrier.wait_until_blocked(a)
        db.commit()
        db.autocommit = True
        assert releasing.result(30)[0].action_requests == (request,)


DEADLOCK = "40P01"
PAUSE_AT_SECOND_LOCK = """
create function pause_at_second_lock() returns trigger language plpgsql as $$
begin
    if current_setting('test.locks', true) = 'one' and exists (select from paused_backend where pid = pg_backend_pid()) then
        perform pg_advisory_xact_lock_shared(4711);
    end if;
    perform set_config('test.locks', 'one', true);
    return new;
end $$;
create trigger pause_at_second_lock before insert on record_lock for each row execute function pause_at_second_lock();
"""


class TestLockOrder:
    @pytest.fixture
    def refusals(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The codes of all errors of the server; the driver repeats what a deadlock rolled back, and nobody would notice."""
        codes: list[str] = []

        def record_code(error: psycopg.Error, user: str, calling: Any = errors.statement_error_of) -> StoreError:
            codes.append(error.sqlstate or "")
            refusal: StoreError = calling(error, user)
            return refusal

        monkeypatch.setattr(errors, "statement_error_of", record_code)
        return codes

    def test_six_writers_of_the_same_records_and_locks_never_deadlock(
        self, tester: StoreTester, budget: Budget, refusals: list[str]
    ) -> None:
        """Groups of several records in any order, locks taken and dropped in any order: whole or not at all, and without a
        deadlock.
        """
        h = tester.harness
        assert isinstance(h, PostgresHarness)
        records = tester.make_parcels(8)
        names = [tester.lock_name_of(c) for c in "abcd"]
        rounds = budget.pick(small=40, long=2_000)

        def write(seed: int) -> list[Any]:
            store, rng = h.open(), random.Random(seed)
            session = store.open_session(host="", ttl=1e6, about={})
            answers: list[Any] = []
            for _ in range(rounds):
                for each in store.claim([WorkQueue("parcel", "Packing")], session, 2):
                    answers += store.commit(
                        [CommitGroup((make_change(each.record, cause="done", locks=tuple(rng.sample(names, 2))),))]
                    )
                    if (
                        isinstance(answers[-1], CommitResult)
                        and (on := answers[-1].records[0]) is not None
                        and on.session
                    ):
                        answers += store.commit(
                            [CommitGroup((make_change(on, session=None, locks=tuple(rng.sample(names, 1))),))]
                        )
                some = [store.get(record.kind, record.id) for record in rng.sample(records, 4)]
                free = [record for record in some if record.session is None]
                groups = [
                    CommitGroup(
                        tuple(make_change(r, message=f"{seed}", locks=tuple(rng.sample(names, 2))) for r in free)
                    )
                ]
                answers += store.commit([*groups, CommitGroup((), tuple(record.ref for record in some))])
            store.close_session(session)
            return answers

        answers = [answer for each in h.race(*[lambda s=seed: write(s) for seed in range(6)]) for answer in each]
        assert all(isinstance(answer, (CommitResult, Conflict)) for answer in answers), {
            type(answer) for answer in answers
        }
        assert sum(isinstance(answer, CommitResult) for answer in answers) > rounds
        assert DEADLOCK not in refusals
        assert list(h.open().check()) == []

    def test_locks_are_taken_in_the_order_of_their_names(
        self, tester: StoreTester, barrier: CommitBarrier, refusals: list[str]
    ) -> None:
        """One is paused between its first lock and its second, and the other asks for the same two in the opposite order."""
        h = tester.harness
        assert isinstance(h, PostgresHarness)
        tester.make_parcels(2)
        a, b = h.open(), h.open()
        first, second = (
            tester.claim_records(a, tester.open_session(a), 1)[0],
            tester.claim_records(b, tester.open_session(b), 1)[0],
        )
        h.admin.execute(PAUSE_AT_SECOND_LOCK)
        one, two = tester.lock_name_of("1"), tester.lock_name_of("2")
        with barrier.at_commit(a):
            taking = barrier.background(
                lambda: commit_groups(a, CommitGroup((make_change(first, cause="", locks=(two, one)),)))
            )
            barrier.wait_for(a)
            asking = barrier.background(
                lambda: commit_groups(b, CommitGroup((make_change(second, cause="", locks=(one, two)),)))
            )
            barrier.wait_until_blocked(b)
        assert isinstance(taking.result(30)[0], CommitResult)
        assert isinstance(asking.result(30)[0], LockUnavailable)
        assert DEADLOCK not in refusals

    def test_a_lock_is_transferred_only_when_no_other_is_waited_for(
        self, tester: StoreTester, barrier: CommitBarrier, refusals: list[str]
    ) -> None:
        """One has its first lock, and wants a second that a group of another transfers, which wants the first as well."""
        h = tester.harness
        assert isinstance(h, PostgresHarness)
        tester.make_parcels(3)
        a, b = h.open(), h.open()
        one, two = tester.lock_name_of("1"), tester.lock_name_of("2")
        (going,) = tester.claim_records(a, tester.open_session(a), 1)
        giving, getting = tester.claim_records(b, tester.open_session(b), 2)
        (giving,) = records_of(commit_groups(b, CommitGroup((make_change(giving, cause="", locks=(two,)),)))[0])
        h.admin.execute(PAUSE_AT_SECOND_LOCK)
        with barrier.at_commit(a):
            taking = barrier.background(
                lambda: commit_groups(a, CommitGroup((make_change(going, cause="done", locks=(one, two)),)))
            )
            barrier.wait_for(a)
            group = CommitGroup(
                (make_change(giving, cause="", locks=()), make_change(getting, cause="done", locks=(one, two)))
            )
            handing = barrier.background(lambda: commit_groups(b, group))
            barrier.wait_until_blocked(b)
        assert isinstance(taking.result(30)[0], CommitResult)
        assert isinstance(handing.result(30)[0], CommitResult)
        assert DEADLOCK not in refusals
        assert list(h.open().check()) == []


class TestCutOff:
    """A backend that is terminated: before, in the middle of, and after what it does."""

    def test_a11_a_commit_that_is_cut_off_is_unknown_for_every_group_and_the_store_goes_on(
        self, tester: StoreTester, barrier: CommitBarrier
    ) -> None:
        h = tester.harness
        assert isinstance(h, PostgresHarness)
        a = h.open()
        session = tester.open_session(a)
        first, second = tester.make_parcels(2)
        with barrier.at_commit(a):
            cut = barrier.background(
                lambda: commit_groups(
                    a, CommitGroup((make_change(first, message="x"),)), CommitGroup((make_change(second, message="y"),))
                )
            )
            barrier.wait_for(a)
            h.admin.execute("select pg_terminate_backend(%s)", [connection(a).info.backend_pid])
            answers = cut.result(30)
        assert [type(answer).__name__ for answer in answers] == ["CommitOutcomeUnknown", "CommitOutcomeUnknown"]
        assert tester.get(first).message == "", "this one was cut off before it was committed"
        assert a.renew_session(session).alive
        assert isinstance(commit_groups(a, CommitGroup((make_change(first, message="again"),)))[0], CommitResult)

    def test_a_connection_that_was_lost_while_idle_is_replaced_before_anything_is_sent(
        self, tester: StoreTester
    ) -> None:
        h = tester.harness
        assert isinstance(h, PostgresHarness)
        made = tester.make_parcel()
        a = h.open()
        pid = connection(a).info.backend_pid
        h.admin.execute("select pg_terminate_backend(%s, 10000)", [pid])
        assert isinstance(commit_groups(a, CommitGroup((make_change(made, message="written"),)))[0], CommitResult)
        assert connection(a).info.backend_pid != pid

    def test_rows_that_somebody_keeps_locked_are_given_up_with_nothing_written(self, tester: StoreTester) -> None:
        h = tester.harness
        assert isinstance(h, PostgresHarness)
        first, second = tester.make_parcels(2)
        a = h.open()
        connection(a).execute("set lock_timeout = '100ms'")
        with h.admin.transaction():
            h.admin.execute("select from record where id = %s for update", [second.id])
            with pytest.raises(StoreUnavailable, match="locked for too long"):
                a.commit(
                    [CommitGroup((make_change(first, message="x"),)), CommitGroup((make_change(second, message="y"),))]
                )
        assert [tester.get(record).message for record in (first, second)] == ["", ""]
        assert isinstance(commit_groups(a, CommitGroup((make_change(second, message="y"),)))[0], CommitResult)

    def test_a_read_that_is_cut_off_is_unavailable_and_can_be_repeated(
        self, tester: StoreTester, barrier: CommitBarrier
    ) -> None:
        h = tester.harness
        assert isinstance(h, PostgresHarness)
        made = tester.make_parcel()
        a = h.open()
        with pytest.raises(StoreUnavailable, match="lost"):
            cut_off(h, barrier, lambda: a.get(made.kind, made.id))
        assert a.get(made.kind, made.id) == made


def blocked(h: PostgresHarness) -> bool:
    return (
        h.admin.execute(
            "select from pg_stat_activity where wait_event_type = 'Lock' and wait_event = 'relation'"
        ).fetchone()
        is not None
    )


def cut_off(h: PostgresHarness, barrier: CommitBarrier, call: Any) -> Any:
    """Terminate the call's backend while it waits for a lock."""
    h.admin.execute("begin; lock table record in access exclusive mode")
    waiting = barrier.background(call)
    wait_until(lambda: blocked(h), "the call to be blocked")
    h.admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock' and wait_event = 'relation'"
    )
    h.admin.execute("rollback")
    return waiting.result(30)
