"""A machine declares a kind of record: pure data in the words of its domain, checked when it is built.

A state has one of four types: **work** (a step runs), **join** (a work state with a built-in step: until the children
have settled), **rest** (until a person or an event acts), **end**. A fifth, **retired**, is a state that is being
removed: no longer entered, still left.

    JOB = Machine(
        name="job", plural="jobs", prefix="jid", description="One parcel on its way.",
        states=(
            work("Packing", "Sending", "Put it into a box."),
            work("Sending", "Arrived", "Hand it to the carrier.", max_tries=5),
            rest("Failed", "A step gave up; resume goes on after the last one that was done.", settled=True),
            end("Arrived", "Signed for."),
        ),
        actions=(action("resume", "Failed", RESUME, "Try again from where it stopped."),),
    )

Every arrow follows from the declaration (`iter_arrows`), and everything else from the arrows: the engine's checks, the
worker's queues, the API's routes, the page's buttons, the figures.

The words of a declaration are in declarations.py, the machine in machine.py, its checks in validation.py; all are
imported from here.
"""

from waybill.machine.declarations import (
    MAX_WAIT,
    RESUME,
    STAY,
    Action,
    ActionGuard,
    Backoff,
    DocumentWriter,
    LockFamily,
    State,
    StateType,
    WorkingFolder,
    action,
    end,
    join,
    rest,
    retired,
    work,
)
from waybill.machine.machine import Arrow, Machine
from waybill.machine.validation import MachineError, check_machine
from waybill.record import Document

__all__ = [
    "MAX_WAIT",
    "RESUME",
    "STAY",
    "Action",
    "ActionGuard",
    "Arrow",
    "Backoff",
    "Document",
    "DocumentWriter",
    "LockFamily",
    "Machine",
    "MachineError",
    "State",
    "StateType",
    "WorkingFolder",
    "action",
    "check_machine",
    "end",
    "join",
    "rest",
    "retired",
    "work",
]
