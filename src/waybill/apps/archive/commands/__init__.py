"""The commands of archive: `waybill archive ...`.

requests     put, migrate, get, delete, undelete, move, cancel, resume, watch
migrations   ls, show, files, search, label, tag, quota
storages     storages, verify, scrub, rebuild
support      what they share

The order of registration is the order of the help page.
"""

from __future__ import annotations

import typer

from waybill.apps.archive.commands import migrations, requests, storages


def build_commands() -> typer.Typer:
    app = typer.Typer(name="archive")
    migrations.register_overview(app)
    requests.register(app)
    migrations.register(app)
    storages.register(app)
    return app
