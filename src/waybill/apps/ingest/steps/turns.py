"""Turns: rows of one batch that name the same object become its versions in the order of the manifest.

Before a job asks for room it looks at the rows above it that name its object (the field `follows` of its configuration;
those jobs are found by the request that made them). While one of them is under way, this one waits, and holds nothing
meanwhile. One that has failed, is held, or was given up is passed over, and the rows above that one are looked at:
nobody waits for what may never come.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from waybill.apps.ingest import submission
from waybill.apps.ingest.machine.job import LIVE
from waybill.record import NotFound, Record, Ref, Store
from waybill.step import Context, Wait

LOOK = 5.0  # seconds until the next look, for each that is ahead
MOST = 12  # rows above that are counted
LOOKED_AT = 100  # rows above that are looked at

_AHEAD = frozenset(LIVE.split()) - {"Notify"}  # then it is stored, and recorded: its local ids are known
_PASSED_OVER = ("Failed", "Held", "Deleted")


def request_of(batch: Ref, line: int) -> str:
    """The request that makes the job of a row which others follow."""
    return f"{batch.id} {line}"


def awaited(job: Record, ctx: Context) -> Wait | None:
    """Not yet, while a row above it is under way for the same object."""
    follows = submission.of_job(job).follows
    ahead = ctx.call(partial(_ahead, follows)) if follows else []
    if not ahead:
        return None
    return Wait(
        LOOK * len(ahead), f"It waits for {ahead[0]}, which is for the same object and stands above it in the manifest."
    )


def _ahead(follows: Sequence[str], store: Store) -> list[str]:
    """The ids of those under way, the nearest first."""
    found: list[str] = []
    waiting, known = list(follows), set(follows)
    looked = 0
    while waiting and len(found) < MOST and looked < LOOKED_AT:
        looked += 1
        try:
            above = store.requested("job", waiting.pop(0))
        except NotFound:
            continue  # it was removed
        if above.state in _AHEAD:
            found.append(above.id)
        elif above.state not in _PASSED_OVER:
            continue
        more = [each for each in submission.of_job(above).follows if each not in known]
        known.update(more)
        waiting += more
    return found
