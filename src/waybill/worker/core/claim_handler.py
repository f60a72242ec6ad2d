"""What follows a claim: a step, a check of the children, or a commit without a step.

RecordsClaimed -> begin -> the worker is stopping, an action was requested, a hold is set or the declared fields are out
                           of date: a commit
                        -> otherwise run_state: StartSteps, or CheckChildren -> ChildrenChecked -> StartSteps or a commit
"""

from __future__ import annotations

from waybill import rules
from waybill.record import ClaimedRecord
from waybill.rules import PRIORITY
from waybill.step import Done, Fail
from waybill.worker import messages as m
from waybill.worker.core.claim_sizing import ClaimSizing
from waybill.worker.core.lease import SessionLease
from waybill.worker.core.outcome_handler import OutcomeHandler
from waybill.worker.core.polling import Polling
from waybill.worker.core.step_runs import StepRuns
from waybill.worker.core.worker_settings import WorkerSettings


class ClaimHandler:
    def __init__(
        self,
        settings: WorkerSettings,
        step_runs: StepRuns,
        lease: SessionLease,
        claim_sizing: ClaimSizing,
        polling: Polling,
        outcomes: OutcomeHandler,
    ) -> None:
        self.settings, self.step_runs, self.lease, self.claim_sizing, self.polling, self.outcomes = (
            settings,
            step_runs,
            lease,
            claim_sizing,
            polling,
            outcomes,
        )

    def handle_records_claimed(self, message: m.RecordsClaimed, now: float) -> None:
        if message.claimed:
            self.claim_sizing.note_claim(len(self.step_runs.by_number), now)
        self.polling.note_claim(bool(message.claimed), now)
        for claimed in message.claimed:
            self._begin(claimed, now)

    def _begin(self, claimed: ClaimedRecord, now: float) -> None:
        record, who = claimed.record, self.settings.who
        if self.lease.session is None or record.session != self.lease.session:
            return  # claimed under a session that was dropped meanwhile; the claim ends with that session
        step_run = self.step_runs.add_run(record, now)
        machine = self.settings.machine_of(record)
        if self.lease.is_stopping or self.lease.drain_reason:
            self.step_runs.queue_change(step_run, rules.unclaim(record, who))
            return
        if claimed.action_request is not None:
            step_run.action_request = claimed.action_request
            if claimed.action_request.action != PRIORITY:
                answer = self.settings.answer_request(machine, record, claimed.action_request)
                acts = rules.further_acts_of_request(machine, record, claimed.action_request, answer)
                self.step_runs.queue_change(step_run, answer, acts=acts)
                return
        if claimed.hold is not None:
            try:
                self.step_runs.queue_change(step_run, rules.enter_hold(machine, record, claimed.hold, who))
            except Exception as error:  # noqa: BLE001 - the machine's own functions may raise anything
                self.step_runs.queue_change(
                    step_run, rules.apply_outcome(machine, record, Fail(rules.describe_error(error)), who=who)
                )
            return
        try:
            reloaded = (
                rules.reload_declared(machine, record, who)
                if claimed.needs_recompute and machine.find_state(record.state) is not None
                else None
            )
        except Exception as error:  # noqa: BLE001 - the machine cannot read what others wrote
            reloaded = rules.apply_outcome(machine, record, Fail(rules.describe_error(error)), who=who)
        if reloaded is not None:
            self.step_runs.queue_change(step_run, reloaded)
            return
        self.run_state(step_run)

    def run_state(self, step_run: m.StepRun) -> None:
        """Do what the record's state asks for."""
        machine, record = self.settings.machine_of(step_run.record), step_run.record
        state = machine.find_state(record.state)
        if state is None or not state.works:
            self.step_runs.queue_change(step_run, rules.unclaim(record, self.settings.who))
        elif state.type == "join" and rules.has_all_children(state, record):
            self.step_runs.pending_child_checks.append(step_run)
        elif state.type == "retired":
            self.step_runs.queue_change(step_run, rules.apply_outcome(machine, record, Done(), who=self.settings.who))
        else:
            self.step_runs.start(step_run)

    def handle_children_checked(self, message: m.ChildrenChecked, now: float) -> None:
        for step_run in message.step_runs:
            if step_run.is_claim_lost:
                continue
            if step_run.record.ref in message.open_parents:
                self.step_runs.queue_change(step_run, rules.wait_for_children(step_run.record, self.settings.who))
            elif step_run.record.state in self.settings.machine_of(step_run.record).bound_steps:
                self.step_runs.start(step_run)
            else:
                self.outcomes.finish(step_run, Done(), now)
