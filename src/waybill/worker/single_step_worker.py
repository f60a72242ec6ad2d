"""Run exactly one due step: for `waybill work --once`, `waybill step` and tests.

    claim -> run the step in a thread of its own, and renew the session meanwhile -> commit -> close the session

Ctrl-C tells the step to stop and waits for it; a second Ctrl-C does not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from waybill import rules
from waybill.machine import Machine
from waybill.record import (
    ClaimedRecord,
    CommitAnswer,
    CommitGroup,
    CommitResult,
    Conflict,
    Record,
    Ref,
    Store,
    StoreError,
)
from waybill.rules import Machines
from waybill.worker import messages as m
from waybill.worker.worker import Worker

if TYPE_CHECKING:
    from waybill.objects import Objects


class StepTransition(NamedTuple):
    """What one step did to its record."""

    ref: Ref
    before: str
    after: str
    cause: str
    message: str


class SingleStepWorker(Worker):
    """A worker that runs one step, with the same core and the same commands."""

    transition: StepTransition | None = None
    target: Ref | None = None
    has_claimed = False

    def run_one(self) -> StepTransition | None:
        self.threads = self.max_claims = 1
        self.core = self._make_core()
        self.core.settings.served_queues = set()  # one step, then release the record
        self.store = store = self.open_store()
        self._start_thread()
        try:
            self._run_until_done(store)
            return self.transition
        finally:
            self.step_threads.stop_threads()
            # an error ended the loop, and no step runs any more
            if self.core.lease.session is not None and not self._is_busy():
                store.close_session(self.core.lease.session)
            self.store = None
            store.close()
            self._end_signal.set()
            self._shut_down_cleanup()

    def _start_thread(self) -> None:
        self.step_threads.start_threads(1)
        self._start_session_watch()

    def _run_until_done(self, store: Store) -> None:
        interrupted: KeyboardInterrupt | None = None
        while True:
            try:
                if not self._run_commands(store):
                    break
            except KeyboardInterrupt as interrupt:
                if interrupted is not None:
                    raise
                interrupted = interrupt
                self._request_stop()
        if interrupted is not None and self.transition is None:
            raise interrupted

    def _run_commands(self, store: Store) -> bool:
        for command in self.core.tick(self.clock()):
            if isinstance(command, m.ExitCommand):
                return False
            self._carry_out(store, command)
        self._drain_inbox()
        step_runs = self.core.step_runs
        if self.has_claimed and not (step_runs.by_number or step_runs.pending_commits or step_runs.readers_to_wake):
            self._request_stop()
        return self._stop_requested_at is None or self.clock() - self._stop_requested_at <= self.grace

    def _is_busy(self) -> bool:
        return self.core.step_runs.is_busy

    def _claim(self, store: Store, command: m.ClaimCommand) -> None:
        session, target = self.core.lease.session, self.target
        if session is None or self.has_claimed:
            return

        def claim_records() -> m.CoreMessage:
            return m.RecordsClaimed(
                store.claim(command.queues, session, 1)
                if target is None
                else self._claim_target(store, target, session, command),
                1,
            )

        self.has_claimed = True
        self._run_guarded(claim_records)

    def _read_holds(self, store: Store, command: m.ReadHoldsCommand) -> None:
        super()._read_holds(store, command)
        if not self.core.polling.list_unpaused_queues():
            self.has_claimed = True  # every queue is paused, so nothing is due
            if self.target is not None:
                raise Conflict(f"Work on {self.target} is paused. Unpause its queue first.")

    def _claim_target(self, store: Store, target: Ref, session: str, command: m.ClaimCommand) -> list[ClaimedRecord]:
        record, machine = store.get(*target), self.machines[target.kind]
        if (record.kind, record.state) not in {(q.kind, q.state) for q in self.queues}:
            possible = ", ".join(a.name for a in machine.list_actions_from(record.state)) or "none"
            raise Conflict(f"{target} is {record.state}, where no step runs here. Actions possible now: {possible}.")
        if (record.kind, record.state) not in {(q.kind, q.state) for q in command.queues}:
            raise Conflict(f"Work on {target} is paused. Unpause its queue first.")
        return [] if self._rest_on_hold(store, machine, record) else [store.claim_one(*target, session)]

    def _rest_on_hold(self, store: Store, machine: Machine, record: Record) -> bool:
        """If a hold keeps the record from starting, move it to the state where it rests: that is its one step."""
        state, holds = machine.find_state(record.state), set(store.list_holds())
        hold = next((name for name in record.hold_names if name in holds), None)
        if record.session is not None or state is None or state.on_hold is None or hold is None:
            return False
        change = rules.enter_hold(machine, record, hold, self.who)
        # refused if a worker has claimed the record since it was read
        answer = store.commit([CommitGroup((change,))])[0]
        if not isinstance(answer, CommitResult):
            raise answer
        self.transition = StepTransition(record.ref, record.state, state.on_hold, change.cause, change.why)
        return True

    def _commit_now(self, store: Store, command: m.CommitCommand) -> list[CommitAnswer | Exception]:
        before = {
            e.step_run.number: e.step_run.record for e in command.entries if e.step_run is not None and not e.is_save
        }
        answers = super()._commit_now(store, command)
        for entry, answer in zip(command.entries, answers, strict=True):
            if entry.step_run is not None and entry.step_run.number in before and isinstance(answer, CommitResult):
                after, claimed = answer.records[0], before[entry.step_run.number]
                if after is not None:
                    cause = entry.group.changes[0].cause or ("wait" if after.blocked_by else "released")
                    self.transition = StepTransition(claimed.ref, claimed.state, after.state, cause, after.message)
        return answers

    def _handle_unavailable(self, error: StoreError) -> None:
        if not self.core.step_runs.by_number:
            raise error  # whoever called waits for an answer
        super()._handle_unavailable(error)  # a step has run: its commit is retried as long as the session lasts


def run_one_step(
    open_store: Callable[[], Store],
    machines: Machines,
    *,
    host: str,
    work_root: Path,
    objects: Objects,
    target: Ref | None = None,
    queues: Iterable[str] | None = None,
    shared: bool = False,
    ttl: float = 15.0,
    resources_of: Callable[[str], Any] = lambda kind: None,
) -> StepTransition | None:
    """Run one due step, of `target` or of the most urgent record in the queues, and return its transition; None if
    nothing is due.

    Raises RecordNotFound, or Conflict with the reason, when `target` cannot be claimed now.
    """
    worker = SingleStepWorker(
        open_store,
        machines,
        host=host,
        work_root=work_root,
        objects=objects,
        queues=queues,
        shared=shared,
        threads=1,
        ttl=ttl,
        resources_of=resources_of,
    )
    worker.target = target
    return worker.run_one()
