"""The checks of a machine when it is built, so that a machine that contradicts itself never runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from waybill.errors import WaybillError
from waybill.machine.declarations import MAX_WAIT, RESUME, STAY, State

if TYPE_CHECKING:
    from waybill.machine.machine import Machine


_FAMILY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class MachineError(WaybillError):
    """A machine contradicts itself."""

    code = "bad-machine"


def check_machine(machine: Machine) -> None:
    """Check that names are unique, every target is declared, every state can be reached, every state leads to an end,
    and locks are acquired in one order.
    """
    name, states = machine.name, machine.states

    def make_error(sentence: str) -> MachineError:
        return MachineError(f"{name}: {sentence}")

    if not states:
        raise make_error("a machine needs a state.")
    for word, names in (
        ("state", [s.name for s in states]),
        ("action", [a.name for a in machine.actions]),
        ("document", [d.name for d in machine.documents]),
        ("type of a document,", [d.type.__name__ for d in machine.documents if d.type is not None]),
        ("lock family", [k.name for k in machine.locks]),
    ):
        if twice := [n for i, n in enumerate(names) if n in names[:i]]:
            raise make_error(f"the {word} {twice[0]} is declared twice.")
    for s in states:
        for target in (s.to, *s.or_to, s.on_fail, s.on_hold, s.on_host_lost):
            if target is not None and machine.find_state(target) is None:
                raise make_error(f"{s.name} goes to {target}, which is no state.")
        if s.works and s.to is None:
            raise make_error(f"{s.name} does work but leads nowhere.")
        if s.on_hold and _get_state(machine, s.on_hold).type != "rest":
            raise make_error(f"{s.name} goes on hold in {s.on_hold}, which must be a rest state.")
        if (s.on_hold or s.blocks_on_hold) and machine.hold_names is None:
            raise make_error(f"{s.name} can be held, but the machine does not say by which holds (hold_names).")
        if s.on_hold and s.blocks_on_hold:
            raise make_error(f"{s.name} says both that a hold blocks it there and that a hold sends it to {s.on_hold}.")
        if s.keep is not None and s.open:
            raise make_error(
                f"{s.name} says after how long its records are removed, but they are open; only settled ones are removed."
            )
        if s.type == "work" and s.max_tries < 1:
            raise make_error(f"{s.name} must be tried at least once.")
        if not 0 <= s.poll_interval <= MAX_WAIT:
            raise make_error(
                f"{s.name} has a poll interval of {s.poll_interval:g} seconds; say a number from 0 to {MAX_WAIT:,.0f}."
            )
        if s.type == "end" and s.lock_families:
            raise make_error(f"{s.name} is an end and cannot own locks.")
        if unknown := [f for f in s.lock_families if f not in [k.name for k in machine.locks]]:
            raise make_error(f"{s.name} needs locks of the family {unknown[0]}, which is not declared.")
        if both := [f for f in s.locks if f in s.shared_locks]:
            raise make_error(
                f"{s.name} needs locks of the family {both[0]} both exclusively (locks) and shared (shared_locks); say one."
            )
        if counted := [k.name for k in machine.locks if k.name in s.shared_locks and k.limit_of is not None]:
            raise make_error(
                f"{s.name} shares locks of the family {counted[0]}, which counts its owners (limit_of); name it in locks."
            )
    for family in machine.locks:
        if not _FAMILY_NAME.fullmatch(family.name):
            raise make_error(f"{family.name!r} is no name of a lock family: letters, digits, dots and hyphens.")
    for begin in machine.initial_states:
        if machine.find_state(begin) is None:
            raise make_error(f"records may begin in {begin}, which is no state.")
    for a in machine.actions:
        if unknown := [source for source in a.sources if machine.find_state(source) is None]:
            raise make_error(f"the action {a.name} leaves {unknown[0]}, which is no state.")
        if a.target not in (RESUME, STAY) and machine.find_state(a.target) is None:
            raise make_error(f"the action {a.name} goes to {a.target}, which is no state.")
    _check_paths(machine, make_error)
    _check_lock_order(machine, make_error)


def _check_paths(machine: Machine, make_error: Callable[[str], MachineError]) -> None:
    arrows = list(machine.iter_arrows())
    for arrow in arrows:
        if _get_state(machine, arrow.target).type == "retired":
            raise make_error(f"{arrow.source} goes to {arrow.target}, which is retired.")
        if _get_state(machine, arrow.source).type == "end" and arrow.source != arrow.target:
            raise make_error(f"{arrow.label} leaves {arrow.source}, which is an end; make it a rest state.")
    starts = {machine.initial_state, *machine.initial_states, *(s.name for s in machine.states if s.type == "retired")}
    reached = _find_reachable(starts, {(a.source, a.target) for a in arrows})
    if unreached := [s.name for s in machine.states if s.name not in reached]:
        raise make_error(f"no path leads to {_join_names(unreached)}.")
    ends = {s.name for s in machine.states if s.type == "end"}
    if not ends:
        raise make_error("there is no end state.")
    leading_to_end = _find_reachable(ends, {(a.target, a.source) for a in arrows})
    if trapped := [s.name for s in machine.states if s.name not in leading_to_end]:
        raise make_error(f"no path leads from {_join_names(trapped)} to an end.")


def _check_lock_order(machine: Machine, make_error: Callable[[str], MachineError]) -> None:
    """A record that owns a lock may acquire only locks of later families: then no two records can wait for each
    other.

    A lock that the next state needs in another sort is given up and acquired anew, so it counts as needed and not as
    owned: from shared to exclusive goes only a record that keeps no lock of a later family meanwhile.
    """
    order = {k.name: i for i, k in enumerate(machine.locks)}
    for arrow in machine.iter_arrows():
        source, target = _get_state(machine, arrow.source), _get_state(machine, arrow.target)
        owned = (set(source.locks) & set(target.locks)) | (set(source.shared_locks) & set(target.shared_locks))
        needed = set(target.lock_families) - owned
        if owned and needed and min(order[f] for f in needed) < max(order[f] for f in owned):
            raise make_error(
                f"{arrow.source} to {arrow.target} keeps locks of {_join_names(sorted(owned))} and needs {_join_names(sorted(needed))}, "
                f"which the machine declares earlier; two records could wait for each other."
            )


def _get_state(machine: Machine, name: str) -> State:
    state = machine.find_state(name)
    if state is None:
        raise MachineError(f"{machine.name}: {name} is no state.")
    return state


def _find_reachable(starts: set[str], arrows: set[tuple[str, str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(starts)
    while todo:
        if (name := todo.pop()) not in seen:
            seen.add(name)
            todo += [target for source, target in arrows if source == name]
    return seen


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(names)
