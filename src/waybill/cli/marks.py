"""Commands that set marks, which all workers see: hold and release a name, pause and unpause a kind."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill.cli import shapes
from waybill.cli.desk import KIND, WHY, Desk, command
from waybill.cli.problems import Missing
from waybill.record import MAX_PAGE

PANEL = "Holding and pausing"
MARK = Annotated[str, typer.Argument(metavar="MARK", help="The name of the mark, such as carrier/mule.")]


def register(app: typer.Typer) -> None:
    command(app, panel=PANEL, examples=("waybill hold carrier/mule --why 'the mule is ill'",))(hold)
    command(app, panel=PANEL, examples=("waybill release carrier/mule",))(release)
    command(app, panel=PANEL, examples=("waybill pause parcel --why 'no room in the yard'",))(pause)
    command(app, panel=PANEL, examples=("waybill unpause parcel",))(unpause)
    command(app, panel=PANEL, examples=("waybill marks", "waybill marks --json"))(marks)


def hold(desk: Desk, mark: MARK, why: WHY = "") -> None:
    """Set a mark: records that it concerns rest or wait instead of going on to work."""
    _set(desk, mark, True, why, f"{mark} is on hold.")


def release(desk: Desk, mark: MARK, why: WHY = "") -> None:
    """Clear a mark: what waited for it can be claimed again; what came to rest is led on by an action."""
    _set(desk, mark, False, why, f"{mark} is released.")
    if desk.as_json:
        return
    with desk.store() as store:
        for kind, machine in sorted(desk.depot.machines.items()):
            for state in {s.holds for s in machine.states if s.holds}:
                actions = [a.name for a in machine.leaves(state)]
                # Only those that rest for this mark: an action on others would be refused. The first page is enough for
                # a hint.
                count = sum(
                    record.message == f"held by {mark}"
                    for record in store.find(kind, state=state, limit=MAX_PAGE).records
                )
                if count and actions:
                    several = f"1 {kind} rests" if count == 1 else f"{count} {machine.plural} rest"
                    desk.note(f"{several} in {state}: waybill act {kind} {actions[0]} --all --state {state}")


def pause(desk: Desk, kind: KIND, why: WHY = "") -> None:
    """Stop all new work on a kind; steps that run now end as usual."""
    _set(desk, desk.machine(kind).queue, True, why, f"No new work on {desk.machine(kind).plural} begins.")


def unpause(desk: Desk, kind: KIND, why: WHY = "") -> None:
    """Let work on a kind go on."""
    _set(desk, desk.machine(kind).queue, False, why, f"Work on {desk.machine(kind).plural} goes on.")


def _set(desk: Desk, mark: str, on: bool, why: str, said: str) -> None:
    with desk.engine() as engine:
        if on:
            engine.hold(mark, who=desk.who, why=why)
        elif mark not in (there := engine.store.marks()):
            raise Missing(f"The mark {mark} is not set; set are: {', '.join(sorted(there)) or 'none'}.")
        else:
            engine.release(mark, who=desk.who, why=why)
    if desk.as_json:
        desk.print_json({"mark": mark, "on": on})
    else:
        desk.say(said)


def marks(desk: Desk) -> None:
    """List the marks in force, with who set each and why."""
    with desk.store() as store:
        found = store.marks()
    if desk.as_json:
        return desk.print_json({"marks": [{"name": name, "about": about} for name, about in sorted(found.items())]})
    if not found:
        return desk.note("No mark is set.")
    made = shapes.table("mark", "by, and why")
    for name, about in sorted(found.items()):
        made.add_row(name, about)
    desk.out.print(made)
    return None
