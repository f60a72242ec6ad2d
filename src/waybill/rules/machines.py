"""The machines of a process, by kind, and whether the contents of a store agree with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from waybill.errors import NotFound
from waybill.machine import Machine, MachineError
from waybill.record import FOREIGN_CAUSE


class Machines(dict[str, Machine]):
    """The machines of a process, by kind."""

    @classmethod
    def from_machines(cls, machines: Iterable[Machine]) -> Machines:
        by_kind = cls()
        for machine in machines:
            if machine.name in by_kind:
                raise MachineError(f"Two machines are called {machine.name}.")
            by_kind[machine.name] = machine
        for machine in by_kind.values():
            if unknown := [kind for kind in machine.parent_kinds if kind not in by_kind]:
                raise MachineError(f"{machine.name}: its parent {unknown[0]} is no machine here.")
        return by_kind

    def __missing__(self, kind: str) -> Machine:
        raise NotFound(
            f"There is no kind {kind!r}; there are {', '.join(sorted(self)) or 'none'}.", code="unknown-kind"
        )

    def children_of(self, kind: str) -> list[Machine]:
        return [m for m in self.values() if kind in m.parent_kinds]


def find_illegal_transition(machine: Machine, entries: Iterable[tuple[str | None, str | None, str]]) -> str | None:
    """Return the first of these (before, after, cause) entries that is no arrow of the machine, in words; None: all
    are.
    """
    arrows = {(a.source, a.target) for a in machine.iter_arrows()}
    starts = {machine.initial_state, *machine.initial_states}
    at: str | None = None
    for before, after, cause in entries:
        if before is None:
            if after not in starts:
                return f"begins in {after}"
        elif cause != FOREIGN_CAUSE:
            if at is not None and before != at:
                return f"is in {at}, then leaves {before}"
            if before != after and (before, after) not in arrows and cause != "move":
                return f"goes from {before} to {after} by {cause}, which is no arrow"
        at = after
    return None


def find_undeclared_states(machine: Machine, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the states that hold records and that this release does not declare."""
    return {state: count for state, count in counts.items() if machine.find_state(state) is None}
