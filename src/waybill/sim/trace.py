"""The trace of a simulation: one line for everything that happened, in order. The same seed gives the same trace.

Some stores give sessions random names; here they are called s1, s2 ... in the order in which they were opened.
"""

from __future__ import annotations

from collections.abc import Sequence

from waybill.record import Change, ClaimedRecord, CommitAnswer, CommitGroup, Record, StoreError
from waybill.sim.fibers import START_TIME, FiberScheduler


class SimulationTrace:
    def __init__(self, scheduler: FiberScheduler, is_on: bool) -> None:
        self.scheduler, self.is_on = scheduler, is_on
        self.lines: list[str] = []
        self._aliases: dict[str, str] = {}

    def add_line(self, text: str) -> None:
        if self.is_on:
            who = self.scheduler.current.owner.name if self.scheduler.current is not None else "-"
            for name, alias in reversed(self._aliases.items()):
                text = text.replace(name, alias)
            self.lines.append(f"{self.scheduler.now - START_TIME:9.3f} {who:12} {text}")

    def note_session_opened(self, session: str) -> None:
        self._aliases[session] = f"s{len(self._aliases) + 1}"
        self.add_line(f"open {session}")

    def alias_of(self, session: str | None) -> str:
        return self._aliases.get(session or "", session or "nobody")

    def note_claims(self, session: str, claimed: Sequence[ClaimedRecord]) -> None:
        for each in claimed if self.is_on else ():
            hold = f" on hold by {each.hold}" if each.hold else ""
            request = f" requested to {each.action_request.action}" if each.action_request else ""
            self.add_line(
                f"claim {each.record.ref} {each.record.state} version {each.record.version} by {session}{hold}{request}"
            )

    def note_commits(self, groups: Sequence[CommitGroup], answers: Sequence[CommitAnswer]) -> None:
        for group, answer in zip(groups, answers, strict=True) if self.is_on else ():
            if isinstance(answer, StoreError):
                names = ", ".join(f"{c.ref} {c.cause or 'save'}" for c in group.changes)
                self.add_line(f"commit {names}: {type(answer).__name__} {answer}")
                continue
            if group.wake:
                self.add_line(f"wake {', '.join(map(str, group.wake))}")
            for change, record in zip(group.changes, answer.records, strict=False):
                self.add_line(f"commit {_describe_change(change, record)}")
            if answer.idle_parents:
                self.add_line(f"idle {', '.join(map(str, answer.idle_parents))}")


def _describe_change(change: Change, record: Record | None) -> str:
    before = change.before.state if change.before is not None else "nothing"
    if record is None:
        return f"{change.ref} {before} > removed by {change.cause} {change.who}"
    more = [f"blocked by {record.blocked_by}"] if record.blocked_by else []
    if record.locks:
        more.append(f"locks {' '.join(record.locks)}")
    if record.session:
        more.append(f"claimed by {record.session}")
    after = f"{record.state} version {record.version}"
    return " ".join((f"{record.ref} {before} > {after} by {change.cause or 'save'} {change.who}", *more))
