"""The change that is committed when a step has ended, or saves before that.

In this order: a lock was unavailable, an action was requested, the step was told to stop; and only then the outcome
that the step returned.
"""

from __future__ import annotations

from msgspec.structs import replace

from waybill import rules
from waybill.machine import STAY, Machine
from waybill.record import ActionRequest, Change, CommitGroup, Record, RecordDocuments, Ref
from waybill.rules import PRIORITY
from waybill.step import Act, Done, Fail, Outcome, StepStopped, Wait
from waybill.worker import messages as m
from waybill.worker.core.claim_sizing import ClaimSizing
from waybill.worker.core.lease import SessionLease
from waybill.worker.core.polling import Polling
from waybill.worker.core.step_runs import StepRuns
from waybill.worker.core.worker_settings import WorkerSettings

MAX_STATES_PER_CLAIM = 16  # states that a record may go through under one claim
MAX_CLAIM_SECONDS = 10.0  # after which a record is released instead of going on to its next state


class OutcomeHandler:
    def __init__(
        self,
        settings: WorkerSettings,
        step_runs: StepRuns,
        lease: SessionLease,
        claim_sizing: ClaimSizing,
        polling: Polling,
    ) -> None:
        self.settings, self.step_runs, self.lease, self.claim_sizing, self.polling = (
            settings,
            step_runs,
            lease,
            claim_sizing,
            polling,
        )

    def handle_save_requested(self, message: m.SaveRequested, now: float) -> None:
        step_run, record = message.step_run, message.step_run.record
        if step_run.is_claim_lost or step_run.number not in self.step_runs.by_number:
            self.step_runs.reply(step_run, StepStopped("the claim is lost"))
            return
        machine, who = self.settings.machine_of(record), self.settings.who
        try:
            documents = rules.encode_documents(machine, message.documents, message.remove, record=record, writer="step")
            locks = rules.extend_locks(machine, record, message.locks) if message.locks else record.locks
            machines = self.settings.machines
            children = tuple(rules.create(machines, n, maker=record, who=who) for n in message.children)
            events = rules.create_events(machines, message.events, maker=record, who=who) if message.events else ()
        except Exception as error:  # noqa: BLE001 - a step may save anything: the error goes to the step
            self.step_runs.reply(step_run, error)
            return
        change = Change(record, replace(record, locks=locks), "", who, documents=documents)
        group = CommitGroup((change, *children, *events), tuple(message.wakes))
        readers = self.settings.machines.event_routing.list_readers(message.events) if events else ()
        self.step_runs.pending_commits.append(
            m.CommitEntry(group, step_run, is_save=True, acts=tuple(message.acts), readers=readers)
        )

    def handle_step_ended(self, message: m.StepEnded, now: float) -> None:
        step_run = message.step_run
        step_run.is_running = False
        self.claim_sizing.note_step_end(message.seconds, now)
        if step_run.is_claim_lost:
            self.step_runs.forget(step_run)
            return
        self.finish(step_run, message.outcome, now)

    def finish(self, step_run: m.StepRun, outcome: Outcome | Exception | StepStopped, now: float) -> None:
        machine, record = self.settings.machine_of(step_run.record), step_run.record
        if step_run.unavailable_lock is not None:
            lock, locks = step_run.unavailable_lock
            self.step_runs.queue_change(step_run, rules.wait_for_lock(machine, record, locks, lock, self.settings.who))
        elif step_run.action_request is not None and step_run.action_request.action != PRIORITY:
            self._answer_request(step_run, machine, step_run.action_request, outcome, now)
        elif isinstance(outcome, StepStopped) or (
            step_run.is_stopping and isinstance(outcome, Exception) and not isinstance(outcome, Fail)
        ):
            self.step_runs.queue_change(step_run, rules.unclaim(record, self.settings.who))
        else:
            self._settle(step_run, machine, outcome, now)

    def _answer_request(
        self,
        step_run: m.StepRun,
        machine: Machine,
        request: ActionRequest,
        outcome: Outcome | Exception | StepStopped,
        now: float,
    ) -> None:
        """Commit the requested action, with the documents of the step's outcome."""
        record = step_run.record
        documents = _documents_of(machine, record, outcome)
        current = replace(record, documents=record.documents.with_changes(documents)) if documents else record
        answer = self.settings.answer_request(machine, current, request)
        acts = rules.further_acts_of_request(machine, current, request, answer)
        if isinstance(outcome, (Done, Fail)) and _is_left_in_place(machine, answer, request):
            # the step has done its work, which is not repeated
            self._settle(step_run, machine, outcome, now, answer, acts)
        else:
            change = (
                replace(answer, before=record, documents={**documents, **answer.documents}) if documents else answer
            )
            self.step_runs.queue_change(step_run, change, acts=acts)

    def _settle(
        self,
        step_run: m.StepRun,
        machine: Machine,
        outcome: Outcome | Exception,
        now: float,
        answer: Change | None = None,
        acts: tuple[Act, ...] = (),
    ) -> None:
        """Commit the outcome. `answer`: the answer to an action request that leaves the record in its state; it is part
        of the same commit, and so are the acts that it brings along.
        """
        record, who = step_run.record, self.settings.who
        current = (
            replace(record, documents=record.documents.with_changes(answer.documents))
            if answer is not None and answer.documents
            else record
        )
        go_on = isinstance(outcome, Done) and self._can_go_on(step_run, machine, outcome, now)
        change = rules.apply_outcome(
            machine, current, outcome, who=who, host=self.settings.bound_host, keep_claim=go_on
        )
        is_taken = _is_taken(outcome, change)
        if answer is not None:
            change = _add_answer(change, record, answer)
        elif step_run.action_request is not None and change.after is not None:
            # a new priority stops no step, and is part of its commit
            change = _add_priority(change, change.after, step_run.action_request)
            step_run.action_request = None
        created: tuple[Change, ...] = ()
        wakes: tuple[Ref, ...] = ()
        readers: tuple[Ref, ...] = ()
        if isinstance(outcome, (Done, Wait)) and is_taken:
            spawn = outcome.spawn if isinstance(outcome, Done) else ()
            if spawn or outcome.events:
                machines = self.settings.machines
                try:
                    children = tuple(rules.create(machines, n, maker=record, who=who) for n in spawn)
                    events = rules.create_events(machines, outcome.events, maker=record, who=who)
                    created = (*children, *events)
                    readers = machines.event_routing.list_readers(outcome.events) if events else ()
                except Exception as error:  # noqa: BLE001 - a step may spawn and tell anything
                    change = rules.apply_outcome(machine, record, Fail(rules.describe_error(error)), who=who)
                    self.step_runs.queue_change(step_run, change)
                    return
            acts, wakes = (*acts, *outcome.acts), tuple(outcome.wakes)
        self.step_runs.queue_change(step_run, change, created, acts, wakes, readers)

    def _can_go_on(self, step_run: m.StepRun, machine: Machine, outcome: Done, now: float) -> bool:
        """Whether the record goes on to its next state under the same claim."""
        if (
            self.lease.is_stopping
            or self.lease.drain_reason
            or step_run.is_stopping
            or step_run.states_passed >= MAX_STATES_PER_CLAIM
            or now - step_run.claimed_at >= MAX_CLAIM_SECONDS
        ):
            return False
        state = machine.find_state(step_run.record.state)
        target = outcome.to or (state.to if state is not None else None)
        if target is None or (step_run.record.kind, target) not in self.settings.served_queues:
            return False
        return not self.polling.is_paused(machine.name, target)


def _is_taken(outcome: Outcome | Exception, change: Change) -> bool:
    """Whether the outcome is what is committed: one that the machine does not allow is committed as a failure."""
    if isinstance(outcome, Done):
        return change.cause == "done"
    return isinstance(outcome, Wait) and not change.cause and change.after is not None and not change.after.error_count


def _documents_of(
    machine: Machine, record: Record, outcome: Outcome | Exception | StepStopped
) -> dict[str, bytes | None]:
    """The documents of the outcome, which are kept also when an action request decides the record's next state. Those
    that cannot be stored are dropped.
    """
    try:
        return (
            rules.encode_documents(machine, outcome.documents, outcome.remove, record=record, writer="step")
            if isinstance(outcome, (Done, Wait))
            else {}
        )
    except Exception:  # noqa: BLE001 - a step may return anything
        return {}


def _is_left_in_place(machine: Machine, answer: Change, request: ActionRequest) -> bool:
    """Whether the record stays in its state: the request is refused, cannot be decided now, or asks for an action that
    stays.
    """
    action = machine.find_action(request.action)
    return answer.cause in ("", rules.refusal_cause_of(request)) or (action is not None and action.target == STAY)


def _add_answer(change: Change, record: Record, answer: Change) -> Change:
    if not answer.answers_request:
        return change  # the request stays, and is answered when it can be decided
    by = f"{answer.cause}, requested by {answer.who or 'somebody'}" + (f": {answer.why}" if answer.why else "")
    why = rules.clip(f"{change.why} ({by})" if change.why else by)
    return replace(
        change, before=record, documents={**change.documents, **answer.documents}, why=why, answers_request=True
    )


def _add_priority(change: Change, after: Record, request: ActionRequest) -> Change:
    """The change with the requested priority. A request that cannot be read stays, and is refused when the record is
    free.
    """
    try:
        priority = int(RecordDocuments({"a": request.args})["a"][PRIORITY])
        rules.check_priority(priority)
    except Exception:  # noqa: BLE001 - another process wrote the request
        return change
    by = f"priority {priority} requested by {request.who or 'somebody'}" + (f": {request.why}" if request.why else "")
    who, cause = (change.who, change.cause) if change.cause else (request.who, PRIORITY)
    why = rules.clip(f"{change.why} ({by})" if change.why else by)
    return replace(change, after=replace(after, priority=priority), cause=cause, who=who, why=why, answers_request=True)
