"""The yard where the suite's parcels and crates are made, claimed and moved: short words, so that a test reads as
what it says.

A helper here asserts only that a commit which the test counts on was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from waybill.record import Change, Claimed, Committed, Group, Record, Ref, Role, Store, StoreError, Unknown
from waybill.stores.conformance.harness import Harness

# Names of keys and marks that a store may be tempted to read as something else, or to refuse.
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
LONG = 10_000_000.0  # the ttl of a session that outlives all that a test does to the clock
# the unit in which tests wait: whoever runs them may stand still for a while, and some stores' clocks do not
HOUR = 3600.0
SLACK = 600.0  # seconds for which a test may stand still between a write and the look at what it wrote


class Yard:
    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.store = harness.open()
        self._common: Ref | None = None

    # --- making

    def draft(
        self,
        *,
        parent: Record | Ref | None = None,
        state: str | None = None,
        docs: Mapping[str, bytes] | None = None,
        id: str | None = None,
        **fields: Any,
    ) -> Change:
        """A change that creates a parcel."""
        h = self.harness
        ref = parent.ref if isinstance(parent, Record) else parent
        if ref is None and h.needs_parent:
            ref = self._common = self._common or self.crate().ref
        record = Record(h.kind, id or f"{h.prefix}*", state or h.states[0], parent=ref, **fields)
        return Change(None, record, event="create", who="suite", docs={**h.required, **(docs or {})})

    def make(self, n: int = 1, *, store: Store | None = None, **fields: Any) -> list[Record]:
        """So many equal parcels, in one group."""
        return present(self.write(*[self.draft(**fields) for _ in range(n)], store=store))

    def one(self, **fields: Any) -> Record:
        return self.make(1, **fields)[0]

    def crate(self, *, store: Store | None = None, state: str | None = None, **fields: Any) -> Record:
        h = self.harness
        record = Record(h.parent_kind, f"{h.parent_prefix}*", state or h.parent_states[0], **fields)
        change = Change(None, record, event="create", who="suite", docs=h.parent_required)
        return present(self.write(change, store=store))[0]

    # --- writing

    def write(self, *changes: Change, nudges: Sequence[Ref] = (), store: Store | None = None) -> Committed:
        """One group that must be written."""
        (answer,) = commit(store or self.store, Group(tuple(changes), tuple(nudges)))
        if isinstance(answer, StoreError):
            raise answer
        assert isinstance(answer, Committed)
        return answer

    def update(self, record: Record, *, store: Store | None = None, event: str = "note", **more: Any) -> Record:
        """An act on a free record, or go on with one that is held; `docs`, `delay`, `closes`, `answers`, `why`
        belong to the change.
        """
        return present(self.write(change(record, event=event, **more), store=store))[0]

    def release(self, record: Record, *, store: Store | None = None, event: str = "done", **more: Any) -> Record:
        return self.update(record, store=store, event=event, session=None, **more)

    def save(self, record: Record, *, store: Store | None = None, **more: Any) -> Record:
        return self.update(record, store=store, event="", **more)

    def remove(self, record: Record, *, store: Store | None = None, closes: bool = False) -> Committed:
        return self.write(Change(record, None, event="remove", who="suite", closes=closes), store=store)

    # --- working

    def session(self, store: Store | None = None, *, host: str = "here", ttl: float = LONG) -> str:
        return (store or self.store).open_session(host=host, ttl=ttl, about={"suite": True})

    def claim(
        self, store: Store, session: str, limit: int = 5, *, state: str | None = None, holds: bool = False
    ) -> list[Claimed]:
        """Look twice: an empty answer is no proof of an empty queue."""
        role = Role(self.harness.kind, state or self.harness.states[0], holds)
        return store.claim([role], session, limit) or store.claim([role], session, limit)

    def claimed(self, store: Store, session: str, limit: int = 5, **more: Any) -> list[Record]:
        return [each.record for each in self.claim(store, session, limit, **more)]

    def key(self, name: str) -> str:
        return f"{self.harness.key_family}/{name}"

    def gate(self, name: str) -> str:
        return f"{self.harness.gate_family}/{name}"

    def get(self, record: Record | Ref, store: Store | None = None) -> Record:
        return (store or self.store).get(record.kind, record.id)

    def ids(self, records: Sequence[Record | Claimed]) -> list[str]:
        return [each.record.id if isinstance(each, Claimed) else each.id for each in records]


CHANGE = frozenset({"who", "why", "docs", "delay", "closes", "answers"})


def change(before: Record, *, event: str = "note", **more: Any) -> Change:
    """From `before` to the same with some fields changed; what belongs to the change goes there."""
    own = {name: more.pop(name) for name in list(more) if name in CHANGE}
    own.setdefault("who", "suite")
    return Change(before, msgspec.structs.replace(before, **more), event=event, **own)


def commit(store: Store, *groups: Group) -> list[Any]:
    """The answers to these groups; a lost answer counts as Unknown for each of them."""
    try:
        return list(store.commit(groups))
    except Unknown as error:
        return [error] * len(groups)


def present(committed: Committed) -> list[Record]:
    return [record for record in committed.records if record is not None]


def bare(record: Record) -> Record:
    """Without documents, as pages list it."""
    return msgspec.structs.replace(record, docs=type(record.docs)())
