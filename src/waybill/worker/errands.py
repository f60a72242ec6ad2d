"""The commands of the core that are calls of the store, each carried out in the owner thread and answered to the
core with an event.

What a refusal means for the session is the same for all: `Unavailable` is a store that is away for a moment,
`SessionLost` and `Unknown` end the session.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from waybill import rules
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.record import Answer, Ask, Change, Record, Role, SessionLost, Store, StoreError, Unavailable, Unknown
from waybill.rules import Machines
from waybill.worker import messages as m
from waybill.worker.core import Core
from waybill.worker.crew import Crew
from waybill.worker.outage import Outage

log = logging.getLogger("waybill.worker")


class Errands:
    machines: Machines
    roles: tuple[Role, ...]
    host: str
    who: str
    ttl: float
    clock: Callable[[], float]
    store: Store | None
    core: Core
    crew: Crew
    outage: Outage

    # --- the session

    def _open_session(self, store: Store, command: m.OpenSession) -> None:
        def call() -> m.Event:
            sent = self.clock()
            about = {
                "pid": os.getpid(),
                "roles": [f"{r.kind}.{r.state}" for r in self.roles],
                "tables": {k: [v.v, v.digest()] for k, v in self.machines.items()},
            }
            session = store.open_session(host=self.host, ttl=self.ttl, about=about)
            self.outage.back(self, sent)
            return m.Opened(session, sent)

        self._guarded(call)

    def _renew(self, store: Store, command: m.Renew) -> None:
        def call() -> m.Event:
            sent = self.clock()
            renewed = store.renew(command.session, self.crew.progress())
            self.outage.back(self, sent)
            return m.Heard(renewed, sent)

        self._guarded(call)

    def _reap(self, store: Store, command: m.Reap) -> None:
        def call() -> None:
            for name in store.reap():
                log.warning("the session %s died; what it held is free again", name)

        self._guarded(call)

    def _close(self, store: Store, command: m.Close) -> None:
        if command.why:
            log.warning("the session %s is given up: %s", command.session, command.why)
        try:
            store.close_session(command.session)
        except StoreError as error:
            log.warning("the session could not be closed and will expire: %s", error)

    def _warn(self, store: Store, command: m.Warn) -> None:
        log.warning("%s", command.words)

    # --- claims

    def _wake(self, store: Store, command: m.Wake) -> None:
        def call() -> m.Event:
            due = store.wake()
            return m.Woken(due.woken, due.next)

        self._guarded(call)

    def _read_marks(self, store: Store, command: m.ReadMarks) -> None:
        self._guarded(lambda: m.Marked(frozenset(store.marks())))

    def _claim(self, store: Store, command: m.Claim) -> None:
        session = self.core.lease.session
        if session is not None:
            self._guarded(lambda: m.Took(store.claim(command.roles, session, command.limit), command.limit))

    def _look(self, store: Store, command: m.Look) -> None:
        def call() -> m.Event:
            return m.Looked(command.tasks, store.open_parents([t.record.ref for t in command.tasks]))

        try:
            self.core.on(call(), self.clock())
        except StoreError as error:
            # Not seen is not settled: the joins are looked at again.
            self.core.bench.looks.extend(command.tasks)
            self._away(error)

    # --- commits

    def _commit(self, store: Store, command: m.Commit) -> None:
        self.core.on(m.Answered(command.batch, self._commit_now(store, command)), self.clock())

    def _commit_now(self, store: Store, command: m.Commit) -> list[Answer]:
        try:
            return store.commit([entry.group for entry in command.batch])
        except StoreError as error:
            return [error] * len(command.batch)

    def _apply(self, store: Store, command: m.Apply) -> None:
        engine = Engine(store, self.machines)
        try:
            engine.pending()
        except (StoreError, rules.Refused) as error:
            log.warning("requests left with this worker are applied by the next duty: %s", error)

    def _answer(self, machine: Machine, record: Record, ask: Ask) -> Change:
        """For the core: what a request makes of a record."""
        assert self.store is not None
        try:
            return rules.answer(machine, record, ask, store=self.store)
        except StoreError as error:
            # A guard could not read. The request stays where it is, and is applied when the store answers again.
            log.warning("%s could not be asked to %s now: %s", record.ref, ask.action, error)
            return rules.release(record, self.who)

    # --- refusals

    def _guarded(self, call: Callable[[], m.Event | None]) -> None:
        try:
            event = call()
        except (SessionLost, Unknown) as error:
            log.warning("the session is lost: %s", error)
            event = m.Lost(str(error))
        except Unavailable as error:
            self._away(error)
            return
        if event is not None:
            self.core.on(event, self.clock())

    def _away(self, error: StoreError) -> None:
        now = self.clock()
        self.outage.away(self, error, now)
        self.core.on(m.Away(), now)
