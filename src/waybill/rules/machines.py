"""The machines of a process, by kind."""

from __future__ import annotations

from collections.abc import Iterable

from waybill.machine import Machine, MachineError


class UnknownKind(LookupError):
    """There is no such machine."""


class Machines(dict[str, Machine]):
    """The machines of a process, by kind."""

    @classmethod
    def of(cls, machines: Iterable[Machine]) -> Machines:
        table = cls()
        for machine in machines:
            if machine.name in table:
                raise MachineError(f"Two machines are called {machine.name}.")
            table[machine.name] = machine
        for machine in table.values():
            if machine.parent is not None and machine.parent not in table:
                raise MachineError(f"{machine.name}: its parent {machine.parent} is no machine here.")
        return table

    def __missing__(self, kind: str) -> Machine:
        raise UnknownKind(f"There is no kind {kind!r}; there are {', '.join(sorted(self)) or 'none'}.")

    def children_of(self, kind: str) -> list[Machine]:
        return [m for m in self.values() if m.parent == kind]
