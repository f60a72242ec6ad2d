"""Exactly one due step: for `waybill work --once`, `waybill step` and tests.

    claim -> the step in a thread of its own, the session kept alive meanwhile -> commit -> close the session

Ctrl-C tells the step to stop and waits for it; a second one does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from waybill import rules
from waybill.machine import Machine
from waybill.record import Answer, Claimed, Committed, Conflict, Group, Record, Ref, Store, StoreError
from waybill.rules import Machines
from waybill.worker import messages as m
from waybill.worker.shell import Worker

if TYPE_CHECKING:
    from waybill.objects import Objects


class Arrow(NamedTuple):
    """What became of the record."""

    ref: Ref
    before: str
    after: str
    event: str
    message: str


class Once(Worker):
    """A worker of one task: the same core and the same commands."""

    arrow: Arrow | None = None
    target: Ref | None = None
    claimed = False

    def take_one(self) -> Arrow | None:
        self.threads = self.portion = 1
        self.core = self._make_core()
        self.core.terms.served = set()  # one step, then let go
        self.store = store = self.open_store()
        self._get_hand()
        try:
            self._until_done(store)
            return self.arrow
        finally:
            self.crew.dismiss()
            # refused on the way, and no step runs any more
            if self.core.lease.session is not None and not self._busy():
                store.close_session(self.core.lease.session)
            self.store = None
            store.close()
            self._over.set()
            self._tidy_up()

    def _get_hand(self) -> None:
        self.crew.hire(1)
        self._watch_over_steps()

    def _until_done(self, store: Store) -> None:
        interrupted: KeyboardInterrupt | None = None
        while True:
            try:
                if not self._pump(store):
                    break
            except KeyboardInterrupt as interrupt:
                if interrupted is not None:
                    raise
                interrupted = interrupt
                self._stop()
        if interrupted is not None and self.arrow is None:
            raise interrupted

    def _pump(self, store: Store) -> bool:
        for command in self.core.tick(self.clock()):
            if isinstance(command, m.Exit):
                return False
            self._carry_out(store, command)
        self._drain_inbox()
        if self.claimed and not self.core.bench.tasks and not self.core.bench.out:
            self._stop()
        return self._stopping_at is None or self.clock() - self._stopping_at <= self.grace

    def _busy(self) -> bool:
        return self.core.bench.busy

    def _claim(self, store: Store, command: m.Claim) -> None:
        session, target = self.core.lease.session, self.target
        if session is None or self.claimed:
            return

        def call() -> m.Event:
            return m.Took(
                store.claim(command.roles, session, 1)
                if target is None
                else self._take(store, target, session, command),
                1,
            )

        self.claimed = True
        self._guarded(call)

    def _read_marks(self, store: Store, command: m.ReadMarks) -> None:
        super()._read_marks(store, command)
        if not self.core.lookout.unpaused():
            self.claimed = True  # all is paused, so nothing is due
            if self.target is not None:
                raise Conflict(f"Work on {self.target} is paused. Unpause its queue first.")

    def _take(self, store: Store, target: Ref, session: str, command: m.Claim) -> list[Claimed]:
        record, machine = store.get(*target), self.machines[target.kind]
        if (record.kind, record.state) not in {(r.kind, r.state) for r in self.roles}:
            possible = ", ".join(a.name for a in machine.leaves(record.state)) or "none"
            raise Conflict(f"{target} is {record.state}, where no step runs here. Actions possible now: {possible}.")
        if (record.kind, record.state) not in {(r.kind, r.state) for r in command.roles}:
            raise Conflict(f"Work on {target} is paused. Unpause its queue first.")
        return [] if self._held(store, machine, record) else [store.take(*target, session)]

    def _held(self, store: Store, machine: Machine, record: Record) -> bool:
        """Whether a mark keeps it from beginning, so that coming to rest is its one step."""
        state, marks = machine.state(record.state), set(store.marks())
        mark = next((gate for gate in record.gates if gate in marks), None)
        if record.session is not None or state is None or state.holds is None or mark is None:
            return False
        change = rules.hold(machine, record, mark, self.who)
        answer = store.commit([Group((change,))])[0]  # of the version that was read: not if a worker took it meanwhile
        if not isinstance(answer, Committed):
            raise answer
        self.arrow = Arrow(record.ref, record.state, state.holds, change.event, change.why)
        return True

    def _commit_now(self, store: Store, command: m.Commit) -> list[Answer]:
        before = {e.task.number: e.task.record for e in command.batch if e.task is not None and not e.saves}
        answers = super()._commit_now(store, command)
        for entry, answer in zip(command.batch, answers, strict=True):
            if entry.task is not None and entry.task.number in before and isinstance(answer, Committed):
                after, old = answer.records[0], before[entry.task.number]
                if after is not None:
                    event = entry.group.changes[0].event or ("wait" if after.parked else "let go")
                    self.arrow = Arrow(old.ref, old.state, after.state, event, after.message)
        return answers

    def _away(self, error: StoreError) -> None:
        if not self.core.bench.tasks:
            raise error  # somebody waits for the answer
        super()._away(error)  # what the step did is worth some patience: as long as the session lasts


def step_once(
    open_store: Callable[[], Store],
    machines: Machines,
    *,
    host: str,
    work_root: Path,
    objects: Objects,
    target: Ref | None = None,
    roles: Iterable[str] | None = None,
    shared: bool = False,
    ttl: float = 15.0,
    outfit: Callable[[str], Any] = lambda kind: None,
) -> Arrow | None:
    """Take one due step, of `target` or of the most urgent record of the roles, and say which arrow it took; None:
    nothing is due.

    NotFound, or Conflict with the reason, when `target` cannot be claimed now.
    """
    once = Once(
        open_store,
        machines,
        host=host,
        work_root=work_root,
        objects=objects,
        roles=roles,
        shared=shared,
        threads=1,
        ttl=ttl,
        outfit=outfit,
    )
    once.target = target
    return once.take_one()
