"""Maintenance routines of applications: doctor continues when one fails, and none replaces another."""

import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import ANY

import pytest

from tests.cli.conftest import Waybill
from waybill.application import Application
from waybill.config import load
from waybill.environment import Environment
from waybill.errors import InputError
from waybill.record import Finding, StoreUnavailable

MILL = """
from waybill.application import Application
from waybill.record import Conflict, Finding, StoreUnavailable

class Routine:
    description, poll_interval, per_host, has_routine_findings = "Checks.", 60.0, False, False

    def __init__(self, name):
        self.name = name

    def repair(self, context, finding):
        return True

class Failing(Routine):
    def check(self, context):
        yield Finding("moths", "sack 1", "Moths are in it.", "shake it")
        raise KeyError("sack 2")

class Unreadable(Routine):
    def check(self, context):
        raise PermissionError(13, "Permission denied", "/srv/mill")

class FailingRepair(Routine):
    def check(self, context):
        return iter([Finding("rats", "cellar", "Rats are there.", "call the cat")])

    def repair(self, context, finding):
        raise Conflict("The cat has moved on.")

class Finds(Routine):
    def check(self, context):
        return iter([Finding("mice", "attic", "Mice are there.", "call the cat")])

class WithoutStore(Routine):
    def check(self, context):
        raise StoreUnavailable("The store is unavailable.")

APP = Application("mill", "Mills.", (), maintenance=(
    Failing("mill-moths"), Unreadable("mill-walls"), FailingRepair("mill-rats"), Finds("mill-mice"),
))
GONE = Application("mill", "Mills.", (), maintenance=(WithoutStore("mill-away"),))
"""


@pytest.fixture
def mill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "tried_routines.py").write_text(MILL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "tried_routines:APP")
    yield
    sys.modules.pop("tried_routines", None)


def test_doctor_continues_when_a_routine_fails(mill: None, waybill: Waybill) -> None:
    looked = waybill("doctor", "--json")
    assert looked.code == 1
    fields = {(line["rule"], line["where"]): line["problem"] for line in looked.lines[:-1]}
    assert fields == {
        ("moths", "sack 1"): "Moths are in it.",
        ("check failed", "mill-moths"): "It was not checked to the end: KeyError: 'sack 2'.",
        ("check failed", "mill-walls"): "It was not checked to the end: /srv/mill: Permission denied.",
        ("rats", "cellar"): "Rats are there.",
        ("mice", "attic"): "Mice are there.",
    }
    assert looked.lines[-1] == {"found": 5, "repaired": 0, "remark": None, "sandbox": ANY}


def test_doctor_repairs_the_others_when_one_repair_fails(mill: None, waybill: Waybill) -> None:
    mended = waybill("doctor", "--fix", "--json")
    assert mended.code == 1
    assert {(line["rule"], line["repaired"]) for line in mended.lines[:-1]} == {
        ("moths", True),
        ("check failed", False),
        ("rats", False),
        ("mice", True),
    }
    rats = next(line for line in mended.lines[:-1] if line["rule"] == "rats")
    assert rats["problem"] == "Rats are there. The repair failed: The cat has moved on."


def test_doctor_ends_when_the_store_is_unavailable(
    mill: None, waybill: Waybill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "tried_routines:GONE")
    looked = waybill("doctor")
    assert (looked.code, looked.err) == (5, "The store is unavailable.\n")


class NamedRoutine:
    description, poll_interval, per_host, has_routine_findings = "Checks.", 60.0, False, False

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, context: object) -> Iterator[Finding]:
        raise StoreUnavailable

    def repair(self, context: object, finding: Finding) -> bool:
        raise StoreUnavailable


def application(name: str, *routines: str) -> Application:
    return Application(name, "Tried.", (), maintenance=tuple(NamedRoutine(each) for each in routines))


@pytest.mark.parametrize(
    ("applications", "sentence"),
    [
        (
            [application("mill", "idle-parents")],
            "The maintenance routine idle-parents of the application mill has the name of a routine of Waybill itself; "
            "call it mill-idle-parents.",
        ),
        (
            [application("mill", "audit"), application("bakery", "audit")],
            "The maintenance routine audit of the application bakery has the name of a routine of the application mill; "
            "call it bakery-audit.",
        ),
        ([application("mill", "audit", "audit")], "has the name of a routine of the application mill"),
        (
            [application("mill", "audit@home")],
            "The maintenance routine 'audit@home' of the application mill needs another name: no @ in it.",
        ),
        (
            [application("mill", "an audit")],
            "The maintenance routine 'an audit' of the application mill needs another name: 'an audit' is no id",
        ),
        (
            [application("mill"), application("mill")],
            "Two applications are called mill; leave one out with the setting `applications`.",
        ),
    ],
)
def test_no_routine_or_application_replaces_another(
    tmp_path: Path, applications: list[Application], sentence: str
) -> None:
    with pytest.raises(InputError) as refusal:
        Environment.from_config(load(env={}, overrides={"data": tmp_path}), applications)
    assert sentence in str(refusal.value)
