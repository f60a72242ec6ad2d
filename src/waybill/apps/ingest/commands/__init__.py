"""The commands of ingest: `waybill ingest ...`, one module per subject.

deposits        check a payload, submit it
batches         overview, batches, jobs, the report of a batch
batch_watch     follow a batch to its end
operations      hold, release, pause, resume, restart, fail, delete; locks
objects         search, show and get objects
audits_and_rebuilds
access          assemblies
profiles, collections, merritt_import
support         what they share: registration, error translation, the resources

The order of registration is the order of the help page.
"""

from __future__ import annotations

import typer

from waybill.apps.ingest.commands import (
    access,
    audits_and_rebuilds,
    batch_watch,
    batches,
    collections,
    deposits,
    merritt_import,
    objects,
    operations,
    profiles,
)


def build_commands() -> typer.Typer:
    app = typer.Typer(name="ingest")
    deposits.register(app)
    batches.register(app)
    batch_watch.register(app)
    operations.register(app)
    objects.register(app)
    audits_and_rebuilds.register(app)
    access.register(app)
    collections.register(app)
    merritt_import.register(app, profiles.register(app))
    return app
