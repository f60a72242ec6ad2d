"""Retrying: removes what failed parts had written and takes them up again, and with them those that another workload made.

The good parts stand. A run from which everything was cleaned has no parts: it begins anew.
"""

from __future__ import annotations

from datetime import UTC, datetime

from waybill.apps.lots.arc_states import refresh_arc_state
from waybill.apps.lots.machine import PART, PartAttempts, RunDocument, RunSources
from waybill.apps.lots.part_attempts import remove_failed_attempts
from waybill.apps.lots.publishing import find_arc
from waybill.apps.lots.resources import resources_of
from waybill.apps.lots.run_cleaning import clean_run
from waybill.apps.lots.run_parts import digest_workload
from waybill.apps.lots.units import format_instant
from waybill.record import Record
from waybill.step import Act, Done, Outcome, StepContext

PAGE_SIZE = 100  # acts of one commit


def run_step(run: Record, ctx: StepContext) -> Outcome:
    about, resources = run.document(RunDocument), resources_of(ctx)
    lot, at = about.parsed_lot, format_instant(datetime.fromtimestamp(ctx.now(), UTC))
    found = find_arc(ctx.get, about.arc)
    if found is None:
        return Done(to="Superseded", message="Its arc has ended.")
    arc = found[0]
    with resources.open_catalogue() as tables:
        newest = tables.find_run(arc.id, lot)
        if newest is not None and newest.generation > about.generation:
            clean_run(run, ctx, resources, tables, arc, at=at)
            return Done(to="Superseded", message=f"Generation {newest.generation} has taken its place.")
        if run.find_document(RunSources) is None:
            return Done()
        tables.change_run(arc.id, lot, about.generation, state="running", at=at)
        refresh_arc_state(resources.objects, tables, arc, lot)
    digest = digest_workload(arc)
    acts: list[Act] = []
    after: int | None = None
    while True:
        page = ctx.find(PART.name, parent=run.ref, after=after, limit=200, documents=True)
        for part in page.records:
            attempts = part.find_document(PartAttempts) or PartAttempts()
            is_other = attempts.last is None or attempts.last.workload != digest
            if part.state == "Partial" or (part.state == "Complete" and is_other):
                ctx.check()
                remove_failed_attempts(ctx, resources, arc, lot, attempts, include_complete=True, at=at)
                acts.append(Act(part.ref, "retry", {}, "its run is retried"))
        if page.after is None:
            break
        after = page.after
    for first in range(0, len(acts) - PAGE_SIZE, PAGE_SIZE):
        ctx.save(acts=acts[first : first + PAGE_SIZE])
    # the last page and the state of the run are one commit, so that the join sees open children
    rest = acts[(max(0, len(acts) - 1) // PAGE_SIZE) * PAGE_SIZE :] if acts else []
    return Done(acts=tuple(rest), message=f"{len(acts)} parts run again")
