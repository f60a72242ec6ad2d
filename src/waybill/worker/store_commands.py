"""The commands of the core that are calls of the store. Each runs in the owner thread, and its answer goes back to the
core as a message.

Errors have the same effect on the session for all of them: after `StoreUnavailable` the call is made again a moment
later, `SessionLost` and `CommitOutcomeUnknown` end the session.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from msgspec.structs import replace

from waybill import rules
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.record import (
    ActionRequest,
    Change,
    CommitAnswer,
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    Record,
    RecordExists,
    RecordNotFound,
    SessionLost,
    Store,
    StoreError,
    StoreUnavailable,
    WorkQueue,
)
from waybill.rules import Machines
from waybill.shared_commits import SharedCommit, commit_shared
from waybill.worker import messages as m
from waybill.worker.core import WorkerCore
from waybill.worker.step_threads import StepThreads
from waybill.worker.worker_group import OutageLog

log = logging.getLogger("waybill.worker")


class StoreCommands:
    """The base of `Worker`: one method for each command."""

    machines: Machines
    queues: tuple[WorkQueue, ...]
    host: str
    who: str
    ttl: float
    clock: Callable[[], float]
    store: Store | None
    core: WorkerCore
    step_threads: StepThreads
    outage_log: OutageLog

    # --- the session

    def _open_session(self, store: Store, command: m.OpenSessionCommand) -> None:
        def open_session() -> m.CoreMessage:
            sent_at = self.clock()
            about = {
                "pid": os.getpid(),
                "queues": [f"{q.kind}.{q.state}" for q in self.queues],
                "machines": {k: [v.v, v.compute_digest()] for k, v in self.machines.items()},
            }
            session = store.open_session(host=self.host, ttl=self.ttl, about=about)
            self.outage_log.report_available(self, sent_at)
            return m.SessionOpened(session, sent_at)

        self._run_guarded(open_session)

    def _renew_session(self, store: Store, command: m.RenewSessionCommand) -> None:
        def renew_session() -> m.CoreMessage:
            sent_at = self.clock()
            renewal = store.renew_session(command.session, self.step_threads.collect_progress())
            self.outage_log.report_available(self, sent_at)
            return m.SessionRenewed(renewal, sent_at)

        self._run_guarded(renew_session)

    def _reap_sessions(self, store: Store, command: m.ReapSessionsCommand) -> None:
        def reap_sessions() -> None:
            for name in store.reap_sessions():
                log.warning("the session %s expired; its claims are released", name)

        self._run_guarded(reap_sessions)

    def _close_session(self, store: Store, command: m.CloseSessionCommand) -> None:
        if command.why:
            log.warning("the session %s is closed early: %s", command.session, command.why)
        try:
            store.close_session(command.session)
        except StoreError as error:
            log.warning("the session could not be closed and will expire: %s", error)

    def _warn(self, store: Store, command: m.WarnCommand) -> None:
        log.warning("%s", command.text)

    # --- waits, holds and claims

    def _release_due_waits(self, store: Store, command: m.ReleaseWaitsCommand) -> None:
        def release_due_waits() -> m.CoreMessage:
            due = store.release_due_waits()
            return m.WaitsReleased(due.released_count, due.seconds_to_next)

        self._run_guarded(release_due_waits)

    def _read_holds(self, store: Store, command: m.ReadHoldsCommand) -> None:
        self._run_guarded(lambda: m.HoldsRead(frozenset(store.list_holds())))

    def _claim(self, store: Store, command: m.ClaimCommand) -> None:
        session = self.core.lease.session
        if session is not None:
            self._run_guarded(
                lambda: m.RecordsClaimed(store.claim(command.queues, session, command.limit), command.limit)
            )

    def _check_children(self, store: Store, command: m.CheckChildrenCommand) -> None:
        def check_children() -> m.CoreMessage:
            return m.ChildrenChecked(
                command.step_runs, store.parents_with_open_children([run.record.ref for run in command.step_runs])
            )

        try:
            self.core.receive(check_children(), self.clock())
        except StoreError as error:
            # What was not read has not settled: the joins are checked again.
            self.core.step_runs.pending_child_checks.extend(command.step_runs)
            self._handle_unavailable(error)

    # --- commits

    def _commit(self, store: Store, command: m.CommitCommand) -> None:
        self.core.receive(m.CommitAnswered(command.entries, self._commit_now(store, command)), self.clock())

    def _commit_now(self, store: Store, command: m.CommitCommand) -> list[CommitAnswer | Exception]:
        """Commit the entries, with what their acts do to other records."""
        commits = [
            SharedCommit(e.group)
            if e.step_run is None or not e.acts
            else SharedCommit(e.group, e.acts, f"step of {e.step_run.record.ref}", e.step_run.record.ref)
            for e in command.entries
        ]
        return [
            self._answer_entry(store, entry, written.answer)
            for entry, written in zip(command.entries, commit_shared(store, self.machines, commits), strict=True)
        ]

    def _answer_entry(
        self, store: Store, entry: m.CommitEntry, answer: CommitAnswer | Exception
    ) -> CommitAnswer | Exception:
        if isinstance(answer, RecordExists):
            try:
                return _find_existing(store, entry.group)
            except StoreError as error:
                return error
        if isinstance(answer, CommitResult) and len(answer.records) > len(entry.group.changes):
            return replace(answer, records=answer.records[: len(entry.group.changes)])
        return answer

    def _apply_requests(self, store: Store, command: m.ApplyRequestsCommand) -> None:
        engine = Engine(store, self.machines)
        try:
            engine.apply_action_requests()
        except (StoreError, rules.ActionRefused) as error:
            log.warning("action requests left with this worker are applied by the next maintenance run: %s", error)

    def _answer_request(self, machine: Machine, record: Record, request: ActionRequest) -> Change:
        """The change that answers a request; called by the core."""
        assert self.store is not None
        try:
            return rules.answer_action_request(machine, record, request, store=self.store)
        except StoreError as error:
            # A guard could not read. The request stays, and is applied when the store answers again.
            log.warning("%s: the request to %s cannot be answered now: %s", record.ref, request.action, error)
            return rules.unclaim(record, self.who)

    # --- errors

    def _run_guarded(self, call: Callable[[], m.CoreMessage | None]) -> None:
        try:
            message = call()
        except (SessionLost, CommitOutcomeUnknown) as error:
            log.warning("the session is lost: %s", error)
            message = m.SessionFailed(str(error))
        except StoreUnavailable as error:
            self._handle_unavailable(error)
            return
        if message is not None:
            self.core.receive(message, self.clock())

    def _handle_unavailable(self, error: StoreError) -> None:
        now = self.clock()
        self.outage_log.report_unavailable(self, error, now)
        self.core.receive(m.StoreUnreachable(), now)


def _find_existing(store: Store, group: CommitGroup) -> CommitAnswer:
    """A child that a step creates under a name of its own exists already: the existing record is the child. Answered as
    a known idempotency key is: the record in its place, None in all others, and nothing of the group was written.
    """
    found: list[Record | None] = []
    for change in group.changes:
        try:
            is_named = change.before is None and not change.ref.id.endswith("*")
            found.append(store.get(*change.ref) if is_named else None)
        except RecordNotFound:
            found.append(None)
    # none: it was removed again since, and the commit is sent once more
    return CommitResult(tuple(found)) if any(found) else StoreUnavailable("A record was removed meanwhile; try again.")
