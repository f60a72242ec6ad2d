"""The settings of applications, [app.NAME], as people are shown them: every one with its value, and whether the file
says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from waybill.application import Application
from waybill.config import masked


def effective(
    applications: Iterable[Application], given: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, Any, str]]:
    """Name, value and origin of every setting of every application that declares its own."""
    for application in applications:
        if application.settings is not None:
            said = given.get(application.name, {})
            whole = msgspec.to_builtins(msgspec.convert(dict(said), application.settings))
            yield from _flat(f"app.{application.name}", whole, said)


def _flat(above: str, whole: Mapping[str, Any], said: Any) -> Iterator[tuple[str, Any, str]]:
    for name, value in whole.items():
        inner = said.get(name) if isinstance(said, Mapping) else None
        if isinstance(value, Mapping):
            yield from _flat(f"{above}.{name}", value, inner)
        else:
            shown = masked(value) if isinstance(value, str) else list(value) if isinstance(value, tuple) else value
            yield f"{above}.{name}", shown, "default" if inner is None else "file"


def as_written(given: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Any, str]]:
    """What the file says of applications, whether they can be loaded or not."""
    for name, said in given.items():
        yield from _flat(f"app.{name}", said, said)


def variables(applications: Iterable[Application]) -> set[str]:
    """The variables of the environment that applications read."""
    return {name for application in applications for name in application.variables}
