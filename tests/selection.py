"""Which tests `make test ONLY=NAME` runs (`pytest --only NAME`): those of one application, and the engine's part of them.

- the tests of the application: tests/apps/NAME, and every module elsewhere that imports the application or its tests;
- the tests of the engine that read what is installed: the folders ENGINE_PART.

A test with the name of another application among its parameters belongs to that application.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from waybill.application import list_application_names

TESTS = Path(__file__).parent
ENGINE_PART = ("config", "conformance", "docs", "engine", "walks")


def select(items: list[pytest.Item], only: str) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests of the application `only`, and the others."""
    others = set(list_application_names()) - {only}
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (chosen if is_part_of(item, only, others) else left_out).append(item)
    return chosen, left_out


def is_part_of(item: pytest.Item, only: str, others: set[str]) -> bool:
    folder, *rest = item.path.relative_to(TESTS).parts
    if folder == "apps":
        return rest[0] == only
    parameters = (
        item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    )
    if any(value in others for value in parameters if isinstance(value, str)):
        return False
    return folder in ENGINE_PART or imports_application(item.path, only)


def imports_application(path: Path, name: str) -> bool:
    return re.search(rf"^(from|import) (tests|waybill)\.apps\.{name}\b", path.read_text(), re.MULTILINE) is not None


def check_name(only: str) -> None:
    if only not in (names := list_application_names()):
        raise pytest.UsageError(f"There is no application {only!r}; installed are: {', '.join(names)}.")
