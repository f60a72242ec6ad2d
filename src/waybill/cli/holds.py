"""Commands about holds, which all workers see: hold and release a name, pause and unpause a kind, list the holds."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill.cli import terminal
from waybill.cli.command_context import KIND, WHY, CommandContext, command
from waybill.record import MAX_PAGE

PANEL = "Holding and pausing"
HOLD = Annotated[str, typer.Argument(metavar="HOLD", help="The name of the hold, such as carrier/mule.")]


def register(app: typer.Typer) -> None:
    command(app, panel=PANEL, examples=("waybill hold carrier/mule --why 'the mule is lame'",))(hold)
    command(app, panel=PANEL, examples=("waybill release carrier/mule",))(release)
    command(app, panel=PANEL, examples=("waybill pause parcel --why 'the disk is full'",))(pause)
    command(app, panel=PANEL, examples=("waybill unpause parcel",))(unpause)
    command(app, panel=PANEL, examples=("waybill holds", "waybill holds --json"))(holds)


def hold(context: CommandContext, name: HOLD, why: WHY = "") -> None:
    """Set a hold: the records that it names are not claimed, or come to rest, until it is released."""
    _change_hold(context, name, True, why, f"{name} is on hold.")


def release(context: CommandContext, name: HOLD, why: WHY = "") -> None:
    """Clear a hold: records that it blocked can be claimed again; records that came to rest need an action."""
    _change_hold(context, name, False, why, f"{name} is released.")
    if context.as_json or context.server_url is not None:
        return
    with context.open_store() as store:
        for kind, machine in sorted(context.environment.machines.items()):
            for state in {s.on_hold for s in machine.states if s.on_hold}:
                actions = [a.name for a in machine.list_actions_from(state)]
                # Only those at rest under this hold: an action on others would be refused. The first page is enough
                # for a hint.
                count = sum(
                    name in record.hold_names for record in store.find(kind, state=state, limit=MAX_PAGE).records
                )
                if count and actions:
                    resting = f"1 {kind} rests" if count == 1 else f"{count} {machine.plural} rest"
                    context.print_note(f"{resting} in {state}: waybill act {kind} {actions[0]} --all --state {state}")


def pause(context: CommandContext, kind: KIND, why: WHY = "") -> None:
    """Stop all new work on a kind; steps that are running finish as usual."""
    queue, plural = _get_queue(context, kind)
    _change_hold(context, queue, True, why, f"No new work on {plural} begins.")


def unpause(context: CommandContext, kind: KIND, why: WHY = "") -> None:
    """Resume work on a kind."""
    queue, plural = _get_queue(context, kind)
    _change_hold(context, queue, False, why, f"Work on {plural} goes on.")


def _get_queue(context: CommandContext, kind: str) -> tuple[str, str]:
    """The name of the hold that pauses a kind, and what its records are called."""
    with context.open_client() as client:
        machine = client.get_machine(kind)
    return machine["queue"], machine["plural"]


def _change_hold(context: CommandContext, name: str, is_set: bool, why: str, message: str) -> None:
    with context.open_client() as client:
        if is_set:
            client.set_hold(name, why=why)
        else:
            client.clear_hold(name)
    if context.as_json:
        context.print_json({"hold": name, "set": is_set})
    else:
        context.print_line(message)


def holds(context: CommandContext) -> None:
    """List the holds in force, with who set each and why."""
    with context.open_client() as client:
        active = client.list_holds()
    if context.as_json:
        return context.print_json({"holds": [{"name": name, "about": about} for name, about in sorted(active.items())]})
    if not active:
        return context.print_note("No hold is set.")
    table = terminal.make_table("hold", "by, and why")
    for name, about in sorted(active.items()):
        table.add_row(name, about)
    context.out.print(table)
    return None
