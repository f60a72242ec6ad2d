"""Parents that wait for nothing: their wake was lost, or a child is stored as open in a state that this release declares
as settled.

A worker may die between the commit of a child and the wake of its parent. And a release may declare another state as
settled, while records keep what was true when they were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from waybill import rules
from waybill.machine import Machine, State
from waybill.maintenance.routine import MaintenanceContext, ref_of
from waybill.record import MAX_PAGE, CommitGroup, CommitResult, Finding, RecordNotFound

LOST_WAKE, OPEN_DIFFERS = "lost wake", "open differs"
StateCheck = tuple[bool | None, float]  # whether the state was open at its last check, and when that was
StateCursor = tuple[bool, int | None]  # whether it is open, and the record after which the next page begins


@dataclass(frozen=True)
class IdleParentRoutine:
    name: str = "idle-parents"
    description: str = "Wakes parents that wait for children although none is open any more."
    poll_interval: float = 30.0
    per_host: bool = False
    has_routine_findings: bool = False
    # seconds before the records of a state are checked again: an older release may still have been at work
    recheck_interval: float = 3600.0
    # records checked in one round: a million take half an hour, at a hundredth of a core or less
    max_records: int = 20_000

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        yield from self._find_idle_parents(context)
        yield from self._find_wrong_open(context)

    def _find_idle_parents(self, context: MaintenanceContext) -> Iterator[Finding]:
        """Read the waiting records page by page, up to `max_records` in each round; the next round goes on at the page
        where this one ended.
        """
        after: str | None = context.memory.get("parent_cursor", "")
        left = self.max_records
        while after is not None and (left > 0 or context.thorough) and not context.stop():
            context.memory["parent_cursor"] = after  # of the page being read: a round may end in the middle of it
            page = context.store.find_idle_parents(after=after)
            for ref in page.refs:
                yield Finding(LOST_WAKE, str(ref), f"{ref} waits for children, and none is open.", "wake it", ref=ref)
            left, after = left - MAX_PAGE, page.after
        context.memory["parent_cursor"] = after or ""

    def _find_wrong_open(self, context: MaintenanceContext) -> Iterator[Finding]:
        """Read state by state and page by page, up to `max_records` in each round; the next round goes on at the page
        where this one ended.
        """
        now = context.store.now()
        checks: dict[str, StateCheck] = context.memory.setdefault("checked_states", {})
        cursors: dict[str, StateCursor] = context.memory.setdefault("state_cursors", {})
        left = self.max_records
        for machine, state in self._list_due_states(context, checks, now):
            name = f"{machine.name}.{state.name}"
            was_open, after = cursors.get(name, (state.open, None))
            if was_open != state.open:  # declared otherwise since the cursor was written
                after = None
            while True:
                cursors[name] = (state.open, after)  # of the page being read: a round may end in the middle of it
                if left <= 0 and not context.thorough:
                    return
                page = context.store.find(machine.name, state=state.name, after=after, limit=MAX_PAGE)
                left -= max(1, len(page.records))
                for record in page.records:
                    if record.open != state.open and record.session is None:
                        stored, declared = ("open", "settled") if record.open else ("settled", "open")
                        problem = f"{record.ref} is stored as {stored}, and {state.name} is declared as {declared}."
                        yield Finding(OPEN_DIFFERS, str(record.ref), problem, f"store it as {declared}", ref=record.ref)
                if page.after is None:
                    break
                if context.stop():
                    return
                after = page.after
            del cursors[name]
            checks[name] = (state.open, now)  # not before all of its records were read

    def _list_due_states(
        self, context: MaintenanceContext, checks: Mapping[str, StateCheck], now: float
    ) -> list[tuple[Machine, State]]:
        """Return the states to be checked: first those declared otherwise than before, then the longest unchecked."""
        due: list[tuple[bool, float, Machine, State]] = []
        for machine in context.machines.values():
            for state in machine.states if machine.parent is not None else ():
                was_open, at = checks.get(f"{machine.name}.{state.name}", (None, 0.0))
                if context.thorough or was_open != state.open or now - at >= self.recheck_interval:
                    due.append((was_open in (None, state.open), at, machine, state))
        return [(machine, state) for _, _, machine, state in sorted(due, key=lambda each: each[:2])]

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        ref = ref_of(finding)
        if finding.rule == LOST_WAKE:
            context.engine.wake([ref])  # safe to repeat: a wake only makes the join check again
            return True
        try:
            record = context.store.get(*ref)
        except RecordNotFound:
            return False
        change = rules.recompute_open(context.machines[ref.kind], record, context.who)
        if change is None or record.session is not None:
            return False
        # Safe to repeat: fenced by the version just read. A parent whose last open child this was is woken, now or by
        # the next round.
        answer = context.store.commit([CommitGroup((change,))])[0]
        if isinstance(answer, CommitResult):
            context.engine.wake(answer.idle_parents)
        return isinstance(answer, CommitResult)
