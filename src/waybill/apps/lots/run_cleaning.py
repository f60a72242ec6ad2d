"""Removes everything that a run has written: what its good parts made, too, because nothing of it is published."""

from __future__ import annotations

from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.declaration.documents import ArcDeclaration
from waybill.apps.lots.machine import PART, PartAttempts, RunDocument
from waybill.apps.lots.part_attempts import remove_failed_attempts
from waybill.apps.lots.resources import LotsResources
from waybill.apps.lots.run_parts import work_folder_of
from waybill.record import Record
from waybill.step import StepContext


def clean_run(
    run: Record, ctx: StepContext, resources: LotsResources, tables: LotTables, arc: ArcDeclaration, *, at: str
) -> int:
    """Remove the data of all attempts of all parts, then the parts; returns how many parts a worker has claimed still.

    Safe to repeat: data are removed before the record that tells of them.
    """
    about = run.document(RunDocument)
    row = tables.find_run(arc.id, about.parsed_lot, about.generation)
    if row is not None and row.state == "complete":
        raise LookupError(
            f"{run.ref} is complete and its lots are published; what it made cannot be removed as remains."
        )
    after: int | None = None
    while True:
        page = ctx.find(PART.name, parent=run.ref, after=after, limit=200, documents=True)
        for part in page.records:
            ctx.check()
            attempts = part.find_document(PartAttempts) or PartAttempts()
            remove_failed_attempts(ctx, resources, arc, about.parsed_lot, attempts, include_complete=True, at=at)
        if page.after is None:
            break
        after = page.after
    claimed = ctx.remove_children(PART.name)
    if not claimed:
        for info in list(resources.objects.list(work_folder_of(run.id))):
            resources.objects.delete(info.name)
    return claimed
