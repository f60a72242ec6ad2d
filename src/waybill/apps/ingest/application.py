"""The application `ingest`: what Waybill loads of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from waybill.application import Application
from waybill.apps.ingest import settings
from waybill.apps.ingest.demo import load_demo
from waybill.apps.ingest.errors import ERROR_CODES
from waybill.apps.ingest.events import EVENTS
from waybill.apps.ingest.machine import build_tables
from waybill.apps.ingest.maintenance import ROUTINES
from waybill.apps.ingest.resources import IngestResources
from waybill.errors import InputError
from waybill.machine import Machine, MachineError

if TYPE_CHECKING:
    from typer import Typer

    from waybill.environment import Environment
    from waybill.published_objects import ObjectLister
    from waybill.record import Store
    from waybill.tracing import Tracer


def build_machines(table: Mapping[str, Any]) -> tuple[Machine, ...]:
    """The machines for the table [app.ingest]."""
    chosen = settings.read(table)
    try:
        return build_tables(storing_state=chosen.storing_state, external_states=chosen.external_states)
    except MachineError as error:
        raise InputError(f"The settings [app.ingest] cannot be used: {error}", code="bad-application") from None


def build_routes(environment: Environment) -> Any:
    from waybill.apps.ingest.routes import build_routers  # imported late: a worker needs neither routes nor commands

    return build_routers(environment)


def build_tracer(environment: Environment, store: Store) -> Tracer:
    from waybill.apps.ingest.tracing import IngestTracer

    return IngestTracer(environment, store)


def build_object_lister(environment: Environment) -> ObjectLister:
    from waybill.apps.ingest.published_objects import list_version_objects

    return partial(list_version_objects, environment.resources_of("ingest"))


def build_commands() -> Typer:
    from waybill.apps.ingest.commands import build_commands  # imported late: a worker needs neither routes nor commands

    return build_commands()


def build_pages(environment: Environment) -> Any:
    from waybill.apps.ingest.pages import build_pages  # imported late: a worker needs neither routes nor pages

    return build_pages()


APPLICATION = Application(
    name="ingest",
    description="Deposits, from submission to inventory.",
    machines=build_machines({}),
    machines_for=build_machines,
    resources=IngestResources,
    routes=build_routes,
    pages=build_pages,
    tracer=build_tracer,
    published_objects=build_object_lister,
    commands=build_commands,
    demo=load_demo,
    maintenance=ROUTINES,
    events=EVENTS,
    benchmarks="benchmarks.ingest:PARTS",
    has_catalogues=True,
    settings=settings.IngestSettings,
    variables=settings.VARIABLES,
    error_codes=ERROR_CODES,
)
