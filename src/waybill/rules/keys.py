"""The exclusive keys that a record needs: reckoned when it enters a state, or asked for in the middle of a step."""

from __future__ import annotations

from collections.abc import Iterable

from waybill.machine import Machine, MachineError, State
from waybill.record import Record


def keys_in(machine: Machine, state: State, record: Record) -> tuple[str, ...]:
    """The keys that a record needs in a state: those it has of the families asked for, and those that its documents
    name.
    """
    if not state.needs:
        return ()
    names: dict[str, None] = {}
    for family in machine.keys:
        if family.family in state.needs:
            names.update((k, None) for k in record.keys if k.partition("/")[0] == family.family)
            names.update((f"{family.family}/{n}", None) for n in (family.of(record) if family.of else ()))
    return tuple(names)


def check_more_keys(machine: Machine, record: Record, more: Iterable[str]) -> tuple[str, ...]:
    """The keys of a record that asks for more in the middle of a step.

    Only of later families than it holds, or two records could wait for each other.
    """
    order = {k.family: i for i, k in enumerate(machine.keys)}
    state = machine.state(record.state)
    new = [k for k in dict.fromkeys(more) if k not in record.keys]
    for key in new:
        family = key.partition("/")[0]
        if state is None or family not in state.needs:
            raise MachineError(
                f"{machine.name}.{record.state} does not declare that it needs keys of the family {family}."
            )
        if any(order[held.partition("/")[0]] >= order[family] for held in record.keys):
            raise MachineError(
                f"{record.ref} holds {', '.join(record.keys)} and may no longer ask for {key}: its family comes earlier."
            )
    return (*record.keys, *new)
