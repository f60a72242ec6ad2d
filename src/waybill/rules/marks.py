"""The names of marks: paths of a few words, such as queue/parcel or carrier/mule, that every store can keep."""

from __future__ import annotations

from waybill.machine import Machine
from waybill.rules.machines import Machines
from waybill.rules.refusals import Refused

QUEUES = "queue/"  # the marks that pause work: a machine's own, and queue/KIND.STATE

LONGEST_MARK = 200  # characters


class BadMark(Refused):
    """This is no name of a mark."""


class UnknownQueue(BadMark):
    """No queue has this name."""


def check_mark(name: str) -> None:
    """A mark is a node on ZooKeeper, where not every text can be one; what is refused there is refused everywhere."""
    if not 1 <= len(name) <= LONGEST_MARK or not name.isprintable() or name != name.strip():
        raise BadMark(
            f"A mark's name is 1 to {LONGEST_MARK} printable characters without a blank at either end, such as carrier/mule."
        )
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise BadMark(f"{name!r} is no name of a mark: its parts are parted by single slashes, such as carrier/mule.")


def pausing(machine: Machine, state: str) -> set[str]:
    """The marks that pause work in a state: any one of them does."""
    return {machine.queue, f"{QUEUES}{machine.name}.{state}"}


def check_queue(name: str, machines: Machines) -> None:
    """Nobody would heed a mark on a queue that is misspelt, and whoever set it would believe that work is paused."""
    if not name.startswith(QUEUES) or name in (queues := {machine.queue for machine in machines.values()}):
        return
    kind, dot, state = name.removeprefix(QUEUES).partition(".")
    if dot and kind in machines:
        states = [s.name for s in machines[kind].working()]
        if state not in states:
            raise UnknownQueue(
                f"{name} is no queue: no work is done on a {kind} in {state!r}, but in {', '.join(states) or 'no state'}."
            )
        return
    there = ", ".join(sorted(queue for queue in queues if queue.startswith(QUEUES)))
    raise UnknownQueue(f"{name} is no queue; there are {there or 'none'}, and {QUEUES}KIND.STATE for a single state.")
