"""What the commands of archive share: registration, the services, the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, cast

import typer

from waybill.apps.archive.resources import ArchiveResources
from waybill.apps.archive.service.access import Caller
from waybill.apps.archive.service.migrations import ArchiveMigrations
from waybill.apps.archive.service.requests import ArchiveRequests
from waybill.cli.command_context import CommandContext, CommandFunction, command

MIGRATION = Annotated[int, typer.Argument(metavar="MIGRATION", help="The number of a migration.", min=1)]
REQUEST = Annotated[int, typer.Argument(metavar="REQUEST", help="The number of a request.", min=1)]
USER = Annotated[
    str,
    typer.Option(
        "--user", metavar="NAME", help="For whom: the files are read and written as this user.", show_default="yourself"
    ),
]
WORKSPACE = Annotated[
    str, typer.Option("--workspace", "-w", metavar="NAME", help="The workspace.", show_default="the only one")
]
NOTIFY = Annotated[
    list[str] | None,
    typer.Option("--notify", metavar="ADDRESS", help="Who gets a mail when it is done, or has failed."),
]
WATCH = Annotated[bool, typer.Option("--watch", help="Wait for the end, and show how far it is.")]


def register_command(
    app: typer.Typer, name: str, *, examples: tuple[str, ...], panel: str
) -> Callable[[CommandFunction], CommandFunction]:
    def decorate(function: CommandFunction) -> CommandFunction:
        return command(app, name, examples=examples, panel=panel)(function)

    return decorate


def resources_of(context: CommandContext) -> ArchiveResources:
    return cast(ArchiveResources, context.environment.resources_of("archive"))


def requests_of(context: CommandContext) -> ArchiveRequests:
    return ArchiveRequests(resources_of(context), context.open_engine, context.who)


def migrations_of(context: CommandContext) -> ArchiveMigrations:
    return ArchiveMigrations(resources_of(context), context.open_engine)


def caller_of(context: CommandContext, user: str = "") -> Caller:
    """Whoever can open the data folder operates this server."""
    return Caller(user or context.who, is_operator=True)


def print_value(context: CommandContext, value: Any, text: str) -> None:
    if context.as_json:
        context.print_json(value)
    else:
        context.print_line(text)
