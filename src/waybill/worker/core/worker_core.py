"""One worker's decisions, put together: messages come in, commands go out, and the session is watched in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from waybill import rules
from waybill.machine import Machine
from waybill.record import ActionRequest, Change, Record, WorkQueue
from waybill.rules import PRIORITY, Machines
from waybill.worker import messages as m
from waybill.worker.core.claim_handler import ClaimHandler
from waybill.worker.core.claim_sizing import ClaimSizing
from waybill.worker.core.commit_answer_handler import CommitAnswerHandler
from waybill.worker.core.lease import SessionLease
from waybill.worker.core.outcome_handler import OutcomeHandler
from waybill.worker.core.polling import POLL_SECONDS, Polling
from waybill.worker.core.step_runs import StepRuns, StuckRuns
from waybill.worker.core.worker_settings import WorkerSettings


class WorkerCore:
    """`answer_request` turns an action request into a change; it may read the store for a guard."""

    def __init__(
        self,
        machines: Machines,
        queues: Iterable[WorkQueue],
        *,
        who: str,
        answer_request: Callable[[Machine, Record, ActionRequest], Change],
        bound_host: str = "",
        threads: int = 4,
        max_claims: int = 512,
        ttl: float = 15.0,
    ) -> None:
        queues = tuple(queues)
        self.settings = WorkerSettings(machines, who, bound_host, answer_request, {(q.kind, q.state) for q in queues})
        self.step_runs, self.lease, self.claim_sizing, self.polling = (
            StepRuns(),
            SessionLease(ttl),
            ClaimSizing(threads, max_claims),
            Polling(machines, queues),
        )
        outcomes = OutcomeHandler(self.settings, self.step_runs, self.lease, self.claim_sizing, self.polling)
        claims = ClaimHandler(self.settings, self.step_runs, self.lease, self.claim_sizing, self.polling, outcomes)
        self.stuck_runs = StuckRuns(self.settings, self.step_runs)
        answers = CommitAnswerHandler(
            self.settings, self.step_runs, self.lease, self.polling, claims, self.stuck_runs, drain=self._drain
        )
        self.has_exited = False
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            m.SessionOpened: self._handle_session_opened,
            m.SessionRenewed: self._handle_session_renewed,
            m.SessionFailed: self._handle_session_failed,
            m.StoreUnreachable: self._handle_store_unreachable,
            m.StopRequested: self._handle_stop,
            m.HoldsRead: self.polling.handle_holds_read,
            m.WaitsReleased: self.polling.handle_waits_released,
            m.WorkHinted: self.polling.handle_work_hinted,
            m.RecordsClaimed: claims.handle_records_claimed,
            m.ChildrenChecked: claims.handle_children_checked,
            m.SaveRequested: outcomes.handle_save_requested,
            m.StepEnded: outcomes.handle_step_ended,
            m.CommitAnswered: answers.handle_commit_answered,
        }

    def receive(self, message: m.CoreMessage, now: float) -> None:
        """Take in a message; the next `tick` returns what to do about it."""
        self._handlers[type(message)](message, now)

    def tick(self, now: float) -> list[m.CoreCommand]:
        """The next commands, in order. When there is nothing to do it is one command, to sleep or to exit."""
        if self.has_exited:
            return [m.ExitCommand()]
        self._watch_session(now)
        if now >= self.lease.unavailable_until:
            self.stuck_runs.retry_due(now)
            self.step_runs.wake_readers_if_due(now, self.lease.is_stopping)
            self.step_runs.flush()
            if (session := self.lease.session) is not None and self.lease.is_renewal_due(now):
                self.lease.schedule_renewal(now, is_busy=self.step_runs.is_busy)
                self.step_runs.commands += (m.RenewSessionCommand(session), m.ReapSessionsCommand())
            if self.lease.can_claim:
                self.step_runs.commands += self.polling.build_commands(self._compute_capacity(), now)
        if self.step_runs.begin_steps():
            self.lease.hasten_renewal(now)
        # After StartSteps: only step runs that the threads have can be recalled.
        if not (self.lease.drain_reason or self.lease.is_stopping) and self.claim_sizing.begin_recall_if_due(
            len(self.step_runs.by_number), now
        ):
            self.step_runs.commands.append(m.RecallCommand())
        return self.step_runs.take_commands() or [self._make_sleep(now)]

    def _compute_capacity(self) -> int:
        return self.claim_sizing.compute_claim_limit(len(self.step_runs.by_number))

    # --- the session

    def _watch_session(self, now: float) -> None:
        lease, step_runs = self.lease, self.step_runs
        if lease.session is None:
            if not lease.is_opening and now >= lease.unavailable_until:
                self._open_or_exit()
            return
        if lease.is_expired(now):
            self._drop_claims("the store was not reached for the whole ttl")
        elif lease.is_old(now):
            step_runs.signal_stop_to_all()
        if (
            (lease.drain_reason or lease.is_stopping)
            and lease.session is not None
            and not step_runs.by_number
            and not step_runs.pending_commits
            and not step_runs.readers_to_wake
        ):
            step_runs.commands.append(m.CloseSessionCommand(lease.session, lease.drain_reason))
            lease.session = None

    def _open_or_exit(self) -> None:
        if not self.lease.is_stopping:
            self.lease.is_opening = True
            self.step_runs.commands.append(m.OpenSessionCommand())
        elif not self.step_runs.is_busy:
            self.has_exited = True
            self.step_runs.commands.append(m.ExitCommand())

    def _handle_session_opened(self, message: m.SessionOpened, now: float) -> None:
        self.lease.start_session(message.session, message.sent_at)
        self.polling.start_polling(now)

    def _handle_session_renewed(self, message: m.SessionRenewed, now: float) -> None:
        if not message.renewal.alive:
            self._drop_claims("the session has expired")
            return
        self.lease.renewed_at = message.sent_at
        for request in message.renewal.action_requests:
            step_run = self.step_runs.by_ref.get(request.ref)
            if step_run is not None and step_run.action_request is None:
                step_run.action_request = request
                if request.action != PRIORITY:
                    self.step_runs.signal_stop(step_run)

    def _handle_session_failed(self, message: m.SessionFailed, now: float) -> None:
        self.lease.is_opening = False
        self._drop_claims(message.why)

    def _drop_claims(self, why: str) -> None:
        """All claims are lost."""
        self.step_runs.give_up(why)
        self.stuck_runs.drop()
        self.lease.end_session()

    def _drain(self, why: str) -> None:
        """Commit nothing more under this session: it is not known which records it has claimed.

        It is closed when its steps have ended, or expires.
        """
        self.lease.drain(why)
        self.step_runs.give_up(why)
        self.stuck_runs.drop()

    def _handle_store_unreachable(self, message: m.StoreUnreachable, now: float) -> None:
        self.lease.is_opening = False
        self.lease.pause_calls(now)

    def _handle_stop(self, message: m.StopRequested, now: float) -> None:
        if not self.lease.is_stopping:
            self.lease.is_stopping = True
            self.step_runs.signal_stop_to_all()
            self.stuck_runs.drop()
            for step_run in self.step_runs.recall_starts():
                self.step_runs.queue_change(step_run, rules.unclaim(step_run.record, self.settings.who))
            self.step_runs.commands.append(m.RecallCommand())

    # --- sleep

    def _make_sleep(self, now: float) -> m.SleepCommand:
        lease, polling = self.lease, self.polling
        until = now + POLL_SECONDS
        if lease.unavailable_until > now:
            return m.SleepCommand(lease.unavailable_until, watches_store=False)
        if lease.session is None:
            return m.SleepCommand(until, watches_store=False)
        until = min(until, lease.compute_next_deadline(now), self.stuck_runs.next_retry_at)
        if self.step_runs.readers_to_wake:
            until = min(until, self.step_runs.wake_readers_at)
        if not lease.can_claim:
            return m.SleepCommand(max(until, now), watches_store=False)
        capacity = self._compute_capacity()
        until = min(until, polling.release_waits_at)
        if capacity > 0:
            until = min(until, polling.claim_at)
        elif self.claim_sizing.has_backlog(len(self.step_runs.by_number)):
            until = min(until, self.claim_sizing.recall_at)
        return m.SleepCommand(max(until, now), watches_store=capacity > 0)
