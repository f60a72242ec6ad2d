"""The command line, put together: Waybill's own commands and those of the applications."""

from __future__ import annotations

import importlib.metadata
import os
from typing import Annotated

import typer

from waybill import application, config
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
        name="waybill",
        help=HELP,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def main(
        show_version: bool = typer.Option(
            False, "--version", help="Show the version.", callback=version, is_eager=True
        ),
    ) -> None:
        pass

    main.__doc__ = HELP
    for module in (run, records, acting, watching, tables, marks, people, upkeep):
        module.register(app)
    if with_applications:
        _add_applications(app)
    return app


def _add_applications(app: typer.Typer) -> None:
    """An application that cannot be loaded must not take `waybill --help` with it: whoever calls it hears what is
    wrong.
    """
    taken = {each.name for each in app.registered_commands}
    for name in (*application.names(), *_named()):
        try:
            (found,) = application.installed([name])
        except application.BadApplication as error:
            module, _, _ = name.partition(":")
            if module not in taken:  # what it would be called, nobody knows
                _add_broken(app, module, error)
            continue
        if found.commands is not None and found.name not in taken:
            taken.add(found.name)
            app.add_typer(found.commands(), name=found.name, help=found.doc, rich_help_panel="Applications")


def _named() -> list[str]:
    """The applications that the settings name as module:object: those in force before a command is read, without its
    options.
    """
    try:
        chosen = config.load(env=os.environ).applications
    except (config.BadConfig, OSError):  # said by whatever command needs the settings
        return []
    return [name for name in chosen or () if ":" in name]


def _add_broken(app: typer.Typer, name: str, error: application.BadApplication) -> None:
    @app.command(
        name,
        hidden=True,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    )
    def broken(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        raise error
