"""Which queues a worker serves, from the words of its command line: "kind", "kind.State" or nothing for all."""

from __future__ import annotations

from collections.abc import Iterable

from waybill.record import Role
from waybill.rules import Machines, Refused, UnknownState


def roles_of(machines: Machines, words: Iterable[str] | None = None) -> tuple[Role, ...]:
    """One role for each work state that is asked for; without words, all that have a step."""
    roles: dict[Role, None] = {}
    asked = list(words or ())
    for word in asked or machines:
        kind, _, name = word.partition(".")
        machine = machines[kind]
        states = machine.working() if not name else tuple(s for s in machine.working() if s.name == name)
        if not states and asked:
            names = ", ".join(f"{kind}.{s.name}" for s in machine.working()) or "none"
            if name and machine.state(name) is None:
                raise UnknownState(f"{word} is no role: a {kind} has no state {name!r}. Roles of {kind}: {names}.")
            raise Refused(f"{word} is no role: no work is done there. Roles of {kind}: {names}.")
        lacking = machine.without_steps()
        # What was not asked for by its state's name may be left to an outside service.
        roles.update((Role(kind, s.name, s.holds is not None), None) for s in states if name or s.name not in lacking)
    return tuple(roles)
