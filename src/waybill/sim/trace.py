"""The trace of a simulation: one line for all that happened, in order. The same seed gives the same trace.

Sessions have random names in some stores; here they are called s1, s2 ... in the order in which they were opened.
"""

from __future__ import annotations

from collections.abc import Sequence

from waybill.record import Answer, Change, Claimed, Group, Record, StoreError
from waybill.sim.fibers import START, Hub


class Trace:
    def __init__(self, hub: Hub, on: bool) -> None:
        self.hub, self.on = hub, on
        self.lines: list[str] = []
        self._aliases: dict[str, str] = {}

    def note(self, text: str) -> None:
        if self.on:
            who = self.hub.current.owner.name if self.hub.current is not None else "-"
            for name, alias in reversed(self._aliases.items()):
                text = text.replace(name, alias)
            self.lines.append(f"{self.hub.now - START:9.3f} {who:12} {text}")

    def opened(self, session: str) -> None:
        self._aliases[session] = f"s{len(self._aliases) + 1}"
        self.note(f"open {session}")

    def alias(self, session: str | None) -> str:
        return self._aliases.get(session or "", session or "nobody")

    def claimed(self, session: str, claimed: Sequence[Claimed]) -> None:
        for each in claimed if self.on else ():
            mark = f" stopped by {each.mark}" if each.mark else ""
            ask = f" asked to {each.ask.action}" if each.ask else ""
            self.note(
                f"claim {each.record.ref} {each.record.state} version {each.record.version} by {session}{mark}{ask}"
            )

    def committed(self, groups: Sequence[Group], answers: Sequence[Answer]) -> None:
        for group, answer in zip(groups, answers, strict=True) if self.on else ():
            if isinstance(answer, StoreError):
                names = ", ".join(f"{c.ref} {c.event or 'save'}" for c in group.changes)
                self.note(f"commit {names}: {type(answer).__name__} {answer}")
                continue
            if group.nudges:
                self.note(f"nudge {', '.join(map(str, group.nudges))}")
            for change, record in zip(group.changes, answer.records, strict=False):
                self.note(f"commit {_arrow(change, record)}")
            if answer.idle:
                self.note(f"idle {', '.join(map(str, answer.idle))}")


def _arrow(change: Change, record: Record | None) -> str:
    before = change.before.state if change.before is not None else "nothing"
    if record is None:
        return f"{change.ref} {before} > removed by {change.event} {change.who}"
    more = [f"parked {record.parked}"] if record.parked else []
    if record.keys:
        more.append(f"keys {' '.join(record.keys)}")
    if record.session:
        more.append(f"held by {record.session}")
    after = f"{record.state} version {record.version}"
    return " ".join((f"{record.ref} {before} > {after} by {change.event or 'save'} {change.who}", *more))
