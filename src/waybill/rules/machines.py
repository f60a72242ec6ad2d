"""The machines of a process, by kind, who wants which of their events, and whether the contents of a store agree with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from waybill.errors import NotFound
from waybill.events import SUBSCRIPTION_KIND, Event
from waybill.machine import Machine, MachineError
from waybill.record import FOREIGN_CAUSE, Ref


@dataclass
class EventRouting:
    """Who wants which events, in this process. All processes of an installation have the same applications and settings."""

    declared: frozenset[str] | None = None  # the types of the applications that are loaded; None: not checked
    subscriptions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by id: types, * for any part of a name
    logged: tuple[str, ...] = ()  # types that are logged although nobody subscribes
    _refs: dict[str, tuple[Ref, ...]] = field(default_factory=dict, repr=False)
    _wanted: dict[str, bool] = field(default_factory=dict, repr=False)

    def list_subscriptions(self, type: str) -> tuple[Ref, ...]:
        """Return the subscriptions to this type."""
        if (refs := self._refs.get(type)) is None:
            refs = self._refs[type] = tuple(
                Ref(SUBSCRIPTION_KIND, name)
                for name, patterns in self.subscriptions.items()
                if matches_type(type, patterns)
            )
        return refs

    def list_readers(self, events: Iterable[Event]) -> tuple[Ref, ...]:
        """Return the subscriptions to any of these events."""
        return tuple(dict.fromkeys(ref for event in events for ref in self.list_subscriptions(event.type_name)))

    def is_wanted(self, type: str) -> bool:
        if (is_wanted := self._wanted.get(type)) is None:
            is_wanted = self._wanted[type] = bool(self.list_subscriptions(type)) or matches_type(type, self.logged)
        return is_wanted


def matches_type(type: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(type, pattern) for pattern in patterns)


class Machines(dict[str, Machine]):
    """The machines of a process, by kind. `event_routing`: who wants which of their events; without it nobody wants any."""

    event_routing: EventRouting = EventRouting()

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
