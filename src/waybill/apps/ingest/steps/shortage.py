"""Shortage: what becomes of a job whose room turns out too small while its files come.

    disk_is_full    others fill the disk: what has come stays, and it waits for what is missing
    offered_more    servers offer more than was estimated: nothing of that was taken; it waits for so much
    outgrown        more came than anybody said: it gives back all it has, so that others get on, and waits for twice as much

One that would need more than the disk has fails: it can never fit. Who has waited too long holds nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NoReturn

from waybill.apps.ingest import names
from waybill.apps.ingest.checkm import Row
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.room import DISK_IS_FULL
from waybill.apps.ingest.steps.provisioning import needed, tell_never, waiting
from waybill.apps.ingest.steps.refusal import Unfit
from waybill.record import Record
from waybill.step import Context, Wait
from waybill.transfer import Fetched


def give_up_what_is_held(job: Record, ctx: Context) -> None:
    """Who has waited too long holds nothing. Safe to repeat: earlier attempts are only a saving."""
    outfit = outfit_of(ctx)
    since = job.docs.get("room", {}).get("since", ctx.now())
    if ctx.now() - since > outfit.settings.room.patience:
        clear_earlier(ctx)
        outfit.room.give_back(job.id)


def clear_earlier(ctx: Context) -> None:
    for folder in ctx.earlier():
        if int(folder.name) < ctx.attempt:
            _clear(ctx, folder)


def _clear(ctx: Context, folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:  # a late worker still writes there; it goes with the job's folder
        ctx.log.info("%s could not be removed: %s", folder, error.strerror or error)


def disk_is_full(job: Record, ctx: Context) -> Wait:
    """Somebody else fills the disk: what has come stays, and is resumed when there is room again for all that is
    missing.
    """
    outfit_of(ctx).room.withdraw(job.id, needed(job), ctx.now())
    give_up_what_is_held(job, ctx)
    since = job.docs.get("room", {}).get("since", ctx.now())
    return waiting(job, ctx, {"since": since, "said": DISK_IS_FULL, "never": False})


def outgrown(job: Record, ctx: Context, rows: list[Row], have: int, failed: list[Fetched]) -> Wait:
    """More has come than was said, and there is no room for the rest.

    Where nobody knows where it ends, it waits for twice as much.
    """
    room, promised = outfit_of(ctx).room, sum(row.size or 0 for row in rows)
    need = promised if promised > have and all(row.size is not None for row in rows) else max(promised, 2 * have)
    # Safe to repeat: a second run begins with nothing, and comes to the same end, or to a better one.
    clear_earlier(ctx)
    _clear(ctx, ctx.workdir)
    most = room.most()
    if need > most:
        sentence = (
            f"It can never fit: {have:,} bytes have come, more are to come, and the working disk has {most:,} at most."
        )
        _never_fits(job, ctx, sentence, need, failed)
    room.withdraw(job.id, need, ctx.now(), outgrown=True)
    sentence = f"It has outgrown its room: {have:,} bytes have come, and the working disk is full. It waits for {need:,} to be free."
    return waiting(job, ctx, {"since": ctx.now(), "said": sentence, "never": False}, {"space_needed": need})


def offered_more(job: Record, ctx: Context, need: int, failed: list[Fetched]) -> Wait:
    """The servers offer more than was estimated, and there is no room for it: nothing of that was taken.

    What has come stays.
    """
    room = outfit_of(ctx).room
    most = room.most()
    if need > most:
        sentence = f"It can never fit: the servers offer {need:,} bytes, and the working disk has {most:,} at most."
        _never_fits(job, ctx, sentence, need, failed)
    room.withdraw(job.id, need, ctx.now())
    give_up_what_is_held(job, ctx)
    sentence = f"It waits for room: the servers offer {need:,} bytes, more than was estimated, and there is no room for so many now."
    since = job.docs.get("room", {}).get("since", ctx.now())
    return waiting(job, ctx, {"since": since, "said": sentence, "never": False}, {"space_needed": need})


def _never_fits(job: Record, ctx: Context, sentence: str, need: int, failed: list[Fetched]) -> NoReturn:
    tell_never(job, ctx, {"since": ctx.now(), "said": sentence, "never": True}, {"space_needed": need})
    reasons = [f"{names.shown(each.name)}: {sentence}" for each in failed if each.tries]  # of those that were under way
    raise Unfit(f"{sentence} Give it a larger disk, then resume.", reasons, final=False)
