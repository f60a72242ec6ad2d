"""Pending: the URL of an assembly starts to work, and says when the archive will be ready."""

from __future__ import annotations

from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.access.orders import estimate_ready_time, is_imported, leave_to_other_service
from waybill.apps.ingest.documents import AssemblyOrder, AssemblyToken, PackedArchive
from waybill.apps.ingest.machine.access import ASSEMBLY
from waybill.apps.ingest.resources import resources_of
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    order, resources = record.find_document(AssemblyOrder), resources_of(ctx)
    if is_imported(record):
        return Done()  # the next state can fail, this one cannot
    if order is None or not tokens.token_of(record):
        return leave_to_other_service(record)
    tokens.write_pointer(ctx.objects, record)  # safe to repeat: the same each time
    # 0 more bytes: it is itself among those that wait
    ready = ctx.run_on_store(lambda store: estimate_ready_time(store, resources, record.kind, 0, store.now()))
    token = record.document(AssemblyToken).with_status(ASSEMBLY.live[1], ready)
    return Done((token,), remove=(PackedArchive,))
