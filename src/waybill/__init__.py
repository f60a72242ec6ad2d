"""Waybill: records in explicit states, moved by steps that survive any crash.

These are the names that an application needs.
"""

from waybill.application import Application
from waybill.engine import Acted, Engine
from waybill.machine import (
    RESUME,
    STAY,
    Backoff,
    Document,
    Keys,
    Machine,
    MachineError,
    action,
    end,
    join,
    rest,
    retired,
    work,
)
from waybill.record import Docs, Record, Ref, Store, StoreError
from waybill.rules import Machines, Refused, UnknownKind
from waybill.step import Context, Done, Fail, New, Outcome, Stopped, Wait
from waybill.stores import open_store

__all__ = [
    "RESUME",
    "STAY",
    "Acted",
    "Application",
    "Backoff",
    "Context",
    "Docs",
    "Document",
    "Done",
    "Engine",
    "Fail",
    "Keys",
    "Machine",
    "MachineError",
    "Machines",
    "New",
    "Outcome",
    "Record",
    "Ref",
    "Refused",
    "Stopped",
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
