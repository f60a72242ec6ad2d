"""Downloading: the files of a job come into its working folder, whole and compared with what was promised.

    1. Room is asked for, as in Provisioning: normally it was granted there. Others may have led the job here, or its entry was swept.
    2. The files come, several at a time, into this attempt's own folder; what earlier attempts have is taken over or resumed.
    3. A container is looked into. What it unpacks to needs room too; without it the job waits, and keeps the container. After a while it
       gives that up as well: two that wait for each other's room would wait for ever.
    4. It is unpacked. A file that was sent as a file is not opened, whatever it is.
    5. All of it becomes `producer/` of the job's folder, and `downloaded` says what every file must be.

A size is what a server said when it was asked, and it may say another when the file is fetched: then room is asked for
before anything of that is written (offers.py). Also more may come than it says: then room is granted bit by bit, as
long as there is any. What becomes of a job for which there is none is in shortage.py.

A file that cannot be had for good (404, a wrong digest) fails the job, with a reason for each; trouble is tried again.
Of a payload that is itself a file or a container a wrong digest is final.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from waybill.apps.ingest import lists, submission
from waybill.apps.ingest.checkm import Row
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.room import FULL
from waybill.apps.ingest.steps import payload
from waybill.apps.ingest.steps.estimating import known, weighed
from waybill.apps.ingest.steps.gathering import Gathered, Gathering, finished
from waybill.apps.ingest.steps.held import PRODUCER, Held, held
from waybill.apps.ingest.steps.offers import Offers
from waybill.apps.ingest.steps.owning import owned
from waybill.apps.ingest.steps.pending import listed
from waybill.apps.ingest.steps.provisioning import ask, needed, unasked
from waybill.apps.ingest.steps.publishing import publish
from waybill.apps.ingest.steps.refusal import Trouble, Unfit, cleared, gathered, refused
from waybill.apps.ingest.steps.shortage import clear_earlier, disk_is_full, give_up_what_is_held, offered_more, outgrown
from waybill.apps.ingest.steps.unwrapping import unpacked_size, unwrap
from waybill.apps.ingest.submission import Type
from waybill.record import Record
from waybill.step import Context, Done, Outcome, Wait

_CONTAINER = "container"


def downloading(job: Record, ctx: Context) -> Outcome:
    room = outfit_of(ctx).room
    try:
        outcome = _fetched(job, ctx)
    except Unfit as error:
        room.leave(job.id)  # safe to repeat; and a sweep would do it
        raise refused(ctx, error) from None
    except OSError as error:
        if error.errno not in FULL:
            raise
        return disk_is_full(job, ctx)
    if isinstance(outcome, Done):
        room.leave(job.id)
    return outcome


def _fetched(job: Record, ctx: Context) -> Outcome:
    waits = _asked(job, ctx)
    if waits:
        return waits
    docs: dict[str, Any] = {}
    if "files" not in job.docs:  # it was led here by another service
        docs["files"] = listed(job, ctx)
    files: dict[str, Any] = docs.get("files") or job.docs["files"]
    found = _container(job, ctx, files) if files.get("type") == Type.CONTAINER else _files(job, ctx, files)
    if isinstance(found, Wait):
        return found
    return _published(job, ctx, docs, files, found)


def _asked(job: Record, ctx: Context) -> Wait | None:
    """Room for all of it; what lies there from earlier attempts is not asked for again."""
    need = needed(job)
    waits = ask(job, ctx, need)
    if waits and (have := finished(ctx)):
        waits = ask(job, ctx, need, have=have)
    if waits:
        give_up_what_is_held(job, ctx)
    return waits


def _size_of(folder: Path) -> int:
    """Bytes of all files in it."""
    return sum((Path(place) / name).lstat().st_size for place, _, files in os.walk(folder) for name in files)


# --- the files


def _files(job: Record, ctx: Context, files: dict[str, Any]) -> list[Held] | Wait:
    """Rows of a manifest, or the one file; in their order."""
    rows = list(lists.each(ctx.objects, files, Row))  # no more than a manifest has
    single = files.get("type") != Type.OBJECT
    came = _gather(job, ctx, rows, PRODUCER, single=single, many=len(rows) > 1)
    if isinstance(came, Wait):
        return came
    return [held(row.name, came.came[row.name].size, came.came[row.name].sha256, row.mime) for row in rows]


def _gather(job: Record, ctx: Context, rows: list[Row], folder: str, *, single: bool, many: bool) -> Gathered | Wait:
    room, total, full = outfit_of(ctx).room, needed(job), False
    granted = outfit_of(ctx).settings.room.unknown if total is None else total
    limit = min(granted, room.portion)  # a small job never tells
    offers = Offers(ctx, job.id, granted)

    def told(count: int) -> None:
        nonlocal limit, full
        ctx.progress(count, total, "bytes")
        offers.came = count
        if count > limit and not full:
            may = room.update(job.id, count, ctx.now())
            limit, full = may or limit, may is None

    promised = payload.of(submission.of_job(job)) if single else None
    gathering = Gathering(
        ctx, ctx.workdir / folder, many=many, full=lambda: full or offers.refused, told=told, offered=offers.take
    )
    found = gathering.run(rows, promised)
    if not found.failed:
        return found
    if offers.refused:
        return offered_more(job, ctx, offers.total, found.failed)
    if full or room.full():
        have = _size_of(ctx.workdir)
        return disk_is_full(job, ctx) if have <= offers.granted else outgrown(job, ctx, rows, have, found.failed)
    reasons = found.reasons
    if any(each.permanent for each in found.failed):
        final = single and any(each.mismatch for each in found.failed)
        what = "The payload" if single else f"{len(reasons)} of {len(rows)} files"
        raise Unfit(f"{what} could not be fetched: {gathered(reasons)}", reasons, final=final)
    raise Trouble(f"{len(reasons)} of {len(rows)} files could not be fetched: {gathered(reasons)}")


# --- a container


def _container(job: Record, ctx: Context, files: dict[str, Any]) -> Iterable[Held] | Wait:
    (row,) = lists.each(ctx.objects, files, Row)
    row = Row(0, row.url, _CONTAINER, row.algorithm, row.digest, row.size)  # whatever it is called: it does not stay
    came = _gather(job, ctx, [row], _CONTAINER, single=True, many=True)
    if isinstance(came, Wait):
        return came
    path, packed = ctx.workdir / _CONTAINER / _CONTAINER, came.came[_CONTAINER].size
    unpacked = unpacked_size(ctx, path)
    waits = ask(job, ctx, packed + unpacked, have=packed, docs={"space_needed": packed + unpacked})
    if waits:
        return waits
    done = 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        ctx.progress(done, unpacked, "bytes unpacked")

    found = unwrap(ctx, path, ctx.workdir / PRODUCER, told)
    path.unlink()
    return (held(file.name, file.size, file.sha256) for file in found.files())


# --- the end


def _published(job: Record, ctx: Context, docs: dict[str, Any], files: dict[str, Any], found: Iterable[Held]) -> Done:
    total = 0

    def counted() -> Iterable[Held]:
        nonlocal total
        for file in found:
            total += file.size
            yield file

    # Safe to repeat: the name is this attempt's own.
    kept = lists.keep(ctx.objects, f"ingest/lists/job/{job.id}/{ctx.attempt}/downloaded", counted())
    publish(ctx, PRODUCER)
    clear_earlier(ctx)
    docs["downloaded"] = {**kept, "attempt": ctx.attempt, "bytes": total}
    if job.docs.get("space_needed") != known(total):
        docs["space_needed"] = known(total)
    urgency, changed = weighed(job, files, known(total), outfit_of(ctx).settings.fetch.large)
    return Done({**docs, **changed, **owned(job, ctx), **unasked(job), **cleared(job)}, priority=urgency)
