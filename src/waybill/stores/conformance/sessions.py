"""Sessions: one heartbeat keeps all claims of a worker, and they end together; who is dead is decided in one place."""

from __future__ import annotations

import pytest

from waybill.record import ClaimLost, Committed, Group, SessionLost
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import LONG, SLACK, Yard, change, commit


class Sessions(Suite):
    def test_names_are_never_used_twice_b10(self, yard: Yard) -> None:
        names = []
        for _ in range(3):
            names.append(yard.session())
            yard.store.close_session(names[-1])
        names.append(yard.session(yard.harness.open()))
        assert len(set(names)) == 4

    def test_closing_a_session_frees_its_claims_at_once(self, yard: Yard) -> None:
        made = yard.make(3)
        session = yard.session()
        mine = yard.claimed(yard.store, session, 2)
        yard.store.close_session(session)
        freed = yard.get(mine[0])
        assert (freed.session, freed.parked, freed.version) == (None, None, mine[0].version + 1)
        assert yard.store.renew(session).alive is False
        other = yard.harness.open()
        assert yard.ids(yard.claim(other, yard.session(other))) == yard.ids(made)
        (answer,) = commit(yard.store, Group((change(mine[0], session=None),)))
        assert type(answer) is ClaimLost
        yard.store.close_session(session)

    def test_closing_a_connection_twice_is_harmless(self, yard: Yard) -> None:
        made, other = yard.one(), yard.harness.open()
        assert other.get(*made.ref) == yard.get(made)
        other.close()
        other.close()
        assert yard.get(made) == made

    def test_a_dead_worker_frees_its_records_and_comes_too_late_a1_a3(self, yard: Yard) -> None:
        """The revived session: a worker that was thought dead is refused in everything, and disturbs nobody."""
        h = yard.harness
        made = yard.make(2)
        dead = h.open()
        doomed = yard.session(dead, ttl=h.ttl)
        mine = yard.claimed(dead, doomed)
        assert len(mine) == 2
        h.expire(dead, doomed)
        freed = yard.get(made[0])
        assert (freed.session, freed.version > mine[0].version) == (None, True)
        session = yard.session()
        theirs = yard.claimed(yard.store, session, 1)
        save, go_on = change(mine[0], event="", message="late"), change(mine[0], event="done", state=h.states[1])
        for late in (save, go_on, change(mine[0], session=None)):
            (answer,) = commit(dead, Group((late,)))
            assert type(answer) is ClaimLost
        (answer,) = commit(dead, Group((change(mine[1], session=None, message="late"),)))
        assert type(answer) is ClaimLost
        assert dead.renew(doomed).alive is False
        with pytest.raises(SessionLost):
            yard.claim(dead, doomed)
        assert yard.get(theirs[0]) == theirs[0]
        yard.release(theirs[0], state=h.states[1])
        fresh = yard.session(dead)
        assert yard.ids(yard.claim(dead, fresh)) == [mine[1].id]

    def test_a_renewed_session_is_not_reaped_a3(self, yard: Yard) -> None:
        h = yard.harness
        yard.one()
        reaper = h.open()
        session = yard.session(ttl=h.ttl)
        (mine,) = yard.claimed(yard.store, session)
        for _ in range(8):
            h.tick(h.ttl / 2)
            assert yard.store.renew(session).alive is True
            assert reaper.reap() == []
        assert yard.get(mine) == mine

    def test_reap_tells_the_names_and_ends_only_what_expired_a3(self, yard: Yard) -> None:
        h = yard.harness
        a, b = h.open(), h.open()
        doomed, lives = yard.session(a, ttl=h.ttl), yard.session(b, ttl=LONG)
        h.expire(a, doomed)
        assert b.renew(lives).alive is True
        assert [info.name for info in yard.store.sessions()] == [lives]
        assert yard.store.reap() == []

    def test_a_claim_never_reaps_d5(self, yard: Yard) -> None:
        """Whoever claims was perhaps away himself: that a session expired is decided by reap alone."""
        h = yard.harness
        yard.one()
        late = h.open()
        doomed = yard.session(late, ttl=h.ttl)
        (mine,) = yard.claimed(late, doomed)
        session = yard.session()
        for _ in range(6):
            h.tick(h.ttl / 2)
            assert yard.claim(yard.store, session) == []
        assert yard.get(mine) == mine
        assert late.renew(doomed).alive is True

    def test_nobody_reaps_before_a_full_ttl_of_being_connected_a3(self, yard: Yard) -> None:
        h = yard.harness
        yard.one()
        session = yard.session(ttl=h.ttl)
        (mine,) = yard.claimed(yard.store, session)
        h.tick(h.ttl * 3)
        newcomer = h.open()
        assert newcomer.reap() == []
        assert yard.store.renew(session).alive is True
        assert yard.get(mine) == mine

    def test_after_an_outage_nobody_is_reaped_who_comes_back_a3(self, yard: Yard) -> None:
        """Every session looks expired after an outage; whoever renews within a ttl of its end lives on."""
        h = yard.harness
        workers = [h.open() for _ in range(3)]
        reaper = h.open()
        sessions = [yard.session(worker, ttl=h.ttl) for worker in workers]
        for _ in range(4):
            h.tick(h.ttl / 2)
            assert all(worker.renew(session).alive for worker, session in zip(workers, sessions, strict=True))
            assert reaper.reap() == []
        h.outage(h.ttl * 5)
        assert reaper.reap() == []
        assert workers[0].reap() == []
        h.tick(h.ttl / 2)
        assert reaper.reap() == []
        assert all(worker.renew(session).alive for worker, session in zip(workers, sessions, strict=True))
        h.tick(h.ttl / 2)
        assert reaper.reap() == []

    def test_sessions_tell_who_works_and_how_far_b12(self, yard: Yard) -> None:
        made = yard.one()
        assert yard.store.sessions() == []
        session = yard.store.open_session(host="here", ttl=60, about={"roles": ["a", "b"], "pid": 7})
        (mine,) = yard.claimed(yard.store, session)
        other = yard.harness.open()
        (info,) = other.sessions()
        assert (info.name, info.host, info.about, info.progress) == (
            session,
            "here",
            {"roles": ["a", "b"], "pid": 7},
            {},
        )
        assert info.since == pytest.approx(yard.store.now(), abs=SLACK)
        yard.store.renew(session, {str(made.ref): [3, 10, "files"]})
        (info,) = other.sessions()
        assert info.progress == {str(made.ref): [3, 10, "files"]}
        assert yard.get(mine) == mine, "progress moves no record"
        yard.store.renew(session)
        yard.store.renew(session, {})
        assert other.sessions()[0].progress == {}
        yard.store.close_session(session)
        assert other.sessions() == []

    def test_one_connection_commits_what_a_session_of_another_holds(self, yard: Yard) -> None:
        """A commit needs the record's own version and session, not the connection that opened it... unless the store's
        sessions are connections; then it is refused and nothing is written.
        """
        yard.one()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        other = yard.harness.open()
        (answer,) = commit(other, Group((change(mine, session=None, message="from another connection"),)))
        if isinstance(answer, Committed):
            assert yard.get(mine).session is None
        else:
            assert type(answer) is ClaimLost
            assert yard.get(mine) == mine
