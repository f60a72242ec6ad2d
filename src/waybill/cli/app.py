"""Builds the command line: Waybill's own commands and those of the applications."""

from __future__ import annotations

import importlib.metadata
import os
from typing import Annotated

import typer

from waybill import application, config
from waybill.cli import (
    accounts,
    act,
    administration,
    events,
    holds,
    machines,
    records,
    run,
    sessions_and_tokens,
    trace,
    watch,
)
from waybill.cli.command_context import accept_common_options, keep_common_options
from waybill.errors import InputError

HELP = """Data in motion: records in explicit states, moved by steps that survive any crash.

Every command takes --json, --data, --store and --config, before or after its name. Exit codes: 0 done, 1 refused or failed, 2 wrong usage,
3 not found, 4 conflict, 5 no store.
"""


def print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"waybill {importlib.metadata.version('waybill-engine')}")
        raise typer.Exit


def build_app(*, with_applications: bool = True) -> typer.Typer:
    app = typer.Typer(
        name="waybill",
        help=HELP,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    @keep_common_options
    def main(
        show_version: bool = typer.Option(
            False, "--version", help="Show the version.", callback=print_version, is_eager=True
        ),
    ) -> None:
        pass

    for module in (
        run,
        records,
        act,
        watch,
        events,
        trace,
        machines,
        holds,
        accounts,
        sessions_and_tokens,
        administration,
    ):
        module.register(app)
    if with_applications:
        _add_applications(app)
    accept_common_options(app)
    return app


def _add_applications(app: typer.Typer) -> None:
    """An application that cannot be loaded must not break `waybill --help`: its command stays, and raises the load
    error when it is called.
    """
    taken = {each.name for each in app.registered_commands}
    for name in (*application.list_application_names(), *_list_named_applications()):
        try:
            (found,) = application.load_applications([name])
        except InputError as error:
            module, _, _ = name.partition(":")
            if module not in taken:  # its own name is not known
                _add_broken(app, module, error)
            continue
        if found.commands is not None and found.name not in taken:
            taken.add(found.name)
            app.add_typer(found.commands(), name=found.name, help=found.description, rich_help_panel="Applications")


def _list_named_applications() -> list[str]:
    """The applications that the settings name as module:object. The options of the command are not read yet, so only
    the environment and the file count.
    """
    try:
        chosen = config.load(env=os.environ).applications
    except (InputError, OSError):  # reported by the command that needs the settings
        return []
    return [name for name in chosen or () if ":" in name]


def _add_broken(app: typer.Typer, name: str, error: InputError) -> None:
    @app.command(
        name,
        hidden=True,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    )
    def raise_load_error(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        raise error
