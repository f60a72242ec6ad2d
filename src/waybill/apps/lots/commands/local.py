"""`waybill lots run-local`: try the workload of an arc on folders of this host."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from waybill.apps.lots.commands.declaration import PANEL, ProjectFileArgument, read_known
from waybill.apps.lots.declaration.project_file import read_project
from waybill.apps.lots.local_run import run_locally
from waybill.apps.lots.units import Lot
from waybill.cli.command_context import CommandContext, command
from waybill.errors import InputError, NotFound


def register(app: typer.Typer) -> None:
    command(
        app,
        name="run-local",
        panel=PANEL,
        examples=("waybill lots run-local project.toml total --source main=orders --out made",),
    )(run_local)


def run_local(
    context: CommandContext,
    file: ProjectFileArgument,
    arc: Annotated[str, typer.Argument(metavar="ARC", help="The name of an arc of the project.")],
    source: Annotated[
        list[str],
        typer.Option("--source", metavar="ROLE=FOLDER", help="The folder of a source; FOLDER alone is that of main."),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where what it makes is put, a folder for each sink.")
    ] = Path("out"),
    lot: Annotated[
        str,
        typer.Option("--lot", metavar="LOT", help="Which lot it is told it works on.", show_default="the present one"),
    ] = "",
) -> int:
    """Run the workload of an arc once, in its sandbox, on folders of this host. Nothing is uploaded or noted."""
    project = read_project(file, known_units=read_known(context))
    declared = next((each for each in project.arcs if each.name == arc), None)
    if declared is None:
        raise NotFound(f"{file} has no arc {arc!r}; it has {', '.join(each.name for each in project.arcs) or 'none'}.")
    folders = {}
    for text in source:
        role, is_named, folder = text.rpartition("=")
        folders[role if is_named else "main"] = Path(folder)
    chosen = Lot.parse(lot) if lot else Lot.at(datetime.now(UTC), declared.lot_unit)
    if chosen.unit != declared.lot_unit:
        raise InputError(f"{chosen} is no lot of {declared.title}, whose lots are of {declared.unit}.")
    resources = context.environment.resources_of("lots")
    found = run_locally(declared, chosen, folders, out, resources.sandbox_support, resources.container_program)
    if context.as_json:
        context.print_json(
            {
                "lot": str(chosen),
                "message": found.message,
                "exit_code": found.exit_code,
                "files": [str(each) for each in found.files],
            }
        )
    else:
        for text in (found.stdout, found.stderr):
            if text:
                context.print_note(text.rstrip("\n"))
        for path in found.files:
            context.print_line(str(path))
        if found.message:
            context.print_note(found.message)
    return 1 if found.message else 0
