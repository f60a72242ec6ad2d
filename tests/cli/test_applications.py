"""Applications on the command line: their commands, one that cannot be loaded, and their settings."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Waybill

GOOD = """
import msgspec
from waybill.application import Application, InputError
from waybill.machine import Machine, end, work

class Oven(msgspec.Struct, frozen=True):
    heat: int = 180  # degrees
    link: str = ""  # to its panel

class Settings(msgspec.Struct, frozen=True):
    name: str = "corner"  # what it is called
    oven: Oven = Oven()

LOAF = Machine(
    name="loaf", plural="loaves", prefix="loaf", description="Bread.",
    states=(work("Baking", to="Baked", description="Hot.", on_fail=None), end("Baked", description="Done.")),
)

def build_machines(table):
    try:
        msgspec.convert(dict(table), Settings)
    except msgspec.ValidationError as error:
        raise InputError(f"The bakery's settings cannot be used: {error}") from None
    return (LOAF,)

APP = Application(
    "bakery", "Bread.", (LOAF,), machines_for=build_machines, settings=Settings,
    variables={"WAYBILL_BAKERY_KEY": "Opens the door."},
)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    info = tmp_path / "tried-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tried\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[waybill.applications]\nbakery = tried_bakery:APP\nbroken = tried_broken:APP\n"
    )
    (tmp_path / "tried_bakery.py").write_text(GOOD)
    (tmp_path / "tried_broken.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "bakery")
    yield tmp_path
    for name in ("tried_bakery", "tried_broken", "tried_mill"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("words", [(), ("bake", "--loaves", "3"), ("--help",)])
def test_whoever_calls_a_broken_application_hears_what_is_wrong(
    place: Path, bare: Waybill, words: tuple[str, ...]
) -> None:
    result = bare("broken", *words)
    assert result.code == 2
    assert "The application broken (of tried) cannot be loaded: RuntimeError: no licence." in result.err


def test_a_broken_application_takes_neither_the_help_nor_the_others_with_it(place: Path, bare: Waybill) -> None:
    result = bare("--help")
    assert result.code == 0
    assert "broken" not in result.out


MILL = """
import typer
from waybill.application import Application
from waybill.cli.command_context import CommandContext, command

def grind(context: CommandContext) -> None:
    "Grind flour."
    context.print_line("ground")

def commands() -> typer.Typer:
    app = typer.Typer(name="mill")
    command(app, examples=("waybill mill grind",))(grind)
    command(app, "grind-twice", examples=("waybill mill grind-twice",))(grind)
    return app

APP = Application("mill", "Flour.", (), commands=commands)
"""


@pytest.mark.parametrize("where", ["environment", "file"])
def test_an_application_that_is_not_installed_has_its_commands_too(
    place: Path, data: Path, bare: Waybill, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    (place / "tried_mill.py").write_text(MILL)
    if where == "environment":
        monkeypatch.setenv("WAYBILL_APPLICATIONS", "tried_mill:APP")
    else:
        monkeypatch.delenv("WAYBILL_APPLICATIONS")
        data.mkdir()
        (data / "waybill.toml").write_text('applications = ["tried_mill:APP"]\n')
    assert "Flour." in bare("--help").out
    assert bare("mill", "grind").out == "ground\n"


def test_one_that_is_not_installed_and_cannot_be_loaded_says_so(
    place: Path, bare: Waybill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "tried_broken:APP")
    assert bare("--help").code == 0
    result = bare("tried_broken", "grind")
    assert result.code == 2
    assert "The application tried_broken:APP cannot be loaded: RuntimeError: no licence." in result.err


def test_config_shows_the_settings_of_applications_and_knows_their_variables(
    place: Path, data: Path, waybill: Waybill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYBILL_BAKERY_KEY", "s3cret")
    monkeypatch.setenv("WAYBILL_BAKREY_KEY", "misspelt")
    (data / "waybill.toml").write_text('[app.bakery.oven]\nheat = 220\nlink = "https://me:pw@oven.example.org"\n')
    shown = waybill("config", "--json").json
    assert shown["settings"]["app.bakery.oven.heat"] == {"value": 220, "from": "file"}
    assert shown["settings"]["app.bakery.name"] == {"value": "corner", "from": "default"}
    assert shown["settings"]["app.bakery.oven.link"]["value"] == "https://me:***@oven.example.org"
    assert shown["unknown_variables"] == ["WAYBILL_BAKREY_KEY"]


def test_config_shows_settings_that_an_application_cannot_use(place: Path, data: Path, waybill: Waybill) -> None:
    (data / "waybill.toml").write_text('[app.bakery.oven]\nheat = "very"\n')
    result = waybill("config", "--json")
    assert result.code == 0
    assert result.json["settings"]["app.bakery.oven.heat"] == {"value": "very", "from": "file"}
    assert "The bakery's settings cannot be used" in result.json["application_error"]
