"""The step runs of a worker, the commits on their way to the store, and the commands on their way to the worker.

A step run is added when its record is claimed, starts, may save, ends, and is forgotten when its last commit is
answered. One that the store accepts in no form is a stuck run: its release is retried, ever more seldom.
"""

from __future__ import annotations

from waybill import rules
from waybill.record import Change, CommitGroup, Record, Ref
from waybill.step import Act, StepStopped
from waybill.worker import messages as m
from waybill.worker.core.worker_settings import WorkerSettings

FIRST_RETRY_SECONDS = 1.0  # until the release of a stuck run is retried for the first time
MAX_RETRY_SECONDS = 300.0
READER_WAKE_SECONDS = 0.1  # between two wakes of the subscriptions to the events that are committed
MAX_STUCK_RUNS = 100  # at once; with more of them something else is wrong


class StepRuns:
    def __init__(self) -> None:
        self.by_number: dict[int, m.StepRun] = {}  # all that are claimed or whose step still runs
        self.by_ref: dict[Ref, m.StepRun] = {}
        self.pending_commits: list[m.CommitEntry] = []  # to be committed together
        self.pending_child_checks: list[m.StepRun] = []
        self.pending_starts: list[m.StepRun] = []
        self.commands: list[m.CoreCommand] = []
        self.last_number = 0
        self.readers_to_wake: dict[Ref, None] = {}  # subscriptions that have events to read
        self.wake_readers_at = 0.0

    # --- one step run, in the order of its life

    def add_run(self, record: Record, now: float) -> m.StepRun:
        self.last_number += 1
        step_run = m.StepRun(self.last_number, record, record.version, now)
        self.by_number[step_run.number] = self.by_ref[record.ref] = step_run
        return step_run

    def start(self, step_run: m.StepRun) -> None:
        step_run.is_running = True
        self.pending_starts.append(step_run)

    def signal_stop(self, step_run: m.StepRun) -> None:
        """Tell its step to stop, once."""
        if not step_run.is_stopping:
            step_run.is_stopping = True
            if step_run.is_running:
                self.commands.append(m.SignalStopCommand(step_run))

    def reply(self, step_run: m.StepRun, result: list[Record] | Exception | StepStopped) -> None:
        self.commands.append(m.ReplyCommand(step_run, result))

    def queue_change(
        self,
        step_run: m.StepRun,
        change: Change,
        children: tuple[Change, ...] = (),
        acts: tuple[Act, ...] = (),
        wakes: tuple[Ref, ...] = (),
        readers: tuple[Ref, ...] = (),
    ) -> None:
        group = CommitGroup((change, *children), wakes)
        self.pending_commits.append(m.CommitEntry(group, step_run, acts=acts, readers=readers))

    def forget(self, step_run: m.StepRun) -> None:
        if not step_run.is_running:
            self.by_number.pop(step_run.number, None)
        if self.by_ref.get(step_run.record.ref) is step_run:
            del self.by_ref[step_run.record.ref]

    # --- all step runs

    @property
    def is_busy(self) -> bool:
        return any(step_run.is_running for step_run in self.by_number.values())

    def signal_stop_to_all(self) -> None:
        for step_run in self.by_number.values():
            self.signal_stop(step_run)

    def recall_starts(self) -> list[m.StepRun]:
        """Take back the step runs whose step has not been handed to the threads."""
        starts, self.pending_starts = self.pending_starts, []
        for step_run in starts:
            step_run.is_running = False
        return starts

    def give_up(self, why: str) -> None:
        """All claims are lost. Steps that still run are told to stop, and their outcomes are ignored."""
        self.recall_starts()
        for step_run in list(self.by_number.values()):
            step_run.is_claim_lost = True
            self.signal_stop(step_run)
            self.forget(step_run)
        self.commands.extend(
            m.ReplyCommand(e.step_run, StepStopped(why))
            for e in self.pending_commits
            if e.is_save and e.step_run is not None
        )
        self.pending_commits = [e for e in self.pending_commits if e.step_run is None]
        self.pending_child_checks.clear()
        self.commands.append(m.RecallCommand())

    # --- commands to the worker

    def wake_readers_if_due(self, now: float, is_stopping: bool) -> None:
        """Wake the subscriptions to events that were committed. Not in the commits: all workers would wait for one row. A
        wake that is lost is no harm: a subscription looks by itself, a few seconds later.
        """
        if self.readers_to_wake and (is_stopping or now >= self.wake_readers_at):
            self.pending_commits.append(m.CommitEntry(CommitGroup((), tuple(self.readers_to_wake))))
            self.readers_to_wake.clear()
            self.wake_readers_at = now + READER_WAKE_SECONDS

    def flush(self) -> None:
        if self.pending_child_checks:
            self.commands.append(m.CheckChildrenCommand(self.pending_child_checks))
            self.pending_child_checks = []
        if self.pending_commits:
            self.commands.append(m.CommitCommand(self.pending_commits))
            self.pending_commits = []

    def begin_steps(self) -> bool:
        """Hand the pending steps to the threads; False if there are none."""
        if not self.pending_starts:
            return False
        self.commands.append(m.StartStepsCommand(self.pending_starts))
        self.pending_starts = []
        return True

    def take_commands(self) -> list[m.CoreCommand]:
        commands, self.commands = self.commands, []
        return commands


class StuckRuns:
    """Records that the store accepts in no form: neither the outcome, nor the failure, nor the release of the claim."""

    def __init__(self, settings: WorkerSettings, step_runs: StepRuns) -> None:
        self.settings, self.step_runs = settings, step_runs
        self._retries: list[tuple[float, m.StepRun]] = []

    def schedule_retry(self, step_run: m.StepRun, why: str, now: float) -> bool:
        """Retry the release later; False if there are too many stuck runs."""
        if len(self._retries) >= MAX_STUCK_RUNS:
            return False
        delay = min(FIRST_RETRY_SECONDS * 2.0 ** min(step_run.failed_releases, 20), MAX_RETRY_SECONDS)
        step_run.failed_releases += 1
        self.step_runs.by_number.pop(step_run.number, None)  # it needs no thread, and does not count against new claims
        self._retries.append((now + delay, step_run))
        text = f"{step_run.record.ref} can be neither stored nor released, and is tried again in {delay:.0f} s: {why}"
        self.step_runs.commands.append(m.WarnCommand(text))
        return True

    def retry_due(self, now: float) -> None:
        due = [step_run for at, step_run in self._retries if at <= now and not step_run.is_claim_lost]
        self._retries = [(at, step_run) for at, step_run in self._retries if at > now and not step_run.is_claim_lost]
        for step_run in due:
            self.step_runs.by_number[step_run.number] = step_run
            self.step_runs.queue_change(step_run, rules.unclaim(step_run.record, self.settings.who))

    def drop(self) -> None:
        """Forget all: their claims end with the session."""
        for _, step_run in self._retries:
            step_run.is_claim_lost = True
            self.step_runs.forget(step_run)
        self._retries = []

    @property
    def next_retry_at(self) -> float:
        return min((at for at, _ in self._retries), default=float("inf"))
