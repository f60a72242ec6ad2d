"""The attempts of a part: what is noted of each, and how their data are removed."""

from __future__ import annotations

from msgspec.structs import replace

from waybill.apps.lots.attempt_data import attempt_prefix, remove_attempt_data, write_attempt_manifest
from waybill.apps.lots.declaration.documents import ArcDeclaration, DatasetDeclaration
from waybill.apps.lots.machine import MAX_ATTEMPTS_KEPT, PartAttempt, PartAttempts, PartDocument, SinkPart
from waybill.apps.lots.publishing import read_dataset
from waybill.apps.lots.resources import LotsResources
from waybill.apps.lots.units import Lot
from waybill.step import StepContext

ATTEMPTS_PREFIX = "lots/attempts"  # standard output and error


def new_attempt(
    ctx: StepContext, resources: LotsResources, arc: ArcDeclaration, part: PartDocument, lot: Lot
) -> PartAttempt:
    """Return an attempt that nobody else has the name of, whatever time it is: the claim is in it."""
    now = ctx.now()
    id = f"{int(now * 1000)}-g{part.generation}-p{part.number}-{ctx.claim_version}"
    sinks = tuple(
        SinkPart(sink.role, attempt_prefix(resources.locations, _dataset(ctx, sink.dataset), lot, id))
        for sink in arc.sinks
    )
    return PartAttempt(id, "running", part.workload, sinks, now, host=resources.host)


def with_attempt(attempts: PartAttempts, attempt: PartAttempt) -> PartAttempts:
    """Return the attempts with this one as it is now. Of many, those whose data are gone are forgotten."""
    kept = [each for each in attempts.attempts if each.id != attempt.id]
    while len(kept) >= MAX_ATTEMPTS_KEPT and kept[0].state == "removed":
        kept.pop(0)
    return replace(attempts, attempts=(*kept, attempt))


def remove_failed_attempts(
    ctx: StepContext,
    resources: LotsResources,
    arc: ArcDeclaration,
    lot: Lot,
    attempts: PartAttempts,
    *,
    at: str,
    include_complete: bool = False,
) -> PartAttempts:
    """Remove what attempts wrote that came to nothing, and verify it; returns them as they are now."""
    changed = attempts
    for attempt in attempts.attempts:
        if attempt.state == "removed" or (attempt.state == "complete" and not include_complete):
            continue
        for sink in arc.sinks:
            remove_attempt_data(
                resources.objects, resources.locations, _dataset(ctx, sink.dataset), lot, attempt.id, comment=attempt.message, at=at
            )  # fmt: skip
        changed = _replace_attempt(changed, replace(attempt, state="removed"))
    return changed


def list_failed_attempt(
    ctx: StepContext, resources: LotsResources, arc: ArcDeclaration, lot: Lot, attempt: PartAttempt, *, at: str
) -> PartAttempt:
    """Write what a failed attempt left into manifests of state `partial`."""
    sinks = []
    for sink in arc.sinks:
        manifest = write_attempt_manifest(
            resources.objects, resources.locations, _dataset(ctx, sink.dataset), lot, attempt.id, comment=attempt.message, at=at
        )  # fmt: skip
        known = next((each for each in attempt.sinks if each.role == sink.role), SinkPart(sink.role, ""))
        sinks.append(replace(known, manifest=manifest))
    return replace(attempt, state="partial", sinks=tuple(sinks))


def _replace_attempt(attempts: PartAttempts, attempt: PartAttempt) -> PartAttempts:
    return replace(attempts, attempts=tuple(attempt if each.id == attempt.id else each for each in attempts.attempts))


def _dataset(ctx: StepContext, id: str) -> DatasetDeclaration:
    return read_dataset(ctx.get, id).document(DatasetDeclaration)
