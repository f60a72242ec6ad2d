"""A store as somebody sees it: what may not be seen is not there.

    access = RecordAccess(identity, machines, application_of)
    store = access.view(store)                    the same store for somebody who sees all, else a VisibleStore
    store.find("parcel", state="Failed")          only what may be seen, by the store's own indexes
    record = access.get(store, ref, "operator")   RecordNotFound, or refused with a sentence that names the role

It reads and never writes: what somebody does is checked with `RecordAccess`, then done on the store itself, because rules and
guards must see all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from waybill.accounts.roles import NOTHING, Identity, Role, is_role_sufficient
from waybill.errors import InputError
from waybill.record import (
    MAX_PAGE,
    HistoryEntry,
    OwnedLock,
    Page,
    Record,
    RecordNotFound,
    Ref,
    SessionInfo,
    Store,
    Visibility,
)
from waybill.rules import Machines


class RecordAccess(NamedTuple):
    """What somebody may see and do. `application_of`: the application that declares a kind, "": none."""

    identity: Identity
    machines: Machines
    application_of: Callable[[str], str]

    def view(self, store: Store) -> Store:
        """Return the store as it is seen."""
        return store if self.identity.has_role("reader") else VisibleStore(store, self)  # type: ignore[abstract]

    def visibility_of(self, kind: str) -> Visibility | None:
        """Which records of a kind are seen; None: all."""
        if self.identity.has_role("reader"):
            return None
        machine = self.machines.get(kind)
        return self.identity.visibility_of(machine, self.application_of(kind)) if machine is not None else NOTHING

    def role_for(self, record: Record) -> Role | str:
        """The highest role for a record; empty: it is not even seen."""
        machine = self.machines.get(record.kind)
        if machine is None:
            return self.identity.role
        return self.identity.role_for(record, machine, self.application_of(record.kind))

    def may(self, record: Record, role: str) -> bool:
        return is_role_sufficient(self.role_for(record), role)

    def check(self, record: Record, role: str) -> Record:
        """Return the record, or raise: RecordNotFound where it may not be seen, a sentence where it needs another role."""
        held = self.role_for(record)
        if not held:
            raise RecordNotFound(f"There is no {record.ref}.")
        if not is_role_sufficient(held, role):
            raise InputError(
                f"This needs the role {role} for {record.ref}; {self.identity.name} is {held} for it.", code="forbidden"
            )
        return record

    def get(self, store: Store, ref: Ref, role: str) -> Record:
        """Read a record for which a role is needed."""
        return self.check(store.get(*ref), role)


class VisibleStore(Store):
    """The verbs of a store that read, for somebody who may not see all."""

    def __init__(self, store: Store, access: RecordAccess) -> None:
        self.full = store  # for rules and guards
        self.access = access
        self.url = store.url

    def now(self) -> float:
        return self.full.now()

    def get(self, kind: str, id: str) -> Record:
        return self.access.check(self.full.get(kind, id), "reader")

    def get_many(self, refs: Sequence[Ref]) -> dict[Ref, Record]:
        return {ref: record for ref, record in self.full.get_many(refs).items() if self.access.may(record, "reader")}

    def get_by_idempotency_key(self, kind: str, idempotency_key: str) -> Record:
        return self.access.check(self.full.get_by_idempotency_key(kind, idempotency_key), "reader")

    def find(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        owner: str | None = None,
        visibility: Visibility | None = None,
        after: int | None = None,
        newest: bool = False,
        limit: int = 100,
        documents: bool = False,
    ) -> Page:
        if (seen := self.access.visibility_of(kind)) == NOTHING:
            return Page([], None)
        return self.full.find(
            kind,
            state=state,
            parent=parent,
            owner=owner,
            visibility=seen,
            after=after,
            newest=newest,
            limit=limit,
            documents=documents,
        )

    def count_by_state(
        self, kind: str, *, parent: Ref | None = None, visibility: Visibility | None = None
    ) -> dict[str, int]:
        if parent is not None:  # whoever sees a record sees how many children it has
            return self.full.count_by_state(kind, parent=parent) if self.get_many([parent]) else {}
        seen = self.access.visibility_of(kind)
        return {} if seen == NOTHING else self.full.count_by_state(kind, visibility=seen)

    def history(self, kind: str, id: str) -> list[HistoryEntry]:
        self.get(kind, id)
        return self.full.history(kind, id)

    def parents_with_open_children(self, refs: Sequence[Ref]) -> set[Ref]:
        return self.full.parents_with_open_children(list(self.get_many(refs)))

    def list_holds(self) -> dict[str, str]:
        """All of them: they say why records stand still. Lists of holds need a role that holds everywhere."""
        return self.full.list_holds()

    def list_sessions(self) -> list[SessionInfo]:
        """The workers, with the progress of what may be seen."""
        sessions = self.full.list_sessions()
        names = {name for session in sessions for name in session.progress}
        seen = {str(ref) for ref in self.get_many([_parse_ref(name) for name in names])} if names else set()
        return [
            replace(session, progress={n: values for n, values in session.progress.items() if n in seen})
            for session in sessions
        ]

    def list_locks(self, *, after: str = "", limit: int = MAX_PAGE) -> list[OwnedLock]:
        """The locks, each with those of its owners that may be seen."""
        locks = self.full.list_locks(after=after, limit=limit)
        owners = {owner for lock in locks for owner in lock.owners}
        seen = self.get_many(list(owners)) if owners else {}
        return [lock._replace(owners=tuple(owner for owner in lock.owners if owner in seen)) for lock in locks]

    def remember(self, name: str, value: str) -> str:
        """What the process itself remembers, such as the secret of page tokens; nobody is shown it."""
        return self.full.remember(name, value)

    def watch(self, timeout: float) -> bool:
        return self.full.watch(timeout)

    def interrupt_watch(self) -> None:
        self.full.interrupt_watch()

    def close(self) -> None:
        self.full.close()

    def __getattribute__(self, name: str) -> Any:
        if name in WRITING_VERBS:
            raise TypeError(f"A store as somebody sees it only reads; {name} is a verb of the store itself.")
        return super().__getattribute__(name)


WRITING_VERBS = frozenset(
    (
        "commit", "open_session", "renew_session", "close_session", "claim", "claim_one", "request_action",
        "list_action_requests", "set_hold", "clear_hold", "remove_foreign_lock", "release_due_waits", "reap_sessions",
        "maintain_indexes", "find_idle_parents", "check", "repair",
    )
)  # fmt: skip


def full_store_of(store: Store) -> Store:
    """Return the store itself, for rules and guards, whoever looks."""
    return store.full if isinstance(store, VisibleStore) else store


def _parse_ref(name: str) -> Ref:
    kind, _, id = name.partition(" ")
    return Ref(kind, id)
