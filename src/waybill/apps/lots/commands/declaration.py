"""`waybill lots check`, `diff` and `apply`: project files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from waybill.apps.lots.declaration.changes import DeclarationChange, apply_changes, find_changes, read_applied
from waybill.apps.lots.declaration.checks import AppliedDeclarations, check_project
from waybill.apps.lots.declaration.documents import ProjectDeclaration
from waybill.apps.lots.declaration.project_file import read_project
from waybill.cli.command_context import CommandContext, command
from waybill.errors import InputError
from waybill.record import BadStore

PANEL = "Projects"
ProjectFileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A project file, in TOML or JSON.", show_default=False)
]


def register(app: typer.Typer) -> None:
    command(app, name="check", panel=PANEL, examples=("waybill lots check project.toml",))(check)
    command(app, name="diff", panel=PANEL, examples=("waybill lots diff project.toml",))(diff)
    command(
        app,
        name="apply",
        panel=PANEL,
        examples=("waybill lots apply project.toml", "waybill lots apply project.toml --yes"),
    )(apply)


def check(context: CommandContext, file: ProjectFileArgument) -> None:
    """Check a project file, beside what is applied if there is a store."""
    applied = _read_applied(context)
    project = read_project(file, known_units=applied.units)
    check_project(project, applied)
    summary = {
        "project": project.name,
        "datasets": len(project.datasets),
        "boundaries": len(project.boundaries),
        "arcs": len(project.arcs),
    }
    if context.as_json:
        return context.print_json(summary)
    context.print_line(
        f"The project {project.name} can be applied: {len(project.datasets)} datasets, "
        f"{len(project.boundaries)} boundaries, {len(project.arcs)} arcs."
    )
    return None


def diff(context: CommandContext, file: ProjectFileArgument) -> None:
    """Show what applying a project file would change."""
    applied = _read_applied(context)
    project = read_project(file, known_units=applied.units)
    _print_changes(context, project, find_changes(project, applied), "would change")


def apply(
    context: CommandContext,
    file: ProjectFileArgument,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="End what the project no longer declares, without asking.")
    ] = False,
) -> None:
    """Apply a project file: all of it in one commit, and nothing that is as declared already."""
    with context.runtime.open_engine() as engine:
        applied = read_applied(engine.store)
        project = read_project(file, known_units=applied.units)
        ended = [change for change in find_changes(project, applied) if change.name == "end"]
        if ended and not yes:
            listed = "; ".join(change.describe() for change in ended)
            if not context.is_interactive or not typer.confirm(f"This would {listed}. Go on?"):
                raise InputError(f"This would {listed}. Pass --yes to let it, or declare them again.", code="usage")
        changes = apply_changes(engine, project, who=context.who, now=time.time())
    _print_changes(context, project, changes, "changed")


def _read_applied(context: CommandContext) -> AppliedDeclarations:
    """What is in force; nothing where there is no store yet."""
    try:
        with context.open_store() as store:
            return read_applied(store)
    except BadStore:
        return AppliedDeclarations()


def read_known(context: CommandContext) -> dict[str, str]:
    """Return the units of the datasets that are in force, by id."""
    return _read_applied(context).units


def _print_changes(
    context: CommandContext, project: ProjectDeclaration, changes: list[DeclarationChange], verb: str
) -> None:
    if context.as_json:
        return context.print_json(
            {
                "project": project.name,
                "changes": [{"change": c.name, "kind": c.kind, "id": c.id, "fields": list(c.fields)} for c in changes],
            }
        )
    for change in changes:
        context.print_line(change.describe())
    if not changes:
        context.print_line(f"Nothing {verb}: the project {project.name} is applied as it is.")
    return None
