"""Waybill: records in explicit states, moved by steps that survive any crash.

These are the names that an application needs.
"""

from waybill.application import Application
from waybill.engine import ActionResult, Engine
from waybill.machine import (
    RESUME,
    STAY,
    Backoff,
    Document,
    LockFamily,
    Machine,
    MachineError,
    action,
    end,
    join,
    rest,
    retired,
    work,
)
from waybill.record import DocumentError, DocumentStruct, Record, RecordDocuments, Ref, Store, StoreError
from waybill.rules import ActionRefused, Machines, UnknownKind
from waybill.step import Done, Fail, New, Outcome, SpawnedChildren, StepContext, StepStopped, Wait
from waybill.stores import open_store

__all__ = [
    "RESUME",
    "STAY",
    "ActionRefused",
    "ActionResult",
    "Application",
    "Backoff",
    "Document",
    "DocumentError",
    "DocumentStruct",
    "Done",
    "Engine",
    "Fail",
    "LockFamily",
    "Machine",
    "MachineError",
    "Machines",
    "New",
    "Outcome",
    "Record",
    "RecordDocuments",
    "Ref",
    "SpawnedChildren",
    "StepContext",
    "StepStopped",
    "Store",
    "StoreError",
    "UnknownKind",
    "Wait",
    "action",
    "end",
    "join",
    "open_store",
    "rest",
    "retired",
    "work",
]
