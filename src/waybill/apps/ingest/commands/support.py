"""What the commands of ingest share: registration and the resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import typer

from waybill.apps.ingest.resources import IngestResources
from waybill.cli.command_context import CommandContext, CommandFunction, command


def register_command(
    app: typer.Typer,
    name: str | None = None,
    *,
    examples: tuple[str, ...],
    panel: str | None = None,
    without_subcommand: bool = False,
) -> Callable[[CommandFunction], CommandFunction]:
    """As `command` of waybill.cli; a command without a name has that of its function."""

    def decorate(function: CommandFunction) -> CommandFunction:
        return command(
            app, name or function.__name__, examples=examples, panel=panel, without_subcommand=without_subcommand
        )(function)

    return decorate


def resources_of(context: CommandContext) -> IngestResources:
    return cast(IngestResources, context.environment.resources_of("ingest"))
