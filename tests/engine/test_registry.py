"""The registry has what the engine and the applications declare; the docs, the API and the help are made from it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.main import get_command

from waybill import config
from waybill.application import Application, EventType
from waybill.cli.app import build_app
from waybill.config import SETTINGS
from waybill.environment import Environment
from waybill.http import create_app
from waybill.machine import Machine, action, end, rest
from waybill.registry import Registry, list_application_settings

BAKED = EventType("org.example.loaf.baked", "A loaf is baked.")
LOAF = Machine(
    name="loaf",
    plural="loaves",
    prefix="lf",
    description="Bread.",
    states=(rest("Baked", description="Fresh."), end("Eaten", description="Gone.")),
    actions=(action("eat", "Baked", "Eaten", "Eat it."),),
)


class Oven(msgspec.Struct, frozen=True):
    heat: float = 180.0  # degrees


class Settings(msgspec.Struct, frozen=True):
    # the sign over the door
    name: str = ""
    oven: Oven = Oven()


class Undescribed(msgspec.Struct, frozen=True):
    name: str = ""


BAKERY = Application("bakery", "Bread.", (LOAF,), events=(BAKED,), settings=Settings, variables={"KEY": "Opens."})


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment.from_config(config.load(env={}, overrides={"data": tmp_path}), [BAKERY])


def test_kinds_actions_events_and_settings_are_in_it(environment: Environment) -> None:
    registry = Registry.from_environment(environment)
    assert {machine.name for machine in registry.machines} == set(environment.machines)
    assert (LOAF, LOAF.actions[0]) in list(registry.actions)
    assert registry.events == (BAKED,)
    assert registry.variables["KEY"] == "Opens."
    assert [setting.name for setting in registry.settings] == [setting.name for setting in SETTINGS]
    assert [tuple(setting) for setting in list_application_settings(BAKERY)] == [
        ("name", "", "nothing", "The sign over the door."),
        ("oven.heat", "", "180", "Degrees."),
    ]


def test_a_setting_without_a_comment_is_named() -> None:
    with pytest.raises(TypeError, match=r"Undescribed\.name has no comment"):
        list_application_settings(Application("bakery", "Bread.", (), settings=Undescribed))


def test_the_api_names_kinds_actions_and_events(environment: Environment) -> None:
    document = create_app(environment).openapi()
    assert document["x-kinds"]["loaf"] == {"description": "Bread.", "actions": {"eat": "Eat it."}}
    assert document["webhooks"][BAKED.name]["post"]["summary"] == BAKED.description


def test_options_that_override_a_setting_have_its_help() -> None:
    work = get_command(build_app()).commands["work"]  # type: ignore[attr-defined]
    helps = {option.opts[0]: option.help for option in work.params}
    described = {setting.name: setting.description for setting in SETTINGS}
    assert helps["--threads"] == described["work.threads"]
    assert helps["--queue"].startswith(described["work.queues"])


def test_every_event_of_an_installed_application_is_in_the_reference() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/reference/events.md").read_text("utf-8")
    registry = Registry.from_installed()
    assert [event.name for event in registry.events if f"`{event.name}`" not in page] == []
    assert len({event.name for event in registry.events}) == len(registry.events) > 0
