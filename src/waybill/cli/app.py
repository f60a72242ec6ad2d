"""The command line, put together: Waybill's own commands and those of the applications."""

from __future__ import annotations

import importlib.metadata

import typer

from waybill.application import BadApplication, installed
from waybill.cli import acting, marks, people, records, run, tables, upkeep, watching

HELP = """Data in motion: records in explicit states, moved by steps that survive any crash.

Every command takes --json, --data, --store and --config after its name. Exit codes: 0 done, 1 refused or failed, 2 wrong usage,
3 not there, 4 conflict, 5 no store.
"""


def version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"waybill {importlib.metadata.version('waybill')}")
        raise typer.Exit


def build(*, with_applications: bool = True) -> typer.Typer:
    app = typer.Typer(
        name="waybill", help=HELP, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip

    @app.callback()
    def main(
        show_version: bool = typer.Option(False, "--version", help="Show the version.", callback=version, is_eager=True),
    ) -> None:
        pass

    main.__doc__ = HELP
    for module in (run, records, acting, watching, tables, marks, people, upkeep):
        module.register(app)
    if with_applications:
        _add_applications(app)
    return app


def _add_applications(app: typer.Typer) -> None:
    """An application that cannot be loaded must not take `waybill --help` with it: whatever needs its machines says what is wrong."""
    try:
        found = installed()
    except BadApplication:
        return
    for application in found:
        if application.commands is not None:
            app.add_typer(application.commands(), name=application.name, help=application.doc, rich_help_panel="Applications")
