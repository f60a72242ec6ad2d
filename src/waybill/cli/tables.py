"""The command that shows the machines' tables: every state, every arrow, and the figure."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill import views
from waybill.cli import shapes
from waybill.cli.desk import KIND, Desk, command, complete_kind
from waybill.machine import Machine

PANEL = "Machines"


def register(app: typer.Typer) -> None:
    machines = typer.Typer(
        name="machines", help="List the machines with all their states, arrows and actions, or draw one."
    )
    app.add_typer(machines, rich_help_panel=PANEL)
    command(machines, alone=True, examples=("waybill machines", "waybill machines --json"))(list_all)
    command(machines, "list", examples=("waybill machines list parcel", "waybill machines list --json"))(list_machines)
    command(
        machines, "draw", examples=("waybill machines draw parcel", "waybill machines draw parcel --svg > parcel.svg")
    )(draw)


def list_all(desk: Desk) -> None:
    """List the machines with all their states, arrows and actions, or draw one."""
    list_machines(desk)


def list_machines(
    desk: Desk,
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="Only this machine.", autocompletion=complete_kind)
    ] = None,
) -> None:
    """List the machines, or one of them, with all states, arrows and actions."""
    machines = [desk.machine(kind)] if kind is not None else [m for _, m in sorted(desk.depot.machines.items())]
    if desk.as_json:
        return desk.print_json({"machines": [views.machine(m) for m in machines]})
    for machine in machines:
        _print(desk, machine)
    return None


def _print(desk: Desk, machine: Machine) -> None:
    below = f", of a {machine.parent}" if machine.parent else ""
    desk.say(f"{machine.name}{below}: {machine.doc}")
    states = shapes.table("  state", "sort", "")
    for s in machine.states:
        states.add_row(f"  {s.name}", s.sort, s.doc)
    desk.out.print(states)
    arrows = shapes.table("  arrow", "by", "")
    for a in machine.arrows():
        arrows.add_row(f"  {a.source} → {a.target}", a.label, a.by)
    desk.out.print(arrows)
    if machine.actions:
        actions = shapes.table("  action", "role", "")
        for action in machine.actions:
            actions.add_row(f"  {action.name}", action.role, action.doc)
        desk.out.print(actions)
    desk.say("")


def draw(
    desk: Desk, kind: KIND, svg: Annotated[bool, typer.Option("--svg", help="As SVG; otherwise as Mermaid.")] = False
) -> None:
    """Draw a machine as a figure, from the same table that the workers follow."""
    from waybill import drawing

    machine = desk.machine(kind)
    figure = drawing.svg(machine) if svg else drawing.mermaid(machine)
    if desk.as_json:
        return desk.print_json({"kind": kind, "format": "svg" if svg else "mermaid", "figure": figure})
    typer.echo(figure)
    return None
