"""StoreTester: creates, claims and moves the parcels and crates of the suite, in few words.

A helper here asserts only that a commit which the test relies on was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from waybill.record import (
    Change,
    ClaimedRecord,
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    Record,
    Ref,
    Store,
    StoreError,
    WorkQueue,
)
from waybill.stores.conformance.harness import StoreHarness

# Names of locks and holds that a store might misread or refuse.
ODD_NAMES = (
    ".",
    "..",
    "...",
    "a b",
    "a%2Fb",
    "%2E%2E",
    "a~b",
    "a_b",
    "a\x01b",
    "a\x7fb",
    "\u00e4",
    "\ue000",
    "\ufff0",
    "\U0001f4da",
)
LONG_TTL = 10_000_000.0  # seconds; the ttl of a session that outlives all that a test does to the clock
# the unit of waits in tests: the test process may be paused for a while, and the clocks of some stores are not
HOUR = 3600.0
SLACK = 600.0  # seconds that a test may be paused between a write and reading what it wrote


class StoreTester:
    """A store of the harness with one connection, and what tests do with it."""

    def __init__(self, harness: StoreHarness) -> None:
        self.harness = harness
        self.store = harness.open()
        self._common_parent: Ref | None = None

    # --- creating

    def draft_parcel(
        self,
        *,
        parent: Record | Ref | None = None,
        state: str | None = None,
        documents: Mapping[str, bytes] | None = None,
        id: str | None = None,
        **fields: Any,
    ) -> Change:
        """A change that creates a parcel."""
        h = self.harness
        ref = parent.ref if isinstance(parent, Record) else parent
        if ref is None and h.needs_parent:
            ref = self._common_parent = self._common_parent or self.make_crate().ref
        record = Record(h.kind, id or f"{h.id_prefix}*", state or h.states[0], parent=ref, **fields)
        return Change(
            None, record, cause="create", who="suite", documents={**h.required_documents, **(documents or {})}
        )

    def make_parcels(self, n: int = 1, *, store: Store | None = None, **fields: Any) -> list[Record]:
        """Create `n` equal parcels, in one group."""
        return records_of(self.write(*[self.draft_parcel(**fields) for _ in range(n)], store=store))

    def make_parcel(self, **fields: Any) -> Record:
        return self.make_parcels(1, **fields)[0]

    def make_crate(self, *, store: Store | None = None, state: str | None = None, **fields: Any) -> Record:
        h = self.harness
        record = Record(h.parent_kind, f"{h.parent_id_prefix}*", state or h.parent_states[0], **fields)
        change = Change(None, record, cause="create", who="suite", documents=h.parent_required_documents)
        return records_of(self.write(change, store=store))[0]

    # --- writing

    def write(self, *changes: Change, wake: Sequence[Ref] = (), store: Store | None = None) -> CommitResult:
        """Commit one group, which must be written."""
        (answer,) = commit_groups(store or self.store, CommitGroup(tuple(changes), tuple(wake)))
        if isinstance(answer, StoreError):
            raise answer
        assert isinstance(answer, CommitResult)
        return answer

    def update(self, record: Record, *, store: Store | None = None, cause: str = "note", **more: Any) -> Record:
        """Act on an unclaimed record, or continue with a claimed one. CHANGE_FIELDS belong to the change, all other
        keywords to the record.
        """
        return records_of(self.write(make_change(record, cause=cause, **more), store=store))[0]

    def release(self, record: Record, *, store: Store | None = None, cause: str = "done", **more: Any) -> Record:
        return self.update(record, store=store, cause=cause, session=None, **more)

    def save(self, record: Record, *, store: Store | None = None, **more: Any) -> Record:
        return self.update(record, store=store, cause="", **more)

    def remove(
        self, record: Record, *, store: Store | None = None, requires_children_settled: bool = False
    ) -> CommitResult:
        return self.write(
            Change(record, None, cause="remove", who="suite", requires_children_settled=requires_children_settled),
            store=store,
        )

    # --- claiming

    def open_session(self, store: Store | None = None, *, host: str = "here", ttl: float = LONG_TTL) -> str:
        return (store or self.store).open_session(host=host, ttl=ttl, about={"suite": True})

    def claim(
        self, store: Store, session: str, limit: int = 5, *, state: str | None = None, claims_on_hold: bool = False
    ) -> list[ClaimedRecord]:
        """Try twice: an empty answer does not prove that the queue is empty."""
        queue = WorkQueue(self.harness.kind, state or self.harness.states[0], claims_on_hold)
        return store.claim([queue], session, limit) or store.claim([queue], session, limit)

    def claim_records(self, store: Store, session: str, limit: int = 5, **more: Any) -> list[Record]:
        return [each.record for each in self.claim(store, session, limit, **more)]

    def lock_name_of(self, name: str) -> str:
        return f"{self.harness.lock_family}/{name}"

    def hold_name_of(self, name: str) -> str:
        return f"{self.harness.hold_family}/{name}"

    def get(self, record: Record | Ref, store: Store | None = None) -> Record:
        return (store or self.store).get(record.kind, record.id)

    def ids_of(self, records: Sequence[Record | ClaimedRecord]) -> list[str]:
        return [each.record.id if isinstance(each, ClaimedRecord) else each.id for each in records]


CHANGE_FIELDS = frozenset({"who", "why", "documents", "delay", "requires_children_settled", "answers_request"})


def make_change(before: Record, *, cause: str = "note", **more: Any) -> Change:
    """The change from `before` to the same record with other fields; CHANGE_FIELDS go into the change itself."""
    own = {name: more.pop(name) for name in list(more) if name in CHANGE_FIELDS}
    own.setdefault("who", "suite")
    return Change(before, msgspec.structs.replace(before, **more), cause=cause, **own)


def commit_groups(store: Store, *groups: CommitGroup) -> list[Any]:
    """The answers to these groups; a lost answer is CommitOutcomeUnknown for each of them."""
    try:
        return list(store.commit(groups))
    except CommitOutcomeUnknown as error:
        return [error] * len(groups)


def list_owned(store: Store, **page: Any) -> list[tuple[str, Ref]]:
    """The locks that are owned, each with each of its owners."""
    return [(owned.name, owner) for owned in store.list_locks(**page) for owner in owned.owners]


def records_of(committed: CommitResult) -> list[Record]:
    return [record for record in committed.records if record is not None]


def without_documents(record: Record) -> Record:
    """Without documents, as pages list it."""
    return msgspec.structs.replace(record, documents=type(record.documents)())
