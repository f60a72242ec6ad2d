"""Duties of applications: doctor looks on when one stumbles, and none takes the place of another."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Waybill
from waybill.application import Application, BadApplication
from waybill.config import load
from waybill.depot import Depot
from waybill.record import Finding, Unavailable

MILL = """
from waybill.application import Application
from waybill.record import Conflict, Finding, Unavailable

class Duty:
    doc, every, per_host, routine = "Looks.", 60.0, False, False

    def __init__(self, name):
        self.name = name

    def mend(self, hand, finding):
        return True

class Stumbles(Duty):
    def check(self, hand):
        yield Finding("moths", "sack 1", "Moths are in it.", "shake it")
        raise KeyError("sack 2")

class Unreadable(Duty):
    def check(self, hand):
        raise PermissionError(13, "Permission denied", "/srv/mill")

class Mends(Duty):
    def check(self, hand):
        return iter([Finding("rats", "cellar", "Rats are there.", "call the cat")])

    def mend(self, hand, finding):
        raise Conflict("The cat has moved on.")

class Finds(Duty):
    def check(self, hand):
        return iter([Finding("mice", "attic", "Mice are there.", "call the cat")])

class Away(Duty):
    def check(self, hand):
        raise Unavailable("The store is away.")

APP = Application("mill", "Mills.", (), duties=(Stumbles("mill-moths"), Unreadable("mill-walls"), Mends("mill-rats"), Finds("mill-mice")))
GONE = Application("mill", "Mills.", (), duties=(Away("mill-away"),))
"""


@pytest.fixture
def mill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "tried_duties.py").write_text(MILL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "tried_duties:APP")
    yield
    sys.modules.pop("tried_duties", None)


def test_doctor_looks_on_where_a_duty_stumbles(mill: None, waybill: Waybill) -> None:
    looked = waybill("doctor", "--json")
    assert looked.code == 1
    said = {(line["rule"], line["where"]): line["problem"] for line in looked.lines[:-1]}
    assert said == {
        ("moths", "sack 1"): "Moths are in it.",
        ("not looked at", "mill-moths"): "Not all of it was looked at: KeyError: 'sack 2'.",
        (
            "not looked at",
            "mill-walls",
        ): "Not all of it was looked at: /srv/mill: Permission denied; see who may read and write there, "
        "or choose another folder with --data.",
        ("rats", "cellar"): "Rats are there.",
        ("mice", "attic"): "Mice are there.",
    }
    assert looked.lines[-1] == {"found": 5, "mended": 0, "remark": None}


def test_doctor_mends_the_others_where_one_cannot_be_mended(mill: None, waybill: Waybill) -> None:
    mended = waybill("doctor", "--fix", "--json")
    assert mended.code == 1
    assert {(line["rule"], line["mended"]) for line in mended.lines[:-1]} == {
        ("moths", True),
        ("not looked at", False),
        ("rats", False),
        ("mice", True),
    }
    rats = next(line for line in mended.lines[:-1] if line["rule"] == "rats")
    assert rats["problem"] == "Rats are there. Mending it failed: The cat has moved on."


def test_doctor_ends_when_the_store_is_away(mill: None, waybill: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "tried_duties:GONE")
    looked = waybill("doctor")
    assert (looked.code, looked.err) == (5, "The store is away.\n")


class Named:
    doc, every, per_host, routine = "Looks.", 60.0, False, False

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, hand: object) -> Iterator[Finding]:
        raise Unavailable

    def mend(self, hand: object, finding: Finding) -> bool:
        raise Unavailable


def application(name: str, *duties: str) -> Application:
    return Application(name, "Tried.", (), duties=tuple(Named(duty) for duty in duties))


@pytest.mark.parametrize(
    ("applications", "sentence"),
    [
        (
            [application("mill", "joins")],
            "The duty joins of the application mill has the name of a duty of Waybill itself; call it mill-joins.",
        ),
        (
            [application("mill", "audit"), application("bakery", "audit")],
            "The duty audit of the application bakery has the name of a duty of the application mill; call it bakery-audit.",
        ),
        ([application("mill", "audit", "audit")], "has the name of a duty of the application mill"),
        (
            [application("mill", "audit@home")],
            "The duty 'audit@home' of the application mill needs another name: no @ in it.",
        ),
        (
            [application("mill", "an audit")],
            "The duty 'an audit' of the application mill needs another name: 'an audit' is no id",
        ),
        (
            [application("mill"), application("mill")],
            "Two applications are called mill; leave one out with the setting `applications`.",
        ),
    ],
)
def test_no_duty_or_application_takes_the_place_of_another(
    tmp_path: Path, applications: list[Application], sentence: str
) -> None:
    with pytest.raises(BadApplication) as refusal:
        Depot.of(load(env={}, overrides={"data": tmp_path}), applications)
    assert sentence in str(refusal.value)
