"""The ZooKeeper driver passes the suite on a real server, once on the generic layout and once on Merritt's."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.stores.zookeeper.harness import MerrittHarness, ZookeeperHarness

from waybill.record import Change, CommitGroup, Conflict, SessionLost
from waybill.stores.conformance import ForeignLockSuite, StoreSuite, StoreTester
from waybill.stores.conformance.shared_locks import CountedLockTests, SharedLockRaceTests, SharedLockTests

# The tests of locks that this store refuses: it has exclusive ones only.
_EXCLUSIVE_ONLY = {
    name: None
    for tests in (CountedLockTests, SharedLockRaceTests, SharedLockTests)
    for name in vars(tests)
    if name.startswith("test_")
}
ExclusiveLocksOnly: Any = type("ExclusiveLocksOnly", (), _EXCLUSIVE_ONLY)


class OwnSessions:
    """A session is a connection here: another connection may commit for it, and cannot claim for it."""

    def test_no_connection_claims_for_a_session_of_another(self, tester: StoreTester) -> None:
        made = tester.make_parcel()
        others = tester.open_session(tester.harness.open())
        with pytest.raises(SessionLost):
            tester.claim(tester.store, others)
        assert tester.get(made).session is None

    def test_a_lock_that_is_not_exclusive_is_refused(self, tester: StoreTester) -> None:
        for lock in ("shared ark/a", "at most 2 of ark/a"):
            (answer,) = tester.store.commit([CommitGroup((tester.draft_parcel(locks=(lock,)),))])
            assert "on ZooKeeper all locks are exclusive" in str(answer)


class TestGeneric(ExclusiveLocksOnly, OwnSessions, StoreSuite, ForeignLockSuite):
    @pytest.fixture
    def harness(self, zookeeper_url: str) -> Iterator[ZookeeperHarness]:
        harness = ZookeeperHarness(zookeeper_url)
        yield harness
        harness.close()


class TestMerritt(ExclusiveLocksOnly, OwnSessions, StoreSuite, ForeignLockSuite):
    @pytest.fixture
    def harness(self, zookeeper_url: str) -> Iterator[MerrittHarness]:
        harness = MerrittHarness(zookeeper_url)
        yield harness
        harness.close()

    def test_idle_leaves_out_parents_that_are_gone(self, tester: StoreTester) -> None:
        """In Merritt's tree no job is without its batch, so a batch with jobs cannot go."""
        crate = tester.make_crate()
        (child,) = tester.make_parcels(1, parent=crate)
        (answer,) = tester.store.commit([CommitGroup((Change(crate, None, cause="remove"),))])
        assert type(answer) is Conflict
        assert "jobs" in str(answer)
        tester.remove(child)
        tester.remove(crate)
