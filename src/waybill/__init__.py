"""Waybill: records in explicit states, moved by steps that survive any crash.

These are the names that an application needs. Each is imported when it is first used, so that `import waybill` costs
nothing. What else an application may import is in PUBLIC_MODULES; all other modules may change at any time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waybill.application import Application
    from waybill.engine import ActionResult, Engine
    from waybill.environment import Environment
    from waybill.errors import ActionRefused, InputError, NotFound, WaybillError
    from waybill.events import Event, EventType
    from waybill.machine import (
        RESUME,
        STAY,
        Backoff,
        Document,
        LockFamily,
        Machine,
        MachineError,
        State,
        WorkingFolder,
        action,
        end,
        join,
        rest,
        retired,
        work,
    )
    from waybill.maintenance import MaintenanceContext, MaintenanceRoutine
    from waybill.objects import ObjectNotFound, Objects
    from waybill.record import (
        Conflict,
        DocumentError,
        DocumentStruct,
        Finding,
        HistoryEntry,
        ParentClosed,
        Record,
        RecordDocuments,
        RecordExists,
        RecordNotFound,
        Ref,
        Store,
        StoreError,
    )
    from waybill.runtime import Runtime
    from waybill.step import Act, Done, Fail, New, Outcome, SpawnedChildren, StepContext, StepStopped, Wait

_NAMES = {  # by module
    "application": "Application",
    "engine": "ActionResult Engine",
    "environment": "Environment",
    "events": "Event EventType",
    "machine": "RESUME STAY Backoff Document LockFamily Machine MachineError State WorkingFolder action end join rest retired work",
    "maintenance": "MaintenanceContext MaintenanceRoutine",
    "objects": "ObjectNotFound Objects",
    "record": "Conflict DocumentError DocumentStruct Finding HistoryEntry ParentClosed Record RecordDocuments RecordExists "
    "RecordNotFound Ref Store StoreError",
    "errors": "ActionRefused InputError NotFound WaybillError",
    "runtime": "Runtime",
    "step": "Act Done Fail New Outcome SpawnedChildren StepContext StepStopped Wait",
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES.items() for name in names.split()}

# below `waybill`; those of cli and http are for the commands and routes of an application, sim and testing for its tests
PUBLIC_MODULES = """
    accounts
    application
    cli.actions
    cli.command_context
    cli.downloads
    cli.followed_records
    cli.records
    cli.terminal
    client
    config
    digests
    disk_space
    engine
    environment
    errors
    events
    files.containers
    files.folders
    files.gathered_files
    files.names
    files.piecewise_uploads
    files.staged_content
    files.staged_uploads
    files.unneeded_objects
    http.authentication
    http.downloads
    http.errors
    http.foreign_protocol
    http.holds_and_sessions
    http.json_io
    http.records
    http.request_context
    http.uploads
    index
    machine
    maintenance
    manifests
    manifests.record_lists
    masking
    notify
    objects
    pages
    published_objects
    record
    rules
    runtime
    sandbox
    signed_urls
    sim.audit
    sim.invariant_checker
    sim.memory_objects
    sim.process
    sim.scenario
    sim.world
    step
    subscriptions
    testing
    text_format
    tokens
    tracing
    transfer
    views
    worker
""".split()  # noqa: SIM905 - a list of strings is harder to read

__all__ = [
    "RESUME",
    "STAY",
    "Act",
    "ActionRefused",
    "ActionResult",
    "Application",
    "Backoff",
    "Conflict",
    "Document",
    "DocumentError",
    "DocumentStruct",
    "Done",
    "Engine",
    "Environment",
    "Event",
    "EventType",
    "Fail",
    "Finding",
    "HistoryEntry",
    "InputError",
    "LockFamily",
    "Machine",
    "MachineError",
    "MaintenanceContext",
    "MaintenanceRoutine",
    "New",
    "NotFound",
    "ObjectNotFound",
    "Objects",
    "Outcome",
    "ParentClosed",
    "Record",
    "RecordDocuments",
    "RecordExists",
    "RecordNotFound",
    "Ref",
    "Runtime",
    "SpawnedChildren",
    "State",
    "StepContext",
    "StepStopped",
    "Store",
    "StoreError",
    "Wait",
    "WaybillError",
    "WorkingFolder",
    "action",
    "end",
    "join",
    "rest",
    "retired",
    "work",
]


def module_of(name: str) -> str:
    """Return the module that a name of `__all__` comes from."""
    return f"{__name__}.{_MODULE_BY_NAME[name]}"


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(module_of(name)), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
