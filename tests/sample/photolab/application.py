"""The application: what Waybill loads of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from photolab.machine import PHOTO, ROLL, ROLL_READY
from photolab.maintenance import UnclaimedRolls
from photolab.resources import LabResources, LabSettings
from waybill import Application

if TYPE_CHECKING:
    from typer import Typer

    from waybill.environment import Environment


def build_routes(environment: Environment) -> Any:
    from photolab.routes import router  # imported late: a worker needs neither routes nor commands

    return router


def build_pages(environment: Environment) -> Any:
    from photolab.pages import PAGES

    return PAGES


def build_commands() -> Typer:
    from photolab.commands import build_commands

    return build_commands()


PHOTOLAB = Application(
    name="photolab",
    description="Develops film.",
    machines=(ROLL, PHOTO),
    resources=LabResources,
    settings=LabSettings,
    routes=build_routes,
    pages=build_pages,
    commands=build_commands,
    maintenance=(UnclaimedRolls(),),
    events=(ROLL_READY,),
    has_catalogues=True,
)
