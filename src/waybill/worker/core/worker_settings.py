"""The machines, name, host and queues of one worker, and how its queues are named on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from waybill.errors import NotFound
from waybill.machine import Machine, MachineError
from waybill.record import ActionRequest, Change, Record, WorkQueue
from waybill.rules import ActionRefused, Machines


@dataclass
class WorkerSettings:
    """The machines, name, host and queues of one worker."""

    machines: Machines
    who: str  # its name in the history
    bound_host: str  # the host that working files are bound to; "": every host has them
    # turns a request into a change; may read the store for a guard
    answer_request: Callable[[Machine, Record, ActionRequest], Change]
    served_queues: set[tuple[str, str]]  # kind and state of the queues in which a record may go on under its claim

    def machine_of(self, record: Record) -> Machine:
        return self.machines[record.kind]


def queues_of(machines: Machines, names: Iterable[str] | None = None) -> tuple[WorkQueue, ...]:
    """The queues of these names, each "kind" or "kind.State"; without names, all work states. Raises MachineError for one that has
    no step.
    """
    queues: dict[WorkQueue, None] = {}
    requested = list(names or ())
    for name in requested or machines:
        kind, _, state_name = name.partition(".")
        machine = machines[kind]
        states = tuple(s for s in machine.list_work_states() if state_name in ("", s.name))
        if not states and requested:
            known = ", ".join(f"{kind}.{s.name}" for s in machine.list_work_states()) or "none"
            if state_name and machine.find_state(state_name) is None:
                raise NotFound(
                    f"{name} is no queue: a {kind} has no state {state_name!r}. Queues of {kind}: {known}.",
                    code="unknown-state",
                )
            raise ActionRefused(f"{name} is no queue: no work is done there. Queues of {kind}: {known}.")
        without_step = machine.list_states_without_step()
        if not machine.bound_steps and not state_name:
            continue  # declared so: other programs do the work
        if missing := next((s.name for s in states if s.name in without_step), None):
            # In silence its records would wait for ever.
            raise MachineError(
                f"{kind}.{missing} has no step, so nothing would ever work there. Write one, or declare it with `rest` and an action if "
                "another service or a person moves its records on. Processes without it work with --queue, which names the other queues."
            )
        queues.update((WorkQueue(kind, s.name, s.on_hold is not None), None) for s in states)
    return tuple(queues)
