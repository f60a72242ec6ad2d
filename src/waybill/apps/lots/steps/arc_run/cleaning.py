"""Cleaning: removes everything that a run has written, verifies that it is gone, and forgets its parts."""

from __future__ import annotations

from datetime import UTC, datetime

from waybill.apps.lots.arc_states import refresh_arc_state
from waybill.apps.lots.declaration.documents import ArcDeclaration
from waybill.apps.lots.machine import ARC, RunDocument, RunSources
from waybill.apps.lots.resources import resources_of
from waybill.apps.lots.run_cleaning import clean_run
from waybill.apps.lots.units import format_instant
from waybill.record import Record
from waybill.step import Done, Outcome, SpawnedChildren, StepContext, Wait


def run_step(run: Record, ctx: StepContext) -> Outcome:
    about, resources = run.document(RunDocument), resources_of(ctx)
    arc = ctx.get(ARC.name, about.arc).document(ArcDeclaration)
    at = format_instant(datetime.fromtimestamp(ctx.now(), UTC))
    with resources.open_catalogue() as tables:
        if (claimed := clean_run(run, ctx, resources, tables, arc, at=at)) > 0:
            return Wait(1.0, f"{claimed} parts are claimed still.")
        tables.change_run(arc.id, about.parsed_lot, about.generation, state="missing", at=at, message="cleaned")
        refresh_arc_state(resources.objects, tables, arc, about.parsed_lot)
    return Done(remove=(RunSources, SpawnedChildren))
