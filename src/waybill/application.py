"""What an application brings: its machines, and, if it likes, routes, commands, duties and a demonstration.

An application is one object of this class, announced by its package in the entry-point group `waybill.applications`:

    [project.entry-points."waybill.applications"]
    parcels = "parcels:APPLICATION"

`installed` finds them all; the setting `applications` chooses among them, or names one that is not installed as
module:object.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waybill.machine import Machine

if TYPE_CHECKING:
    from msgspec import Struct
    from typer import Typer

    from waybill.depot import Depot
    from waybill.engine import Engine

GROUP = "waybill.applications"


class BadApplication(Exception):
    """An application cannot be loaded; the text names it and says why."""


@dataclass(frozen=True)
class Application:
    name: str
    doc: str  # one sentence
    machines: tuple[Machine, ...]  # as they are with the usual settings
    # as its settings, [app.NAME], make them; BadApplication
    shaped: Callable[[Mapping[str, Any]], tuple[Machine, ...]] | None = None
    # what its steps and duties work with; made once in each process, closed by its `close`
    outfit: Callable[[Depot], Any] | None = None
    routes: Callable[[Depot], Any] | None = None  # a fastapi.APIRouter or a list of them
    commands: Callable[[], Typer] | None = None  # added to the command line as `waybill NAME ...`
    demo: Callable[[Depot, Engine], None] | None = None  # makes records to look at; safe to repeat
    duties: tuple[Any, ...] = ()
    sql_only: bool = False  # it can have more records than a ZooKeeper tree should carry
    catalogues: bool = False  # it keeps some in the index, which is tried when a process starts
    # the shape of [app.NAME]: fields with defaults, each with a comment that says what it is
    settings: type[Struct] | None = None
    # of the environment, with what each is: for what is secret
    variables: Mapping[str, str] = field(default_factory=dict)

    def tables(self, settings: Mapping[str, Any]) -> tuple[Machine, ...]:
        return self.shaped(settings) if self.shaped is not None else self.machines


def names() -> list[str]:
    """The applications that are installed, whether they can be loaded or not."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def installed(names: Iterable[str] | None = None) -> list[Application]:
    """The applications of these names, or all that are installed, in the order of their names."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if names is None:
        return [_load(found[name]) for name in sorted(found)]
    chosen: list[Application] = []
    for name in names:
        if ":" in name:
            chosen.append(_named(name))
        elif name in found:
            chosen.append(_load(found[name]))
        else:
            there = ", ".join(sorted(found)) or "none"
            raise BadApplication(
                f"There is no application {name!r}; installed are: {there}. One that is not installed is named as module:object."
            )
    return chosen


def _load(entry: EntryPoint) -> Application:
    package = entry.dist.name if entry.dist is not None else "an unknown package"
    return _loaded(f"{entry.name} (of {package})", entry.load)


def _named(name: str) -> Application:
    module, _, attribute = name.partition(":")

    def load() -> Any:
        # A console script does not look into the current folder, where the module of a person who tries something out
        # lies.
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.append(here)
        return getattr(importlib.import_module(module), attribute)

    return _loaded(name, load)


def _loaded(name: str, load: Callable[[], Any]) -> Application:
    try:
        application = load()
    except Exception as error:  # whatever a module of others raises when it is imported
        raise BadApplication(
            f"The application {name} cannot be loaded: {type(error).__name__}: {error}. "
            "Mend or uninstall it, or leave it out with the setting `applications`."
        ) from error
    if not isinstance(application, Application):
        raise BadApplication(
            f"The application {name} is a {type(application).__name__}; it must be a waybill.application.Application."
        )
    return application
