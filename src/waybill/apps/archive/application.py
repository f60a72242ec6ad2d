"""The application `archive`: what Waybill loads of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from waybill.application import Application
from waybill.apps.archive.errors import ERROR_CODES
from waybill.apps.archive.events import EVENTS
from waybill.apps.archive.intakes import SUBSCRIBES
from waybill.apps.archive.machine import MACHINES
from waybill.apps.archive.maintenance import ROUTINES
from waybill.apps.archive.resources import ArchiveResources
from waybill.apps.archive.settings import ArchiveSettings

if TYPE_CHECKING:
    from typer import Typer

    from waybill.engine import Engine
    from waybill.environment import Environment
    from waybill.record import Store
    from waybill.tracing import Tracer


def build_routes(environment: Environment) -> Any:
    from waybill.apps.archive.routes import build_routes  # imported late: a worker needs no routes

    return build_routes(environment)


def build_pages(environment: Environment) -> Any:
    from waybill.apps.archive.pages import build_pages  # imported late: a worker needs no pages

    return build_pages()


def load_demo(environment: Environment, engine: Engine) -> None:
    from waybill.apps.archive.demo import load_demo  # imported late: only a demonstration needs it

    load_demo(environment, engine)


def build_tracer(environment: Environment, store: Store) -> Tracer:
    from waybill.apps.archive.tracing import ArchiveTracer

    return ArchiveTracer(environment, store)


def build_commands() -> Typer:
    from waybill.apps.archive.commands import build_commands  # imported late: a worker needs no commands

    return build_commands()


APPLICATION = Application(
    name="archive",
    description="File sets on external storage and back, proven before anything is deleted.",
    machines=MACHINES,
    resources=ArchiveResources,
    routes=build_routes,
    pages=build_pages,
    tracer=build_tracer,
    commands=build_commands,
    demo=load_demo,
    maintenance=ROUTINES,
    events=EVENTS,
    subscribes=SUBSCRIBES,
    has_catalogues=True,
    settings=ArchiveSettings,
    benchmarks="benchmarks.archive:PARTS",
    error_codes=ERROR_CODES,
)
