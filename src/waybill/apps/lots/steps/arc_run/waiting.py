"""Waiting: until every source has its lot, the lot before is complete if the order is strict, and the arc may run.

Whoever publishes a lot of a source wakes it. It waits a while longer than it must when a wake was lost: then it looks again.
"""

from __future__ import annotations

from msgspec.structs import replace

from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.declaration.documents import ArcDeclaration, title_of_dataset
from waybill.apps.lots.declaration.project_file import minute_of_begin
from waybill.apps.lots.machine import ArcStart, RunDocument
from waybill.apps.lots.publishing import find_arc, iter_source_lots
from waybill.apps.lots.resources import resources_of
from waybill.apps.lots.units import Lot
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext, Wait

LOOK_AGAIN = 600.0  # seconds
MAX_NAMED = 3  # lots that a message names


def run_step(run: Record, ctx: StepContext) -> Outcome:
    about, resources = run.document(RunDocument), resources_of(ctx)
    lot = about.parsed_lot
    found = find_arc(ctx.get, about.arc)
    if found is None:
        return Done(to="Superseded", message="Its arc has ended.")
    arc, start = found
    with resources.open_catalogue() as tables:
        newest = tables.find_run(about.arc, lot)
        if newest is not None and newest.generation > about.generation:
            return Done(to="Superseded", message=f"Generation {newest.generation} has taken its place.")
        if arc.paused:
            return Wait(LOOK_AGAIN, "The arc is paused.")
        if (wait := _wait_for_sources(tables, arc, lot, ctx.now())) is not None:
            return wait
        if arc.strict and (wait := _wait_for_previous(tables, arc, start, lot)) is not None:
            return wait
    return Done((replace(about, limit=arc.limit),))


def _wait_for_sources(tables: LotTables, arc: ArcDeclaration, lot: Lot, now: float) -> Wait | None:
    absent = [
        f"{title_of_dataset(dataset)} {each}"
        for _, dataset, each, row in iter_source_lots(tables, arc, lot)
        if row is None
    ]
    if not absent:
        return None
    seconds = LOOK_AGAIN
    if arc.after is not None:
        seconds = lot.end.timestamp() + arc.after - now
        if seconds <= 0:
            return None  # it starts without them, and its manifest says so
    more = f" and {len(absent) - MAX_NAMED} more" if len(absent) > MAX_NAMED else ""
    return Wait(min(LOOK_AGAIN, max(1.0, seconds)), f"Waits for {', '.join(absent[:MAX_NAMED])}{more}.")


def _wait_for_previous(tables: LotTables, arc: ArcDeclaration, start: ArcStart, lot: Lot) -> Wait | None:
    previous = lot.previous
    if previous.minute + previous.unit.minutes <= minute_of_begin(start.begin):
        return None  # the first one
    row = tables.find_run(arc.id, previous)
    if row is not None and row.state == "complete":
        return None
    return Wait(
        LOOK_AGAIN,
        f"Waits for {previous}, the lot before it, which is {row.state if row is not None else 'not there'}.",
    )
