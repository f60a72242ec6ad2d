"""Errors: few classes, each with a code; each code in the table, and in use; no text is compared."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import waybill
from waybill.errors import ERROR_CODES, ErrorCode, InputError, NotFound, WaybillError, declare_error_codes
from waybill.registry import Registry

SOURCE = Path(waybill.__file__).parent
MAX_CLASSES, MAX_OF_APPLICATION = 48, 16  # of the engine, and of each application
# whose names a server of ours or a library sends: their texts come from others
FOREIGN_TEXTS = {"stores/postgres/errors.py", "objects/s3_bucket.py"}


def list_classes() -> list[type[Exception]]:
    found: dict[str, type[Exception]] = {}
    for module in pkgutil.walk_packages([str(SOURCE)], "waybill."):
        if module.name.endswith("__main__"):
            continue
        for each in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(each) and issubclass(each, Exception) and each.__module__.startswith("waybill."):
                found[f"{each.__module__}.{each.__qualname__}"] = each
    return list(found.values())


def read_modules() -> Iterator[tuple[str, ast.Module]]:
    for path in SOURCE.rglob("*.py"):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text("utf-8"))


def list_codes_in_use() -> set[str]:
    """The codes of classes, and those that are given when an error is raised."""
    codes = {each.code for each in list_classes() if issubclass(each, WaybillError)}
    for name, module in read_modules():
        if name != "errors.py":
            codes |= {n.value for n in ast.walk(module) if isinstance(n, ast.Constant) and n.value in ERROR_CODES}
    return codes


def test_every_error_has_one_base_and_a_code_of_the_table() -> None:
    classes = list_classes()
    codes = Registry.from_installed().errors
    assert [each.__name__ for each in classes if not issubclass(each, WaybillError)] == []
    assert [each.__name__ for each in classes if issubclass(each, WaybillError) and each.code not in codes] == []
    by_room: dict[str, list[str]] = {}
    for each in classes:
        parts = each.__module__.split(".")
        by_room.setdefault(parts[2] if parts[1] == "apps" else "", []).append(each.__name__)
    assert len(by_room.pop("")) <= MAX_CLASSES
    assert {room: names for room, names in by_room.items() if len(names) > MAX_OF_APPLICATION} == {}


def test_every_code_that_is_given_is_in_the_table() -> None:
    codes = Registry.from_installed().errors
    unknown = []
    for name, module in read_modules():
        for node in ast.walk(module):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func).rpartition(".")[2]
            given = [k.value for k in node.keywords if k.arg == "code"]
            if called in ("HttpProblem", "make_problem", "make_error_view"):
                given += node.args[:1]
            elif not called.endswith(("Error", "Found", "Refused", "Deposit")):
                continue
            given = [
                value for value in given if not isinstance(value, ast.Subscript)
            ]  # an error that another process raised
            unknown += [
                f"{name}:{node.lineno} {each.value!r}"
                for value in given
                for each in ast.walk(value)
                if isinstance(each, ast.Constant) and each.value and each.value not in codes
            ]
    assert unknown == []


def test_every_code_is_in_use() -> None:
    assert set(Registry.from_installed().errors) - list_codes_in_use() == set()


def test_every_code_says_what_it_means_and_what_to_do() -> None:
    for code, row in Registry.from_installed().errors.items():
        assert row.description.endswith("."), code
        assert row.hint or row.status == 500, f"{code}: a client is not told what to do"
        assert not row.retry_after or row.status == 500 or row.hint, code


def test_no_text_of_an_error_is_compared() -> None:
    """Whoever must tell errors apart reads their class or code."""
    compared = []
    for name, module in read_modules():
        if name in FOREIGN_TEXTS or "conformance" in name:
            continue
        for handler in ast.walk(module):
            if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
                continue
            texts = (f"str({handler.name})", f"{handler.name}.args", f"{handler.name}.message")
            compared += [
                f"{name}:{node.lineno}"
                for node in ast.walk(handler)
                if isinstance(node, ast.Compare) and any(text in ast.unparse(node) for text in texts)
            ]
    assert compared == []


def test_the_text_is_the_given_one_or_that_of_the_code_or_the_class() -> None:
    assert str(NotFound("There is no ship.")) == "There is no ship."
    assert str(NotFound()) == "What was named does not exist."
    assert str(InputError(code="bad-page-token")) == ERROR_CODES["bad-page-token"].description
    assert (NotFound().code, NotFound(code="unknown-kind").code) == ("unknown-name", "unknown-kind")


def test_an_application_cannot_change_a_code() -> None:
    declare_error_codes({"refused": ERROR_CODES["refused"]})
    with pytest.raises(ValueError, match="declared already: refused"):
        declare_error_codes({"refused": ErrorCode(500, 1, "Something else.")})
