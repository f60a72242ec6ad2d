"""The application `lots`: what Waybill loads of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.application import Application

if TYPE_CHECKING:
    from typer import Typer


def build_commands() -> Typer:
    from waybill.apps.lots.commands import build_commands  # imported late: a worker needs no commands

    return build_commands()


APPLICATION = Application(
    name="lots",
    description="Datasets that grow lot by lot, and the arcs that process each lot once.",
    machines=(),
    commands=build_commands,
    sql_only=True,
    has_catalogues=True,
)
