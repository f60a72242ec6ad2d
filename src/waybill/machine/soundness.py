"""Whether a table is sound: checked when a machine is built, so that what contradicts itself never runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from waybill.machine.actions import RESUME, STAY
from waybill.machine.states import MAX_WAIT, State

if TYPE_CHECKING:
    from waybill.machine.table import Machine


class MachineError(Exception):
    """A table contradicts itself."""


def check(machine: Machine) -> None:
    """Names once, every target declared, every state reachable, a way to an end from everywhere, keys taken in one
    order.
    """
    name, states = machine.name, machine.states

    def wrong(sentence: str) -> MachineError:
        return MachineError(f"{name}: {sentence}")

    if not states:
        raise wrong("a machine needs a state.")
    for word, names in (
        ("state", [s.name for s in states]),
        ("action", [a.name for a in machine.actions]),
        ("document", [d.name for d in machine.documents]),
        ("family of keys", [k.family for k in machine.keys]),
    ):
        if twice := [n for i, n in enumerate(names) if n in names[:i]]:
            raise wrong(f"the {word} {twice[0]} is declared twice.")
    for s in states:
        for target in (s.then, *s.also, s.fails, s.holds, s.remakes):
            if target is not None and machine.state(target) is None:
                raise wrong(f"{s.name} goes to {target}, which is no state.")
        if s.works and s.then is None:
            raise wrong(f"{s.name} does work but leads nowhere.")
        if s.holds and _state(machine, s.holds).sort != "rest":
            raise wrong(f"{s.name} is held in {s.holds}, which must be a rest state.")
        if (s.holds or s.gated) and machine.gates is None:
            raise wrong(f"{s.name} can be held, but the machine does not say by which marks (gates).")
        if s.sort == "work" and s.tries < 1:
            raise wrong(f"{s.name} must be tried at least once.")
        if not 0 <= s.every <= MAX_WAIT:
            raise wrong(f"{s.name} is looked at every {s.every:g} seconds; say a number from 0 to {MAX_WAIT:,.0f}.")
        if s.sort == "end" and s.needs:
            raise wrong(f"{s.name} is an end and cannot keep keys.")
        if unknown := [f for f in s.needs if f not in [k.family for k in machine.keys]]:
            raise wrong(f"{s.name} needs keys of the family {unknown[0]}, which is not declared.")
    for begin in machine.begins:
        if machine.state(begin) is None:
            raise wrong(f"records may begin in {begin}, which is no state.")
    for a in machine.actions:
        if unknown := [source for source in a.sources if machine.state(source) is None]:
            raise wrong(f"the action {a.name} leaves {unknown[0]}, which is no state.")
        if a.target not in (RESUME, STAY) and machine.state(a.target) is None:
            raise wrong(f"the action {a.name} goes to {a.target}, which is no state.")
    _check_paths(machine, wrong)
    _check_keys(machine, wrong)


def _check_paths(machine: Machine, wrong: Callable[[str], MachineError]) -> None:
    arrows = list(machine.arrows())
    for arrow in arrows:
        if _state(machine, arrow.target).sort == "retired":
            raise wrong(f"{arrow.source} goes to {arrow.target}, which is retired.")
        if _state(machine, arrow.source).sort == "end" and arrow.source != arrow.target:
            raise wrong(f"{arrow.label} leaves {arrow.source}, which is an end; make it a rest state.")
    starts = {machine.initial, *machine.begins, *(s.name for s in machine.states if s.sort == "retired")}
    reached = _closure(starts, {(a.source, a.target) for a in arrows})
    if lost := [s.name for s in machine.states if s.name not in reached]:
        raise wrong(f"no path leads to {_list(lost)}.")
    ends = {s.name for s in machine.states if s.sort == "end"}
    if not ends:
        raise wrong("there is no end state.")
    homeward = _closure(ends, {(a.target, a.source) for a in arrows})
    if trapped := [s.name for s in machine.states if s.name not in homeward]:
        raise wrong(f"no path leads from {_list(trapped)} to an end.")


def _check_keys(machine: Machine, wrong: Callable[[str], MachineError]) -> None:
    """A record that holds a key may ask only for keys of later families: then no two records can wait for each
    other.
    """
    order = {k.family: i for i, k in enumerate(machine.keys)}
    for arrow in machine.arrows():
        held = set(_state(machine, arrow.source).needs) & set(_state(machine, arrow.target).needs)
        asked = set(_state(machine, arrow.target).needs) - held
        if held and asked and min(order[f] for f in asked) < max(order[f] for f in held):
            raise wrong(
                f"{arrow.source} to {arrow.target} keeps keys of {_list(sorted(held))} and asks for {_list(sorted(asked))}, "
                f"which the machine declares earlier; two records could wait for each other."
            )


def _state(machine: Machine, name: str) -> State:
    state = machine.state(name)
    if state is None:
        raise MachineError(f"{machine.name}: {name} is no state.")
    return state


def _closure(starts: set[str], arrows: set[tuple[str, str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(starts)
    while todo:
        if (name := todo.pop()) not in seen:
            seen.add(name)
            todo += [target for source, target in arrows if source == name]
    return seen


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
