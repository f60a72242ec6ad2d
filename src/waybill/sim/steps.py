"""The steps that run now, wherever: no two of one record unless a session was lost, and no session closed under a
running step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from waybill.record import Record, Ref
from waybill.sim.ledger import Violation
from waybill.worker import messages as m

if TYPE_CHECKING:
    from waybill.sim.process import Process
    from waybill.sim.simulation import Simulation


class Running(NamedTuple):
    process: Process
    task: int
    ref: Ref
    session: str | None


class Steps:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.now: dict[tuple[str, int], Running] = {}

    @contextmanager
    def running(self, process: Process, task: m.Task) -> Iterator[None]:
        simulation, record = self.simulation, task.record
        simulation.ledger.began(record, task.attempt)
        if record.session in simulation.ledger.lives:
            self._begins_beside(record)
        key = (process.name, task.number)
        self.now[key] = Running(process, task.number, record.ref, record.session)
        simulation.note(f"begins {record.ref} {record.state} attempt {task.attempt}")
        try:
            yield
        finally:
            del self.now[key]
            if not process.dead:
                simulation.note(f"ended {record.ref} {record.state}")

    def _begins_beside(self, record: Record) -> None:
        """Where a run of this record still goes on, it must be that of a lost session, and told to stop unless it
        stood still.
        """
        for other in self.now.values():
            if other.ref != record.ref:
                continue
            if other.session in self.simulation.ledger.lives:
                raise Violation(f"two steps of {record.ref} run side by side, and no session was lost")
            stood_still = other.process.late or self.simulation.faults.counts.get("jump")
            if not stood_still and other.process.worker is not None and not other.process.worker.told(other.task):
                raise Violation(
                    f"a step of {record.ref} begins while {other.process.name}, whose session has ended, has not told its own to stop"
                )

    def closing(self, session: str) -> None:
        """A second run would begin beside the one that is not yet ended."""
        for other in self.now.values():
            if other.session == session:
                raise Violation(
                    f"the session {self.simulation.trace.alias(session)} is closed while its step of {other.ref} runs"
                )
