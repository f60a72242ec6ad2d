"""Two connections that want the same locks: whichever comes first, a lock has one owner and nobody waits for a free lock."""

from __future__ import annotations

from waybill.record import CommitGroup, CommitResult, Conflict, LockUnavailable, Record, Store
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import StoreTester, commit_groups, make_change

MANY_LOCKS = 120  # of one record


class LockRaceTests(StoreTestBase):
    def test_a_lock_taken_while_others_are_looked_at_a9(self, tester: StoreTester) -> None:
        """One record asks for a lock, the other for the same and many more: while the many are looked up, the first is taken.

        Only one record gets it.
        """
        h = tester.harness
        a, b = h.open(), h.open()
        mine, theirs = tester.open_session(a), tester.open_session(b)
        locks = tuple(tester.lock_name_of(f"m{n}") for n in range(MANY_LOCKS))

        def try_claim(store: Store, session: str, record: Record) -> list[Record]:
            try:
                return [store.claim_one(record.kind, record.id, session).record]
            except Conflict:
                return []

        for _ in range(h.rounds):
            few, many = tester.make_parcel(locks=locks[:1]), tester.make_parcel(locks=locks)
            got = [
                each
                for answer in h.race(lambda: try_claim(a, mine, few), lambda: try_claim(b, theirs, many))  # noqa: B023
                for each in answer
            ]
            assert len(got) == 1
            assert {owned.owners for owned in tester.store.list_locks() if owned.name == locks[0]} == {(got[0].ref,)}
            tester.remove(got[0])
            (other,) = tester.claim_records(a, mine)
            tester.remove(other)

    def test_two_equal_locks_in_a_page_a9(self, tester: StoreTester) -> None:
        """Two workers, four records, one lock: one worker claims one record."""
        h = tester.harness
        a, b = h.open(), h.open()
        mine, theirs = tester.open_session(a), tester.open_session(b)
        for _ in range(h.rounds):
            made = tester.make_parcels(4, locks=(tester.lock_name_of("a"),))
            taken = [
                record
                for answer in h.race(lambda: tester.claim_records(a, mine), lambda: tester.claim_records(b, theirs))
                for record in answer
            ]
            assert len(taken) == 1
            for _ in range(4):
                (record,) = taken
                tester.remove(record)
                taken = tester.claim_records(a, mine)
            assert taken == []
            assert {tester.store.count_by_state(h.kind).get(h.states[0], 0)} == {0}, made

    def test_two_saves_race_for_a_lock_a9(self, tester: StoreTester) -> None:
        h = tester.harness
        a, b = h.open(), h.open()
        mine, theirs = tester.open_session(a), tester.open_session(b)
        for i in range(h.rounds):
            tester.make_parcels(2)
            (first,), (second,) = tester.claim_records(a, mine, 1), tester.claim_records(b, theirs, 1)
            locks = (tester.lock_name_of(f"race-{i}"),)
            answers = h.race(
                lambda: commit_groups(a, CommitGroup((make_change(first, cause="", locks=locks),)))[0],  # noqa: B023
                lambda: commit_groups(b, CommitGroup((make_change(second, cause="", locks=locks),)))[0],  # noqa: B023
            )
            assert sorted(type(answer).__name__ for answer in answers) == ["CommitResult", "LockUnavailable"]
            assert all(isinstance(answer, (CommitResult, LockUnavailable)) for answer in answers)

    def test_block_against_release_a10(self, tester: StoreTester) -> None:
        """A record is about to be blocked by a lock that is being dropped: it must not stay blocked by a free lock."""
        h = tester.harness
        a, b = h.open(), h.open()
        mine, theirs = tester.open_session(a), tester.open_session(b)
        for _ in range(h.rounds):
            lock = tester.lock_name_of("a")
            tester.make_parcel(locks=(lock,))
            (owner,) = tester.claim_records(a, mine)
            waiter = tester.make_parcel(locks=(lock,))
            (dropped,), claimed = h.race(
                lambda: commit_groups(
                    a,
                    CommitGroup((make_change(owner, session=None, state=h.rest_state, locks=()),)),  # noqa: B023
                ),
                lambda: tester.claim_records(b, theirs),
            )
            assert isinstance(dropped, CommitResult)
            claimed = claimed or tester.claim_records(b, theirs)
            assert tester.ids_of(claimed) == [waiter.id]
            tester.remove(claimed[0], store=b)
