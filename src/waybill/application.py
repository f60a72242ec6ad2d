"""What an application provides: its machines and, optionally, routes, pages, commands, maintenance routines and a
demonstration.

An application is one `Application` object, announced by its package in the entry-point group `waybill.applications`:

    [project.entry-points."waybill.applications"]
    parcels = "parcels:APPLICATION"

`load_applications` finds them all; the setting `applications` chooses among them, or names one that is not installed
as module:object.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waybill.errors import ErrorCode, InputError, declare_error_codes
from waybill.events import EventType as EventType
from waybill.machine import Machine

if TYPE_CHECKING:
    from msgspec import Struct
    from typer import Typer

    from waybill.engine import Engine
    from waybill.environment import Environment
    from waybill.published_objects import ObjectLister
    from waybill.record import Store
    from waybill.subscriptions import EventHandler
    from waybill.tracing import Tracer

ENTRY_POINT_GROUP = "waybill.applications"


@dataclass(frozen=True)
class Application:
    """What an application provides."""

    name: str
    description: str  # one sentence
    machines: tuple[Machine, ...]  # with the default settings
    # the machines for the settings of [app.NAME]; raises InputError
    machines_for: Callable[[Mapping[str, Any]], tuple[Machine, ...]] | None = None
    # what its steps and maintenance routines use; made once in each process, closed by its `close`
    resources: Callable[[Environment], Any] | None = None
    routes: Callable[[Environment], Any] | None = None  # a fastapi.APIRouter or a list of them
    # its pages and their entries in the navigation: a waybill.pages.ApplicationPages
    pages: Callable[[Environment], Any] | None = None
    # what `waybill trace` asks about its things; made for each trace
    tracer: Callable[[Environment, Store], Tracer] | None = None
    # the objects of its things, for other applications; made once in each process
    published_objects: Callable[[Environment], ObjectLister] | None = None
    commands: Callable[[], Typer] | None = None  # added to the command line as `waybill NAME ...`
    demo: Callable[[Environment, Engine], None] | None = None  # creates records to look at; safe to repeat
    maintenance: tuple[Any, ...] = ()
    events: tuple[EventType, ...] = ()  # those that its steps send
    # its handlers of events, its own and those of others, by type (* for any part of a name): waybill.subscriptions
    subscribes: Mapping[str, EventHandler] = field(default_factory=dict)
    # module:object of benchmarks: parts by name, each a function of an Effort that yields Figures; `python -m benchmarks`
    # of a checkout finds them
    benchmarks: str = ""
    # it runs commands of users in the sandbox: a process that starts where there is none warns of it
    runs_commands: bool = False
    sql_only: bool = False  # it can have more records than a ZooKeeper tree should hold
    has_catalogues: bool = False  # it has catalogues in the index, which is checked when a process starts
    # the struct of [app.NAME]: fields with defaults, each with a comment that says what it is
    settings: type[Struct] | None = None
    # environment variables for secrets, each with what it is
    variables: Mapping[str, str] = field(default_factory=dict)
    # the codes of its errors, beside those of waybill.errors
    error_codes: Mapping[str, ErrorCode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        declare_error_codes(self.error_codes)

    def build_machines(self, settings: Mapping[str, Any]) -> tuple[Machine, ...]:
        return self.machines_for(settings) if self.machines_for is not None else self.machines


def list_application_names() -> list[str]:
    """Return the applications that are installed, whether they can be loaded or not."""
    return sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})


def load_applications(names: Iterable[str] | None = None) -> list[Application]:
    """Return the applications of these names, or all that are installed, in the order of their names."""
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if names is None:
        return [_load_entry_point(found[name]) for name in sorted(found)]
    chosen: list[Application] = []
    for name in names:
        if ":" in name:
            chosen.append(_load_by_path(name))
        elif name in found:
            chosen.append(_load_entry_point(found[name]))
        else:
            installed = ", ".join(sorted(found)) or "none"
            raise InputError(
                f"There is no application {name!r}; installed are: {installed}. One that is not installed is named as module:object.",
                code="bad-application",
            )
    return chosen


def _load_entry_point(entry: EntryPoint) -> Application:
    package = entry.dist.name if entry.dist is not None else "an unknown package"
    return _load_and_check(f"{entry.name} (of {package})", entry.load)


def _load_by_path(name: str) -> Application:
    module, _, attribute = name.partition(":")

    def load() -> Any:
        # A console script does not search the current folder, where the module of somebody who tries something is.
        folder = str(Path.cwd())
        if folder not in sys.path:
            sys.path.append(folder)
        return getattr(importlib.import_module(module), attribute)

    return _load_and_check(name, load)


def _load_and_check(name: str, load: Callable[[], Any]) -> Application:
    try:
        application = load()
    except Exception as error:  # a foreign module may raise anything when it is imported
        raise InputError(
            f"The application {name} cannot be loaded: {type(error).__name__}: {error}. "
            "Repair or uninstall it, or leave it out with the setting `applications`.",
            code="bad-application",
        ) from error
    if not isinstance(application, Application):
        raise InputError(
            f"The application {name} is a {type(application).__name__}; it must be a waybill.application.Application.",
            code="bad-application",
        )
    return application
