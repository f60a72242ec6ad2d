"""What a process declares and a user can look up: kinds, actions, settings, events, errors.

    registry = Registry.from_environment(environment)       the engine and the applications of this process
    registry = Registry.from_installed()                    all installed applications and the demonstration

An entry is declared once, where it belongs: a kind in its machine's table, a setting in `waybill.config` or in the struct
of an application, an event in `Application.events`, an error code in `waybill.errors` or
`Application.error_codes`. Everything that describes them reads the registry: the
reference pages of the docs (tools/docs.py), the OpenAPI document of the server, the help and the listings of the command
line.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from waybill import config
from waybill.application import Application, EventType, load_applications
from waybill.config import OTHER_VARIABLES, SETTINGS
from waybill.environment import Environment
from waybill.errors import ERROR_CODES, ErrorCode
from waybill.machine import Action, Machine


class SettingEntry(NamedTuple):
    """A setting as a user sees it. `variable` is empty where only the file can set it."""

    name: str
    variable: str
    default: str
    description: str


@dataclass(frozen=True)
class Registry:
    applications: tuple[Application, ...]
    machines: tuple[Machine, ...]  # by name

    @classmethod
    def from_environment(cls, environment: Environment) -> Registry:
        machines = environment.machines
        return cls(environment.applications, tuple(machines[name] for name in sorted(machines)))

    @classmethod
    def from_installed(cls, applications: Iterable[str] | None = None) -> Registry:
        """With default settings: none are read. `applications`: these, as module:object, instead of those installed."""
        chosen = None if applications is None else load_applications(applications)
        nowhere = config.load(env={}, overrides={"data": Path("no such folder").absolute()})
        return cls.from_environment(Environment.from_config(nowhere, chosen, demo=True))

    @property
    def actions(self) -> Iterator[tuple[Machine, Action]]:
        return ((machine, action) for machine in self.machines for action in machine.actions)

    @property
    def events(self) -> tuple[EventType, ...]:
        return tuple(event for application in self.applications for event in application.events)

    @property
    def errors(self) -> dict[str, ErrorCode]:
        """By code."""
        own = {code: row for each in self.applications for code, row in each.error_codes.items()}
        return dict(sorted({**ERROR_CODES, **own}.items()))

    @property
    def settings(self) -> tuple[SettingEntry, ...]:
        """Those of the engine."""
        return tuple(SettingEntry(s.name, s.variable, s.default, s.description) for s in SETTINGS)

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that are no settings, with what each is."""
        found = dict(OTHER_VARIABLES)
        for application in self.applications:
            found |= application.variables
        return found


def list_application_settings(application: Application) -> list[SettingEntry]:
    """The settings of [app.NAME], from the fields of the struct and their comments."""
    return [] if application.settings is None else list(_list_fields(application.settings, ""))


def _list_fields(struct: Any, prefix: str) -> Iterator[SettingEntry]:
    source = inspect.getsource(struct)  # a comment is behind its field, or on the line above it
    comments = {name: text for text, name in re.findall(r"^    # (.*)\n    (\w+): [^#\n]*$", source, re.MULTILINE)}
    comments |= dict(re.findall(r"^    (\w+): [^#\n]*# (.*)$", source, re.MULTILINE))
    for field in msgspec.structs.fields(struct):
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        if isinstance(default, msgspec.Struct):
            yield from _list_fields(type(default), f"{prefix}{field.name}.")
            continue
        if field.name not in comments:
            raise TypeError(f"{struct.__name__}.{field.name} has no comment that says what it is.")
        text = comments[field.name].rstrip(".")
        yield SettingEntry(f"{prefix}{field.name}", "", format_default(default), f"{text[0].upper()}{text[1:]}.")


def format_default(value: Any) -> str:
    if value is None or value in ("", ()):
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
