"""The command that shows the machines: every state, transition and action, and the figure."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill import views
from waybill.cli import terminal
from waybill.cli.command_context import KIND, CommandContext, command, complete_kind
from waybill.machine import Machine

PANEL = "Machines"


def register(app: typer.Typer) -> None:
    machines = typer.Typer(
        name="machines", help="List the machines with all their states, transitions and actions, or draw one."
    )
    app.add_typer(machines, rich_help_panel=PANEL)
    command(machines, without_subcommand=True, examples=("waybill machines", "waybill machines --json"))(list_all)
    command(machines, "list", examples=("waybill machines list parcel", "waybill machines list --json"))(list_machines)
    command(
        machines, "draw", examples=("waybill machines draw parcel", "waybill machines draw parcel --svg > parcel.svg")
    )(draw)


def list_all(context: CommandContext) -> None:
    """List the machines with all their states, transitions and actions, or draw one."""
    list_machines(context)


def list_machines(
    context: CommandContext,
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="Only this machine.", autocompletion=complete_kind)
    ] = None,
) -> None:
    """List the machines, or one of them, with all states, transitions and actions."""
    machines = (
        [context.get_machine(kind)]
        if kind is not None
        else [m for _, m in sorted(context.environment.machines.items())]
    )
    if context.as_json:
        return context.print_json({"machines": [views.to_machine_view(m) for m in machines]})
    for machine in machines:
        _print_machine(context, machine)
    return None


def _print_machine(context: CommandContext, machine: Machine) -> None:
    parent = f", of a {' or a '.join(machine.parent_kinds)}" if machine.parent else ""
    context.print_line(f"{machine.name}{parent}: {machine.description}")
    states = terminal.make_table("  state", "type", "")
    for s in machine.states:
        states.add_row(f"  {s.name}", s.type, s.description)
    context.out.print(states)
    transitions = terminal.make_table("  transition", "cause", "by")
    for arrow in machine.iter_arrows():
        transitions.add_row(f"  {arrow.source} → {arrow.target}", arrow.label, arrow.by)
    context.out.print(transitions)
    if machine.actions:
        actions = terminal.make_table("  action", "role", "")
        for action in machine.actions:
            actions.add_row(f"  {action.name}", action.role, action.description)
        context.out.print(actions)
    context.print_line("")


def draw(
    context: CommandContext,
    kind: KIND,
    svg: Annotated[bool, typer.Option("--svg", help="As SVG; otherwise as Mermaid.")] = False,
) -> None:
    """Draw a machine, from the same declaration that the workers follow."""
    from waybill import drawing

    machine = context.get_machine(kind)
    figure = drawing.render_svg(machine) if svg else drawing.render_mermaid(machine)
    if context.as_json:
        return context.print_json({"kind": kind, "format": "svg" if svg else "mermaid", "figure": figure})
    typer.echo(figure)
    return None
