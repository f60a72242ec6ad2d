"""Feeding."""
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(backfill: Record, ctx: StepContext) -> Outcome:
    return Done()
