"""The suite that every store's driver passes: what the verbs of `waybill.record.Store` mean, as tests.

A driver's author subclasses `Harness` (a fresh store, its clock, ways to hurt it) and writes

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def harness(self, tmp_path):
            harness = MyHarness(tmp_path)
            yield harness
            harness.close()

What the drivers agree on beyond the docstrings of `Store`:

- **Refusals.** A group that no store could write (too large, a record in two groups, a claim made by a change) is answered with its refusal
  and never fails its neighbours: `waybill.stores.groups.vet`. A record that is gone is a Conflict, a ClaimLost if `before` was held.
- **Versions.** A new record's version is its seq. Claims, commits and being freed by reap or close_session move it on; nudges, parking and
  unparking do not. A re-created id never comes to a version of its former life.
- **Parking.** "key NAME" and "mark NAME" are written by claim alone: a change that would write them writes None, and the next claim decides
  again. A change that parks on "wait" or "children" a record that was nudged since it was read (or claimed: saves and going on answer the
  nudges of the claim) leaves it free at once.
- **Keys** are asked for by a free record and held from its claim on; the marks are looked at first, and a record that is handed out with a
  mark takes no keys. Going on into a taken key or a gate that is marked is answered free and unparked.
- **Answers.** A creation whose request is known: the record made first in its place, None in the places of all other changes.
- **watch**: what happens after one watch has returned is seen by the next; an interrupt before the watch counts.
- **reap** counts as connected only the time in which its own connection was in touch: a gap of a ttl without a call begins anew.
"""

from __future__ import annotations

import pytest

# Before the import of the modules that hold them, so that a failing assertion shows its values.
_PARTS = (
    *("commits", "parents", "documents", "reading", "claims", "marks", "keys", "key_races"),
    *("waits", "sessions", "asks", "checks", "races", "foreign_locks", "walks", "yard"),
)
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from waybill.stores.conformance.asks import Asks  # noqa: E402
from waybill.stores.conformance.checks import Checks  # noqa: E402
from waybill.stores.conformance.claims import Claims  # noqa: E402
from waybill.stores.conformance.commits import Commits  # noqa: E402
from waybill.stores.conformance.documents import Documents  # noqa: E402
from waybill.stores.conformance.foreign_locks import ForeignLocks  # noqa: E402
from waybill.stores.conformance.harness import Harness, race_in_threads  # noqa: E402
from waybill.stores.conformance.key_races import KeyRaces  # noqa: E402
from waybill.stores.conformance.keys import Keys  # noqa: E402
from waybill.stores.conformance.marks import Marks  # noqa: E402
from waybill.stores.conformance.parents import Parents  # noqa: E402
from waybill.stores.conformance.races import Races  # noqa: E402
from waybill.stores.conformance.reading import Reading  # noqa: E402
from waybill.stores.conformance.sessions import Sessions  # noqa: E402
from waybill.stores.conformance.suite import Suite  # noqa: E402
from waybill.stores.conformance.waits import Waits  # noqa: E402
from waybill.stores.conformance.walks import Walks  # noqa: E402
from waybill.stores.conformance.yard import Yard  # noqa: E402

__all__ = ["ForeignLockSuite", "Harness", "StoreSuite", "Yard", "race_in_threads"]


class StoreSuite(
    Commits, Parents, Documents, Reading, Claims, Marks, Keys, Waits, Sessions, Asks, Checks, Races, KeyRaces, Walks
):
    """All of it, for every store."""


class ForeignLockSuite(ForeignLocks):
    """Besides StoreSuite, for a store whose records others than Waybill hold too: Harness.foreign_lock and
    foreign_unlock are given.
    """


assert issubclass(StoreSuite, Suite)
