"""A machine declares a kind of record: pure data in the words of its domain, checked when it is built.

A state has one of four types: **work** (a step runs), **join** (a work state with a built-in step: until the children
have settled), **rest** (until a person or an event acts), **end**. A fifth, **retired**, is a state that is being
removed: no longer entered, still left.

    JOB = Machine(
        name="job", plural="jobs", prefix="jid", description="One parcel on its way.", steps=__name__,
        states=(
            work("Packing", to="Sending", description="Put it into a box."),
            work("Sending", to="Arrived", description="Hand it to the carrier.", max_tries=5),
            end("Arrived", description="Signed for."),
        ),
    )

    def packing(job: Record, ctx: StepContext) -> Outcome: ...

What is usual is there without a word: a step that gives up leads to Failed, from which `resume` continues.
Every arrow follows from the declaration (`iter_arrows`), and everything else from the arrows: the engine's checks, the
worker's queues, the API's routes, the page's buttons, the figures.

The words of a declaration are in declarations.py, the machine in machine.py, its checks in validation.py; all are
imported from here.
"""

from waybill.machine.declarations import (
    FAILED,
    MAX_WAIT,
    RESUME,
    STAY,
    UPKEEP_POOL,
    WORK_POOL,
    Action,
    ActionGuard,
    Backoff,
    DocumentWriter,
    LockFamily,
    State,
    StateType,
    WorkingFolder,
    action,
    add_failed_state,
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
    "FAILED",
    "MAX_WAIT",
    "RESUME",
    "STAY",
    "UPKEEP_POOL",
    "WORK_POOL",
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
    "add_failed_state",
    "check_machine",
    "end",
    "join",
    "rest",
    "retired",
    "work",
]
