"""Belonging: in which collections a deposit lies, where its submission does not say it.

Our own submissions name the collections by which they are held. Other services name only the profile: so a batch or a
job of theirs gets a document that names them as soon as it would begin, and rests if one of them is on hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waybill.apps.ingest import submission
from waybill.apps.ingest.machine.holding import MARK
from waybill.apps.ingest.outfit import outfit_of
from waybill.record import Record
from waybill.step import Context, Wait


def belonging(record: Record, ctx: Context) -> dict[str, Any]:
    """The document of a record that needs it. Safe to repeat: one that has it gets no other."""
    said = submission.of_batch(record) if record.kind == "batch" else submission.of_job(record)
    if said.checked or said.collections or not said.profile:
        return {}
    outfit = outfit_of(ctx)
    found = outfit.mnemonics(ctx, outfit.profile(ctx, said))
    return {"collections": {"mnemonics": list(found)}} if found else {}


def on_hold(found: Mapping[str, Any], ctx: Context) -> Wait | None:
    """Not yet, if one of the collections just found is on hold: it is let go with the document, and the next claim
    lays it to rest.
    """
    names = found["collections"]["mnemonics"] if found else []
    marks = ctx.call(lambda store: store.marks()) if names else {}
    held = next((name for name in names if f"{MARK}{name}" in marks), None)
    return Wait(0, f"Its collection {held} is on hold.", docs=found) if held is not None else None
