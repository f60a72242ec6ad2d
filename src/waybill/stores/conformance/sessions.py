"""Sessions: one renewal keeps all claims of a worker, and they end together; only reap_sessions ends the sessions of
others.
"""

from __future__ import annotations

import pytest

from waybill.record import ClaimLost, CommitGroup, CommitResult, SessionLost
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import LONG_TTL, SLACK, StoreTester, commit_groups, make_change


class SessionTests(StoreTestBase):
    def test_names_are_never_used_twice_b10(self, tester: StoreTester) -> None:
        names = []
        for _ in range(3):
            names.append(tester.open_session())
            tester.store.close_session(names[-1])
        names.append(tester.open_session(tester.harness.open()))
        assert len(set(names)) == 4

    def test_closing_a_session_frees_its_claims_at_once(self, tester: StoreTester) -> None:
        made = tester.make_parcels(3)
        session = tester.open_session()
        mine = tester.claim_records(tester.store, session, 2)
        tester.store.close_session(session)
        freed = tester.get(mine[0])
        assert (freed.session, freed.blocked_by, freed.version) == (None, None, mine[0].version + 1)
        assert tester.store.renew_session(session).alive is False
        other = tester.harness.open()
        assert tester.ids_of(tester.claim(other, tester.open_session(other))) == tester.ids_of(made)
        (answer,) = commit_groups(tester.store, CommitGroup((make_change(mine[0], session=None),)))
        assert type(answer) is ClaimLost
        tester.store.close_session(session)

    def test_closing_a_connection_twice_is_harmless(self, tester: StoreTester) -> None:
        made, other = tester.make_parcel(), tester.harness.open()
        assert other.get(*made.ref) == tester.get(made)
        other.close()
        other.close()
        assert tester.get(made) == made

    def test_a_dead_worker_frees_its_records_and_comes_too_late_a1_a3(self, tester: StoreTester) -> None:
        """The revived session: a worker whose session was ended is refused in everything, and changes nothing."""
        h = tester.harness
        made = tester.make_parcels(2)
        dead = h.open()
        dying = tester.open_session(dead, ttl=h.ttl)
        mine = tester.claim_records(dead, dying)
        assert len(mine) == 2
        h.expire_session(dead, dying)
        freed = tester.get(made[0])
        assert (freed.session, freed.version > mine[0].version) == (None, True)
        session = tester.open_session()
        theirs = tester.claim_records(tester.store, session, 1)
        save, go_on = (
            make_change(mine[0], cause="", message="late"),
            make_change(mine[0], cause="done", state=h.states[1]),
        )
        for late in (save, go_on, make_change(mine[0], session=None)):
            (answer,) = commit_groups(dead, CommitGroup((late,)))
            assert type(answer) is ClaimLost
        (answer,) = commit_groups(dead, CommitGroup((make_change(mine[1], session=None, message="late"),)))
        assert type(answer) is ClaimLost
        assert dead.renew_session(dying).alive is False
        with pytest.raises(SessionLost):
            tester.claim(dead, dying)
        assert tester.get(theirs[0]) == theirs[0]
        tester.release(theirs[0], state=h.states[1])
        fresh = tester.open_session(dead)
        assert tester.ids_of(tester.claim(dead, fresh)) == [mine[1].id]

    def test_a_renewed_session_is_not_reaped_a3(self, tester: StoreTester) -> None:
        h = tester.harness
        tester.make_parcel()
        reaper = h.open()
        session = tester.open_session(ttl=h.ttl)
        (mine,) = tester.claim_records(tester.store, session)
        for _ in range(8):
            h.tick(h.ttl / 2)
            assert tester.store.renew_session(session).alive is True
            assert reaper.reap_sessions() == []
        assert tester.get(mine) == mine

    def test_reap_sessions_ends_only_what_expired_a3(self, tester: StoreTester) -> None:
        h = tester.harness
        a, b = h.open(), h.open()
        dying, lives = tester.open_session(a, ttl=h.ttl), tester.open_session(b, ttl=LONG_TTL)
        h.expire_session(a, dying)
        assert b.renew_session(lives).alive is True
        assert [info.name for info in tester.store.list_sessions()] == [lives]
        assert tester.store.reap_sessions() == []

    def test_a_claim_never_reaps_d5(self, tester: StoreTester) -> None:
        """The connection that claims may itself have been cut off: only reap_sessions decides that a session has expired."""
        h = tester.harness
        tester.make_parcel()
        late = h.open()
        dying = tester.open_session(late, ttl=h.ttl)
        (mine,) = tester.claim_records(late, dying)
        session = tester.open_session()
        for _ in range(6):
            h.tick(h.ttl / 2)
            assert tester.claim(tester.store, session) == []
        assert tester.get(mine) == mine
        assert late.renew_session(dying).alive is True

    def test_nobody_reaps_before_a_full_ttl_of_being_connected_a3(self, tester: StoreTester) -> None:
        h = tester.harness
        tester.make_parcel()
        session = tester.open_session(ttl=h.ttl)
        (mine,) = tester.claim_records(tester.store, session)
        h.tick(h.ttl * 3)
        newcomer = h.open()
        assert newcomer.reap_sessions() == []
        assert tester.store.renew_session(session).alive is True
        assert tester.get(mine) == mine

    def test_after_an_outage_nobody_is_reaped_who_comes_back_a3(self, tester: StoreTester) -> None:
        """Every session looks expired after an outage; one that is renewed within a ttl of its end continues."""
        h = tester.harness
        workers = [h.open() for _ in range(3)]
        reaper = h.open()
        sessions = [tester.open_session(worker, ttl=h.ttl) for worker in workers]
        for _ in range(4):
            h.tick(h.ttl / 2)
            assert all(worker.renew_session(session).alive for worker, session in zip(workers, sessions, strict=True))
            assert reaper.reap_sessions() == []
        h.simulate_outage(h.ttl * 5)
        assert reaper.reap_sessions() == []
        assert workers[0].reap_sessions() == []
        h.tick(h.ttl / 2)
        assert reaper.reap_sessions() == []
        assert all(worker.renew_session(session).alive for worker, session in zip(workers, sessions, strict=True))
        h.tick(h.ttl / 2)
        assert reaper.reap_sessions() == []

    def test_sessions_are_listed_with_their_progress_b12(self, tester: StoreTester) -> None:
        made = tester.make_parcel()
        assert tester.store.list_sessions() == []
        session = tester.store.open_session(host="here", ttl=60, about={"queues": ["a", "b"], "pid": 7})
        (mine,) = tester.claim_records(tester.store, session)
        other = tester.harness.open()
        (info,) = other.list_sessions()
        assert (info.name, info.host, info.about, info.progress) == (
            session,
            "here",
            {"queues": ["a", "b"], "pid": 7},
            {},
        )
        assert info.since == pytest.approx(tester.store.now(), abs=SLACK)
        tester.store.renew_session(session, {str(made.ref): [3, 10, "files"]})
        (info,) = other.list_sessions()
        assert info.progress == {str(made.ref): [3, 10, "files"]}
        assert tester.get(mine) == mine, "progress moves no record"
        tester.store.renew_session(session)
        tester.store.renew_session(session, {})
        assert other.list_sessions()[0].progress == {}
        tester.store.close_session(session)
        assert other.list_sessions() == []

    def test_one_connection_commits_what_a_session_of_another_holds(self, tester: StoreTester) -> None:
        """A commit needs the record's own version and session, not the connection that opened it... unless the store's
        sessions are connections; then it is refused and nothing is written.
        """
        tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        other = tester.harness.open()
        (answer,) = commit_groups(
            other, CommitGroup((make_change(mine, session=None, message="from another connection"),))
        )
        if isinstance(answer, CommitResult):
            assert tester.get(mine).session is None
        else:
            assert type(answer) is ClaimLost
            assert tester.get(mine) == mine
