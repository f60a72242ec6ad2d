"""Damage: what a version that was just stored has of content that audits found damaged, and what is said of it.

A file that an update keeps is kept also if it is damaged: nothing better is at hand. The job says so, file by file
(caveats.py). What the deposit has brought anew was healed by storage (healing.py). All damaged content that the version
has is read once more, so that the inventory says of it what is true now.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from waybill.apps.ingest import names, submission
from waybill.apps.ingest.caveats import Caveats
from waybill.apps.ingest.outfit import Outfit, outfit_of
from waybill.apps.ingest.storage import Stored
from waybill.apps.ingest.submission import Submission
from waybill.index import Row
from waybill.objects import ObjectsError
from waybill.record import Record
from waybill.step import Context


def warned(job: Record, ctx: Context, version: Stored) -> dict[str, Any]:
    """The document `warnings`, where there is something to say. Safe to repeat: it says how things are."""
    found, said = Caveats(), submission.of_job(job)
    if not said.owner and outfit_of(ctx).stranger(ctx, said):
        found.add(
            f"{_profile(said)}: the object has no owner and is in no collection, and nobody is called or written to."
        )
    if said.update and version.version == 1:
        found.add("It was sent as an update, and there was nothing to update: this is the first version of the object.")
    if version.version > 1:
        _add_damaged(found, ctx, outfit_of(ctx), version)
    if not found.count:
        return {"warnings": None} if "warnings" in job.docs else {}
    return {"warnings": found.document()}


def _profile(said: Submission) -> str:
    return f"There is no profile {names.shown(said.profile)} here" if said.profile else "The deposit names no profile"


def _add_damaged(found: Caveats, ctx: Context, outfit: Outfit, version: Stored) -> None:
    known = {row["place"]: row for row in outfit.inventory.damaged_of(version.object)}
    if not known:
        return
    looked: dict[str, str] = {}
    with outfit.storage.manifest(version) as reader:
        for entry in reader:
            place = str(entry.extra.get("place", ""))
            if place not in known:
                continue
            if place not in looked:
                ctx.check()
                looked[place] = _looked_at(ctx, outfit, known[place])
            if looked[place]:
                found.add(
                    f"{names.shown(entry.uri)} is damaged in storage, and this version keeps it: {looked[place]} "
                    "Send it again in an update, or restore it from a copy."
                )


def _looked_at(ctx: Context, outfit: Outfit, row: Row) -> str:
    """What is wrong with it now; empty if nothing is any more."""
    try:
        finding = outfit.storage.check(row["ark"], row["place"], row["size"], row["sha256"])
    except ObjectsError:
        return str(row["result"])  # a place that cannot be read at all
    outfit.inventory.audited(row, finding, datetime.fromtimestamp(ctx.now(), UTC))
    return finding.words if finding is not None else ""
