"""What the commands of ingest share: registration, translation of errors, the resources.

`register_command` works as `waybill.cli`'s `command`: the first parameter of the function is a `CommandContext`. In
addition it translates the errors of ingest into those of the command line, so that scripts get the usual exit codes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import typer

from waybill.apps.ingest.formats.checkm import BadManifest
from waybill.apps.ingest.inventory import InventoryConflict, LocalIdTaken
from waybill.apps.ingest.profile import BadProfile
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.storage import NotInStorage, StorageError
from waybill.cli.command_context import CommandContext, CommandFunction, command
from waybill.errors import NotFound
from waybill.rules import ActionRefused


def register_command(
    app: typer.Typer,
    name: str | None = None,
    *,
    examples: tuple[str, ...],
    panel: str | None = None,
    without_subcommand: bool = False,
) -> Callable[[CommandFunction], CommandFunction]:
    def decorate(function: CommandFunction) -> CommandFunction:
        @functools.wraps(function)
        def run(context: CommandContext, **values: Any) -> int | None:
            with translate_errors():
                return function(context, **values)

        return command(
            app, name or function.__name__, examples=examples, panel=panel, without_subcommand=without_subcommand
        )(run)

    return decorate


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate the errors of ingest into those of the command line."""
    try:
        yield
    except NotInStorage as error:
        raise NotFound(str(error)) from error
    except (BadProfile, BadManifest, StorageError, LocalIdTaken, InventoryConflict) as error:
        raise ActionRefused(str(error)) from error


def resources_of(context: CommandContext) -> IngestResources:
    return cast(IngestResources, context.environment.resources_of("ingest"))
