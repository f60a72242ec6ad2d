"""The application `compute`: what Waybill loads of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from waybill.application import Application
from waybill.apps.compute.events import EVENTS
from waybill.apps.compute.machine import MACHINES
from waybill.apps.compute.maintenance import ROUTINES
from waybill.apps.compute.resources import ComputeResources
from waybill.apps.compute.settings import ComputeSettings

if TYPE_CHECKING:
    from typer import Typer

    from waybill.environment import Environment


def build_routes(environment: Environment) -> Any:
    from waybill.apps.compute.routes import build_routes  # imported late: a worker needs no routes

    return build_routes(environment)


def build_pages(environment: Environment) -> Any:
    from waybill.apps.compute.pages import build_pages  # imported late: a worker needs no pages

    return build_pages(environment)


def build_commands() -> Typer:
    from waybill.apps.compute.commands import build_commands  # imported late: a worker needs no commands

    return build_commands()


APPLICATION = Application(
    name="compute",
    description="Objects with directories, and jobs that run commands over them.",
    machines=MACHINES,
    resources=ComputeResources,
    routes=build_routes,
    commands=build_commands,
    maintenance=ROUTINES,
    pages=build_pages,
    events=EVENTS,
    benchmarks="benchmarks.compute:PARTS",
    runs_commands=True,
    sql_only=True,
    has_catalogues=True,
    settings=ComputeSettings,
)
