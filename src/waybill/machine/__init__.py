"""A machine is the table that declares a kind of record: pure data in the words of its domain, checked when it is
built.

A state is of one of four sorts: **work** (a step runs), **join** (a work state with a built-in step: until the children have settled),
**rest** (until a person or an event acts), **end**. A fifth, **retired**, is a state on its way out of the table: not entered, still left.

    JOB = Machine(
        name="job", plural="jobs", prefix="jid", doc="One parcel on its way.",
        states=(
            work("Packing", "Sending", "Put it into a box."),
            work("Sending", "Arrived", "Hand it to the carrier.", tries=5),
            rest("Failed", "A step gave up; resume goes on after the last one that was done.", settled=True),
            end("Arrived", "Signed for."),
        ),
        actions=(action("resume", "Failed", RESUME, "Try again from where it stopped."),),
    )

Every arrow of the machine follows from the table (`arrows`), and everything else from the arrows: the engine's checks,
the worker's roles, the API's routes, the page's buttons, the figures.

The words of a table are in states.py, actions.py and belongings.py, the machine in table.py, and when it is sound in
soundness.py; all are imported from here.
"""

from waybill.machine.actions import RESUME, STAY, Action, Guard, Rewrite, action
from waybill.machine.belongings import Document, Folder, Keys
from waybill.machine.soundness import MachineError, check
from waybill.machine.states import MAX_WAIT, Backoff, Sort, State, end, join, rest, retired, work
from waybill.machine.table import Arrow, Machine

__all__ = [
    "MAX_WAIT",
    "RESUME",
    "STAY",
    "Action",
    "Arrow",
    "Backoff",
    "Document",
    "Folder",
    "Guard",
    "Keys",
    "Machine",
    "MachineError",
    "Rewrite",
    "Sort",
    "State",
    "action",
    "check",
    "end",
    "join",
    "rest",
    "retired",
    "work",
]
