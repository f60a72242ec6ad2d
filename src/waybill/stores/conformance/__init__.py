"""The conformance suite that every driver passes: what the methods of `waybill.record.Store` mean, as tests.

The author of a driver subclasses `StoreHarness` (a fresh store, its clock, ways to make it fail) and writes

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def harness(self, tmp_path):
            harness = MyHarness(tmp_path)
            yield harness
            harness.close()

What the drivers agree on beyond the docstrings of `Store`:

- **Refusals.** A group that no store could write (too large, a record in two groups, a claim made by a change) is answered
  with its refusal and never fails the other groups: `waybill.stores.group_validation.validate_groups`. A record that is
  gone is a Conflict, a ClaimLost if `before` was claimed.
- **Versions.** The version of a new record is its seq. Claims, commits and releases by reap_sessions or close_session
  increase it; wakes, blocking and unblocking do not. A re-created id never reaches a version of the removed record.
- **Blocking.** "lock NAME" and "hold NAME" are written by claim alone: a change that would write them writes None, and the
  next claim decides again. A change that blocks on "wait" or "children" a record that was woken since it was read (or
  claimed: checkpoints and continuations keep the wake_count of the claim) leaves it unblocked.
- **Locks** are asked for by an unclaimed record and owned from its claim on. Holds are checked first, and a record that is
  claimed on hold takes no locks. A continuation into an unavailable lock or a hold that is set is answered unclaimed and
  unblocked.
- **Answers.** A creation whose idempotency key is known: the record created first in its place, None in the places of all
  other changes.
- **Requirements of other records.** A group that requests an action of a record, or creates a child below a parent that
  must be open, is refused whole where that does not hold when it is written.
- **watch**: what happens after one watch has returned is seen by the next; an interrupt before the watch counts.
- **reap_sessions** counts as connected only the time in which its own connection was in contact with the store: after a
  gap of a ttl without a call the time starts again.
"""

from __future__ import annotations

import pytest

# Before these modules are imported, so that a failing assertion shows its values.
_MODULES = (
    *("action_requests", "claims", "commits", "documents", "fixtures", "holds", "lock_races", "locks"),
    *("parents", "queries", "races", "random_walks", "sessions", "shared_commits", "shared_locks", "tester", "waits"),
)
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _MODULES))

from waybill.stores.conformance.action_requests import ActionRequestTests  # noqa: E402
from waybill.stores.conformance.claims import ClaimTests  # noqa: E402
from waybill.stores.conformance.commits import CommitTests  # noqa: E402
from waybill.stores.conformance.documents import DocumentTests  # noqa: E402
from waybill.stores.conformance.fixtures import StoreTestBase  # noqa: E402
from waybill.stores.conformance.harness import StoreHarness, race_in_threads  # noqa: E402
from waybill.stores.conformance.holds import HoldTests  # noqa: E402
from waybill.stores.conformance.lock_races import LockRaceTests  # noqa: E402
from waybill.stores.conformance.locks import ForeignLockTests, LockTests  # noqa: E402
from waybill.stores.conformance.parents import ParentTests  # noqa: E402
from waybill.stores.conformance.queries import QueryTests  # noqa: E402
from waybill.stores.conformance.races import RaceTests  # noqa: E402
from waybill.stores.conformance.random_walks import RandomWalkTests  # noqa: E402
from waybill.stores.conformance.sessions import SessionTests  # noqa: E402
from waybill.stores.conformance.shared_commits import SharedCommitTests  # noqa: E402
from waybill.stores.conformance.shared_locks import CountedLockTests, SharedLockRaceTests, SharedLockTests  # noqa: E402
from waybill.stores.conformance.tester import StoreTester  # noqa: E402
from waybill.stores.conformance.waits import CheckTests, WaitTests  # noqa: E402

__all__ = ["ForeignLockSuite", "StoreHarness", "StoreSuite", "StoreTester", "race_in_threads"]


class StoreSuite(
    CommitTests,
    ParentTests,
    DocumentTests,
    QueryTests,
    ClaimTests,
    HoldTests,
    LockTests,
    SharedLockTests,
    CountedLockTests,
    WaitTests,
    SessionTests,
    ActionRequestTests,
    SharedCommitTests,
    CheckTests,
    RaceTests,
    LockRaceTests,
    SharedLockRaceTests,
    RandomWalkTests,
):
    """The tests that every store passes."""


class ForeignLockSuite(ForeignLockTests):
    """Besides StoreSuite, for a store whose records programs other than Waybill lock too: the harness implements
    take_foreign_lock and release_foreign_lock.
    """


assert issubclass(StoreSuite, StoreTestBase)
