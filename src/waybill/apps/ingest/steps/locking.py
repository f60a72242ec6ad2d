"""Locking: an operator's lock has its key as soon as its step runs, and keeps it while it rests in Set."""

from __future__ import annotations

from waybill.record import Record
from waybill.step import Context, Done


def asking(lock: Record, ctx: Context) -> Done:
    # Safe to repeat: nothing is done but to go on; the key was taken with the claim.
    return Done()
