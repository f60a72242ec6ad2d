"""Ingest as an application: what the house is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from waybill.application import Application, BadApplication
from waybill.apps.ingest import settings
from waybill.apps.ingest.demo import demonstrate
from waybill.apps.ingest.duties import DUTIES
from waybill.apps.ingest.machine import tables
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.steps import equip
from waybill.machine import Machine, MachineError

if TYPE_CHECKING:
    from typer import Typer

    from waybill.depot import Depot


def shaped(table: Mapping[str, Any]) -> tuple[Machine, ...]:
    """The machines as the settings want them."""
    wanted = settings.read(table)
    try:
        return equip(tables(storing=wanted.storing, outside=wanted.outside))
    except MachineError as error:
        raise BadApplication(f"The settings [app.ingest] cannot be used: {error}") from None


def routes(depot: Depot) -> Any:
    from waybill.apps.ingest.routes import routes  # a worker needs none of it

    return routes(depot)


def commands() -> Typer:
    from waybill.apps.ingest.commands import commands  # a worker needs none of it

    return commands()


APPLICATION = Application(
    name="ingest",
    doc="Deposits, from submission to inventory.",
    machines=shaped({}),
    shaped=shaped,
    outfit=Outfit,
    routes=routes,
    commands=commands,
    demo=demonstrate,
    duties=DUTIES,
    catalogues=True,
    settings=settings.Settings,
    variables=settings.VARIABLES,
)
