"""The commands of ingest: `waybill ingest ...`. One file for each of the things that people do; `counter` has what
they share.
"""

from __future__ import annotations

import typer

from waybill.apps.ingest.commands import (
    access,
    acting,
    batches,
    caring,
    checking,
    collections,
    following,
    locks,
    objects,
    profiles,
    reports,
    submitting,
    taking_over,
)


def commands() -> typer.Typer:
    app = typer.Typer(name="ingest")
    for module in (
        submitting,
        checking,
        batches,
        reports,
        following,
        acting,
        locks,
        objects,
        access,
        caring,
        collections,
    ):
        module.register(app)
    taking_over.register(app, profiles.register(app))
    return app
