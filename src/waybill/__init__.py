"""Waybill: records in explicit states, moved by steps that survive any crash.

These are the names that an application needs. Each is imported when it is first used, so that `import waybill` costs
nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waybill.application import Application, EventType
    from waybill.engine import ActionResult, Engine
    from waybill.errors import ActionRefused, InputError, NotFound, WaybillError
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
    from waybill.rules import Machines
    from waybill.runtime import Runtime
    from waybill.step import Done, Fail, New, Outcome, SpawnedChildren, StepContext, StepStopped, Wait
    from waybill.stores import open_store

_MODULES = {
    "application": ("Application", "EventType"),
    "engine": ("ActionResult", "Engine"),
    "errors": ("ActionRefused", "InputError", "NotFound", "WaybillError"),
    "machine": ("RESUME", "STAY", "Backoff", "Document", "LockFamily", "Machine", "MachineError", "action", "end", "join", "rest",
                "retired", "work"),
    "record": ("DocumentError", "DocumentStruct", "Record", "RecordDocuments", "Ref", "Store", "StoreError"),
    "rules": ("Machines",),
    "runtime": ("Runtime",),
    "step": ("Done", "Fail", "New", "Outcome", "SpawnedChildren", "StepContext", "StepStopped", "Wait"),
    "stores": ("open_store",),
}  # fmt: skip
_MODULE_BY_NAME = {name: module for module, names in _MODULES.items() for name in names}

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
    "EventType",
    "Fail",
    "InputError",
    "LockFamily",
    "Machine",
    "MachineError",
    "Machines",
    "New",
    "NotFound",
    "Outcome",
    "Record",
    "RecordDocuments",
    "Ref",
    "Runtime",
    "SpawnedChildren",
    "StepContext",
    "StepStopped",
    "Store",
    "StoreError",
    "Wait",
    "WaybillError",
    "action",
    "end",
    "join",
    "open_store",
    "rest",
    "retired",
    "work",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_BY_NAME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
