"""What the store's answer to a commit means for the step run.

CommitResult                        the record goes on under its claim, or the step run is forgotten; a save is
                                    answered to its step
StoreUnavailable                    the same commit is sent again, while the session lasts
CommitOutcomeUnknown, SessionLost   nothing more is committed under this session
acts that are refused               a transient error of the step, or the refusal of the request that brought them along
any other refusal                   the claim is lost, or the change cannot be stored and another is committed instead
"""

from __future__ import annotations

from collections.abc import Callable

from waybill import rules
from waybill.record import (
    ClaimLost,
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    Conflict,
    LockUnavailable,
    RecordBusy,
    RecordNotFound,
    Ref,
    SessionLost,
    StoreError,
    StoreUnavailable,
)
from waybill.rules import ActionRefused
from waybill.step import Fail, StepStopped
from waybill.worker import messages as m
from waybill.worker.core.claim_handler import ClaimHandler
from waybill.worker.core.lease import SessionLease
from waybill.worker.core.polling import Polling
from waybill.worker.core.step_runs import StepRuns, StuckRuns
from waybill.worker.core.worker_settings import WorkerSettings

# how often a commit is sent again whose acts found records that others keep changing; each time they are decided
# MAX_DECISIONS times (waybill.shared_commits)
MAX_BUSY_ROUNDS = 30


class CommitAnswerHandler:
    """`drain` ends the session: nothing more is committed under it."""

    def __init__(
        self,
        settings: WorkerSettings,
        step_runs: StepRuns,
        lease: SessionLease,
        polling: Polling,
        claims: ClaimHandler,
        stuck_runs: StuckRuns,
        *,
        drain: Callable[[str], None],
    ) -> None:
        self.settings, self.step_runs, self.lease, self.polling, self.claims, self.drain = (
            settings,
            step_runs,
            lease,
            polling,
            claims,
            drain,
        )
        self.stuck_runs = stuck_runs

    def handle_commit_answered(self, message: m.CommitAnswered, now: float) -> None:
        idle: dict[Ref, None] = {}
        for entry, answer in zip(message.entries, message.answers, strict=True):
            if isinstance(answer, CommitResult):
                if answer.idle_parents:
                    idle.update(dict.fromkeys(answer.idle_parents))
                if entry.readers and answer.records[0] is not None:
                    self.step_runs.readers_to_wake.update(dict.fromkeys(entry.readers))
                if (
                    entry.step_run is not None
                    and entry.group.changes[0].after is not None
                    and answer.records[0] is None
                ):
                    self._resend_without_existing(entry, entry.step_run, answer)
                elif entry.step_run is not None:
                    self._handle_committed(entry, entry.step_run, answer, now)
            elif isinstance(answer, StoreUnavailable) or (
                entry.step_run is None and isinstance(answer, CommitOutcomeUnknown)
            ):
                self._retry_commit(entry, answer, now)
            elif isinstance(answer, (CommitOutcomeUnknown, SessionLost)):
                if entry.is_save and entry.step_run is not None:
                    self.step_runs.reply(entry.step_run, StepStopped(str(answer)))
                elif entry.step_run is not None:
                    self.step_runs.forget(entry.step_run)
                self.drain(str(answer))
            elif entry.step_run is not None and _is_about_acts(entry, answer):
                self._handle_acts_refused(entry, entry.step_run, answer)
            elif entry.step_run is not None and isinstance(answer, StoreError):
                self._handle_refused(entry, entry.step_run, answer, now)
        if idle:
            self.step_runs.pending_commits.append(m.CommitEntry(CommitGroup((), tuple(idle))))

    # --- committed

    def _resend_without_existing(self, entry: m.CommitEntry, step_run: m.StepRun, answer: CommitResult) -> None:
        """A child whose idempotency key already exists is the existing record. Nothing of the group was written: the
        rest is sent again without it.
        """
        places = (
            place
            for place in range(len(answer.records) + len(entry.existing_children))
            if place not in entry.existing_children
        )
        # The first change of the group is the maker's own; place 0 is the first child.
        found = {place: child for place, child in zip(places, answer.records[1:], strict=False) if child is not None}
        rest = tuple(
            change for change, record in zip(entry.group.changes, answer.records, strict=True) if record is None
        )
        self.step_runs.pending_commits.append(
            m.CommitEntry(
                CommitGroup(rest, entry.group.wake),
                step_run,
                entry.is_save,
                entry.acts,
                entry.rounds,
                entry.readers,
                {**entry.existing_children, **found},
            )
        )

    def _handle_committed(self, entry: m.CommitEntry, step_run: m.StepRun, answer: CommitResult, now: float) -> None:
        if answer.action_requests:
            self.step_runs.commands.append(m.ApplyRequestsCommand(answer.action_requests))
        record = answer.records[0]
        if entry.is_save:
            if record is not None:
                step_run.record = record
            records = [r for r in answer.records if r is not None]
            for place in sorted(entry.existing_children):
                records.insert(place + 1, entry.existing_children[place])
            self.step_runs.reply(step_run, records)
            return
        change = entry.group.changes[0]
        if record is not None and record.blocked_by == "wait":
            self.polling.schedule_release(now + change.delay)
        if record is not None and change.cause:
            state = self.settings.machine_of(record).find_state(record.state)
            if state is not None and state.clears_files:
                self.step_runs.commands.append(m.ClearFolderCommand(record))
        if record is None or record.session is None or record.session != self.lease.session or step_run.is_claim_lost:
            self.step_runs.forget(step_run)
            self.polling.note_free_capacity(now)
            return
        step_run.record, step_run.claim_version, step_run.states_passed, step_run.unavailable_lock = (
            record,
            record.version,
            step_run.states_passed + 1,
            None,
        )
        self.claims.run_state(step_run)

    # --- refused

    def _retry_commit(self, entry: m.CommitEntry, answer: StoreError, now: float) -> None:
        """Send it again. Nothing was written, or it only wakes parents, which is safe to repeat."""
        if entry.step_run is None or not entry.step_run.is_claim_lost:
            self.step_runs.pending_commits.append(entry)
        elif entry.is_save:
            self.step_runs.reply(entry.step_run, StepStopped(str(answer)))
        self.lease.pause_calls(now)

    def _handle_acts_refused(self, entry: m.CommitEntry, step_run: m.StepRun, answer: Exception) -> None:
        """An act is not possible, so nothing of the group was written. Records that others keep changing are tried again a
        while; otherwise it is a transient error of the step, which decides again on what it then finds, or, where the
        program is wrong, a permanent one.
        """
        change, who = entry.group.changes[0], self.settings.who
        if step_run.is_claim_lost:
            self._drop_refused(entry, step_run, answer)
        elif isinstance(answer, RecordBusy) and answer.is_contended and entry.rounds < MAX_BUSY_ROUNDS:
            entry.rounds += 1
            self.step_runs.pending_commits.append(entry)
        elif entry.is_save:
            self.step_runs.reply(step_run, answer)
        elif change.answers_request and (request := step_run.action_request) and change.cause == request.action:
            refusal = rules.refuse_action_request(step_run.record, request, rules.describe_error(answer))
            self.step_runs.queue_change(step_run, refusal)
        else:
            may_pass = isinstance(answer, (ActionRefused, RecordBusy, RecordNotFound))
            error = answer if may_pass else Fail(rules.describe_error(answer))
            machine = self.settings.machine_of(step_run.record)
            self.step_runs.queue_change(step_run, rules.apply_outcome(machine, step_run.record, error, who=who))

    def _drop_refused(self, entry: m.CommitEntry, step_run: m.StepRun, answer: Exception) -> None:
        step_run.is_claim_lost = True
        self.step_runs.signal_stop(step_run)
        if entry.is_save:
            self.step_runs.reply(step_run, StepStopped(str(answer)))
        else:
            self.step_runs.forget(step_run)

    def _handle_refused(self, entry: m.CommitEntry, step_run: m.StepRun, answer: StoreError, now: float) -> None:
        is_join = entry.group.changes[0].requires_children_settled
        if (
            step_run.is_claim_lost
            or isinstance(answer, (ClaimLost, RecordNotFound))
            or (isinstance(answer, Conflict) and not is_join and not entry.is_save)
        ):
            self._drop_refused(entry, step_run, answer)
        elif entry.is_save:
            if isinstance(answer, LockUnavailable):
                after = entry.group.changes[0].after
                step_run.unavailable_lock = (answer.lock, after.locks if after is not None else ())
                self.step_runs.reply(step_run, StepStopped(str(answer)))
            else:
                self.step_runs.reply(step_run, answer)
        elif isinstance(answer, Conflict):
            # a child was created after the children were checked: wait for it too
            self.step_runs.queue_change(step_run, rules.wait_for_children(step_run.record, self.settings.who))
        else:
            self._handle_unstorable(entry, step_run, answer, now)

    def _handle_unstorable(self, entry: m.CommitEntry, step_run: m.StepRun, answer: StoreError, now: float) -> None:
        """The change cannot be stored: the action request is refused or the record fails, with the store's reason. If
        that cannot be stored either, the claim is released, now or later.
        """
        change, who = entry.group.changes[0], self.settings.who
        is_wait = change.after is not None and change.after.blocked_by == "wait" and not change.after.error_count
        if change.answers_request and step_run.action_request is not None and not change.cause.endswith(" refused"):
            self.step_runs.queue_change(
                step_run, rules.refuse_action_request(step_run.record, step_run.action_request, str(answer))
            )
        elif len(entry.group.changes) > 1 or change.documents or is_wait or change.cause not in ("", "fail", "retry"):
            self.step_runs.queue_change(
                step_run,
                rules.apply_outcome(
                    self.settings.machine_of(step_run.record), step_run.record, Fail(str(answer)), who=who
                ),
            )
        elif change.cause:
            self.step_runs.queue_change(step_run, rules.unclaim(step_run.record, who))
        elif self.lease.is_stopping:
            self.step_runs.forget(step_run)  # the claim ends with the session
        elif not self.stuck_runs.schedule_retry(step_run, str(answer), now):
            self.drain(f"{step_run.record.ref} can be neither stored nor released: {answer}")


def _is_about_acts(entry: m.CommitEntry, answer: Exception) -> bool:
    """Whether the acts of the entry are refused, and not its own changes."""
    return bool(entry.acts) and (not isinstance(answer, StoreError) or isinstance(answer, (RecordBusy, RecordNotFound)))
