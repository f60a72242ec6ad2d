"""What a worker works by: its tables, its name, its queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from waybill.machine import Machine
from waybill.record import Ask, Change, Record
from waybill.rules import Machines


@dataclass
class Terms:
    machines: Machines
    who: str  # its name in the history
    here: str  # the host that working files are bound to; "": they are on all
    answer: Callable[[Machine, Record, Ask], Change]  # turns a request into a change; it may read the store for a guard
    served: set[tuple[str, str]]  # kind and state of the queues in which a claim may go on

    def machine(self, record: Record) -> Machine:
        return self.machines[record.kind]
