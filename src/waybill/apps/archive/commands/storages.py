"""storages, create-storage."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill.apps.archive.commands.support import register_command, resources_of
from waybill.apps.archive.storages import StorageError
from waybill.cli.command_context import CommandContext
from waybill.cli.terminal import make_table

PANEL = "Storages"


def register(app: typer.Typer) -> None:
    register_command(app, "storages", panel=PANEL, examples=("waybill archive storages",))(storages)
    register_command(app, "create-storage", panel=PANEL, examples=("waybill archive create-storage disk",))(
        create_storage
    )


def storages(context: CommandContext) -> None:
    """List the storages, and whether each can be used now."""
    resources = resources_of(context)
    found = []
    for name, settings in sorted(resources.settings.storages.items()):
        try:
            resources.open_storage(name).check()
            problem = ""
        except StorageError as error:
            problem = str(error)
        found.append({"storage": name, "type": settings.type, "title": settings.title or name, "problem": problem})
    if context.as_json:
        return context.print_json({"storages": found})
    table = make_table("storage", "type", "title", "")
    for each in found:
        table.add_row(each["storage"], each["type"], each["title"], each["problem"] or "usable")
    context.out.print(table)
    return None


def create_storage(
    context: CommandContext, name: Annotated[str, typer.Argument(metavar="STORAGE", help="Its name in the settings.")]
) -> None:
    """Make the folder of a storage that the settings name: once, when its disk is mounted."""
    resources_of(context).create_storage(name)
    if context.as_json:
        return context.print_json({"storage": name})
    return context.print_line(f"The storage {name} is ready.")
