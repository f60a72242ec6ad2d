"""The application `lots`: what Waybill loads of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from waybill.application import Application
from waybill.apps.lots.errors import ERROR_CODES
from waybill.apps.lots.lot_events import EVENTS
from waybill.apps.lots.machine import MACHINES
from waybill.apps.lots.maintenance import ROUTINES
from waybill.apps.lots.object_intake import OBJECT_INTAKE, SUBSCRIBES
from waybill.apps.lots.resources import LotsResources
from waybill.apps.lots.settings import LotsSettings

if TYPE_CHECKING:
    from typer import Typer

    from waybill.engine import Engine
    from waybill.environment import Environment
    from waybill.published_objects import ObjectLister
    from waybill.record import Store
    from waybill.tracing import Tracer


def build_routes(environment: Environment) -> Any:
    from waybill.apps.lots.routes import router  # imported late: a worker needs no routes

    return router


def build_pages(environment: Environment) -> Any:
    from waybill.apps.lots.pages import build_pages  # imported late: a worker needs no pages

    return build_pages()


def build_tracer(environment: Environment, store: Store) -> Tracer:
    from waybill.apps.lots.tracing import LotsTracer

    return LotsTracer(environment, store)


def build_object_lister(environment: Environment) -> ObjectLister:
    from waybill.apps.lots.published_objects import list_lot_objects

    return partial(list_lot_objects, environment.resources_of("lots"))


def load_demo(environment: Environment, engine: Engine) -> None:
    from waybill.apps.lots.demo import load_demo  # imported late: few processes need it

    load_demo(environment, engine)


def build_commands() -> Typer:
    from waybill.apps.lots.commands import build_commands  # imported late: a worker needs no commands

    return build_commands()


APPLICATION = Application(
    name="lots",
    description="Datasets that grow lot by lot, and the arcs that process each lot once.",
    machines=(*MACHINES, OBJECT_INTAKE),
    subscribes=SUBSCRIBES,
    resources=LotsResources,
    settings=LotsSettings,
    routes=build_routes,
    pages=build_pages,
    tracer=build_tracer,
    published_objects=build_object_lister,
    commands=build_commands,
    demo=load_demo,
    maintenance=ROUTINES,
    events=EVENTS,
    error_codes=ERROR_CODES,
    runs_commands=True,
    sql_only=True,
    has_catalogues=True,
    benchmarks="benchmarks.lots:PARTS",
)
