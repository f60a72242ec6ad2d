"""The commands of lots: `waybill lots ...`.

declaration.py  check, diff, apply
local.py        run-local
arrivals.py     arrive
reports.py      status, gaps, calendar, show
runs.py         retry, clean, pause, unpause, backfill, replay
questions.py    what needs no store: which lot an instant is in, which paths a filter keeps
"""

from __future__ import annotations

import typer

from waybill.apps.lots.commands import arrivals, declaration, local, questions, reports, runs


def build_commands() -> typer.Typer:
    app = typer.Typer(name="lots")
    declaration.register(app)
    local.register(app)
    arrivals.register(app)
    reports.register(app)
    runs.register(app)
    questions.register(app)
    return app


__all__ = ["build_commands"]
