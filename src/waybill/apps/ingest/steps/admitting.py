"""Admitting: a batch becomes jobs, one for each object of its payload.

    Pending      takes the batch on; nothing is fetched here
    Processing   reads the payload, makes the jobs in portions, and waits until all of them have settled

What cannot be read makes no jobs: the document `trouble` says why, line by line, and the batch goes on to its report,
which says so.

Others may make batches, and jobs of them, too. Those that they leave undone are made here, where it is plain which they
are (`comparing`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec

from waybill.apps.ingest import lists, priority, submission
from waybill.apps.ingest.checkm import BadManifest, Complaint, Row, related
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.report import queued
from waybill.apps.ingest.steps.belonging import belonging, on_hold
from waybill.apps.ingest.steps.comparing import LOOK, Found, looked_at, trouble
from waybill.apps.ingest.steps.contents import contents
from waybill.apps.ingest.steps.refusal import Trouble, Unfit
from waybill.apps.ingest.steps.turns import request_of
from waybill.apps.ingest.submission import Submission, Type
from waybill.record import Record, Unavailable, encode
from waybill.step import Context, Done, Fail, New, Outcome, Wait

PORTION = 200  # jobs made in one commit
# and bytes of their documents: a ZooKeeper transaction has at most 1 MiB, and names take room too
PORTION_BYTES = 300_000
LONGEST = 100_000  # bytes of the documents of one job
MOST_REMARKS = 20
_NAMES = uuid.UUID("6f3c1c5a-7c0e-5d53-9d0e-3b1f0f6d2a11")  # of the ids of jobs, which follow from their batch and row
_OF_ROWS = {Type.MANIFESTS: Type.OBJECT, Type.CONTAINERS: Type.CONTAINER, Type.FILES: Type.FILE}


def pending_batch(batch: Record, ctx: Context) -> Outcome:
    """Light: what is large about a batch comes later."""
    found = belonging(batch, ctx)
    if (held := on_hold(found, ctx)) is not None:
        return held
    docs = {**_afresh(batch), **found}
    if "spawned" in batch.docs:  # another service has let it begin again
        return Done(docs)
    if not submission.of_batch(batch).url or ctx.tally("job", parent=batch.ref):
        return Done(docs, message="Its jobs are made by whoever made it.")
    return Done({"spawned": {"count": 0, "whole": False}, **docs})


def _afresh(batch: Record) -> dict[str, Any]:
    """The documents of a batch that failed and begins again: what kept its jobs from being made is void, and none of
    them is made twice.
    """
    if "trouble" not in batch.docs:
        return {}
    count = batch.docs.get("spawned", {}).get("count", 0)
    docs: dict[str, Any] = {"trouble": None}
    if "spawned" in batch.docs:
        docs["spawned"] = {"count": count, "whole": False}
    if "plan" in batch.docs and not count:  # its payload is read anew, or its first job waited for
        docs["plan"] = None
    return docs


def processing_batch(batch: Record, ctx: Context) -> Outcome:
    """Make the jobs; and when all have settled, go on."""
    if to_be_made(batch):
        made = make_jobs(batch, ctx)
        return made if isinstance(made, Wait) else Done(no_jobs(batch, made), message=made["reason"])
    return Done() if "spawned" in batch.docs else _made_by_others(batch, ctx)


def _made_by_others(batch: Record, ctx: Context) -> Outcome:
    found = looked_at(batch, ctx)
    if isinstance(found, Wait):
        return found
    if found.whole:
        return Done({"plan": {"compared": found.jobs}})
    return _taken_over(batch, ctx, found) or Done({"plan": {**batch.docs.get("plan", {}), "unsaid": True}})


def _taken_over(batch: Record, ctx: Context, found: Found) -> Wait | None:
    """The jobs that nobody else makes any more are made here, if it is plain which they are: no row ever has two."""
    said = submission.of_batch(batch)
    begins = {"spawned": {"count": 0, "whole": False}}
    if not found.jobs and said.url:
        return Wait(0, "Whoever took it has made no job: they are made here.", docs={**begins, "plan": None})
    if not found.begun or found.kind is None:
        return None
    try:
        rows, remarks = _in_order(ctx, found.rows, said.owner or outfit_of(ctx).profile(ctx, said).owner, [])
        left = [
            msgspec.structs.replace(row, follows=tuple(line for line in row.follows if line >= found.bare[0].line))
            for row in rows[found.jobs :]
        ]
        plan = _planned(batch, ctx, said, found.kind, left, remarks)
    except Unavailable as error:
        return Wait(LOOK, f"Whose its local ids are cannot be asked now: {error}")
    except (Fail, BadManifest):  # then the report says which have no job
        return None
    words = f"Whoever took it has made {found.jobs} of its {len(rows)} jobs: the others are made here."
    return Wait(0, words, docs={**begins, "plan": {**plan, "others": found.jobs}})


def no_jobs(batch: Record, why: dict[str, Any]) -> dict[str, Any]:
    """The documents of a batch of which no more jobs are made."""
    return {"trouble": why, "spawned": {**batch.docs["spawned"], "whole": True}}


def to_be_made(batch: Record) -> bool:
    """Whether jobs of it are still to be made, and by us."""
    return "spawned" in batch.docs and not batch.docs["spawned"].get("whole")


# --- making jobs


def make_jobs(batch: Record, ctx: Context) -> Wait | dict[str, Any]:
    """Make them all, and wait for them; or say why there can be none.

    Safe to repeat: how many are made is in the commits that make them, and their order is always the same.
    """
    outfit, said = outfit_of(ctx), submission.of_batch(batch)
    said = msgspec.structs.replace(said, batch_id=said.batch_id or batch.id)
    if not said.profile:
        return trouble("It names no profile: its submission lacks one. Submit it again with a profile.")
    try:
        profile = outfit.profile(ctx, said)
    except Fail as error:
        return trouble(f"{error} Submit it again.")
    try:
        count, largest, remarks, rows, followed = _objects(batch, ctx, said, said.owner or profile.owner)
    except Unavailable as error:
        return Wait(LOOK, f"Whose its local ids are cannot be asked now: {error}")
    except Trouble as error:
        if batch.tries + 1 < 2 * outfit.settings.fetch.tries:
            raise  # the state's back-off, then again: some minutes in all, since nobody can resume a batch
        return trouble(f"{error} Submit it again when it can be had.")
    except Unfit as error:
        return trouble(error.reason, error.reasons)
    except BadManifest as error:
        return trouble(str(error), [str(each) for each in error.complaints])
    first = priority.first(count, profile.priority)
    jobs = (
        New("job", _documents(each), priority=first, request=request_of(batch.ref, line) if line in followed else None)
        for line, each in rows
    )
    letter = queued(batch, said, profile, outfit, count, ctx.now())
    portion = max(1, min(PORTION, PORTION_BYTES // largest))
    made = ctx.spawn_each(chain(jobs, letter), portion=portion)  # the letter in one commit with the last of the jobs
    told = {"remarks": remarks} if remarks else {}
    return Wait(
        0,
        docs={
            "spawned": {
                "count": made,
                "whole": True,
                "jobs": count + batch.docs.get("plan", {}).get("others", 0),
                **told,
            }
        },
    )


def _objects(
    batch: Record, ctx: Context, said: Submission, owner: str
) -> tuple[int, int, list[str], Iterable[tuple[int, Submission]], frozenset[int]]:
    """How many objects there are, the bytes of the longest documents among them, what is remarked on, what holds for
    each of them by its line, and which lines others follow.
    """
    plan = batch.docs.get("plan", {})
    if "type" in plan:
        objects = _of_rows(batch, said, Type(plan["type"]), lists.each(ctx.objects, plan, Row))
        return (
            plan["count"],
            plan["largest"],
            plan.get("remarks", []),
            objects,
            _followed(lists.each(ctx.objects, plan, Row)),
        )
    kind, manifest = contents(ctx, said)
    if manifest is None:
        one = msgspec.structs.replace(said, type=kind, job_id=said.job_id or job_id(said.batch_id, 0))
        return 1, _sized(one, 0), [], [(0, one)], frozenset()
    rows, remarks = _in_order(ctx, manifest.rows, owner, manifest.remarks)
    largest = _largest(batch, said, kind, rows)
    if len(rows) * largest > PORTION_BYTES or len(rows) > PORTION:
        # More than one commit will be needed, and the second must know the rows of the first, whatever the URL then
        # answers.
        ctx.save({"plan": _planned(batch, ctx, said, kind, rows, remarks)})
    return len(rows), largest, remarks, _of_rows(batch, said, kind, rows), _followed(rows)


def _planned(
    batch: Record, ctx: Context, said: Submission, kind: Type, rows: Sequence[Row], remarks: list[str]
) -> dict[str, Any]:
    # safe to repeat: this attempt's own
    kept = lists.keep(ctx.objects, f"ingest/lists/batch/{batch.id}/{ctx.attempt}/rows", rows)
    return {**kept, "type": kind.value, "largest": _largest(batch, said, kind, rows), "remarks": remarks}


def _largest(batch: Record, said: Submission, kind: Type, rows: Sequence[Row]) -> int:
    return max(_sized(each, line) for line, each in _of_rows(batch, said, kind, rows))


def _in_order(ctx: Context, rows: Sequence[Row], owner: str, remarks: list[Complaint]) -> tuple[list[Row], list[str]]:
    """The rows with those that they follow, also where only the inventory knows that they are of one object; and
    what is remarked on.
    """
    inventory = outfit_of(ctx).inventory

    def ark_of(local: str) -> str | None:
        ctx.check()
        return inventory.ark_of(owner, local)

    found, told = [], [str(each) for each in remarks[:MOST_REMARKS]]
    for row, ark in related(rows, ark_of):
        found.append(row)
        if ark and len(told) < MOST_REMARKS:
            words = f"It is for {ark}, as a row above is, by a local id that belongs to it: both become its versions, in this order."
            told.append(str(Complaint(row.line, words)))
    return found, [each[:500] for each in told]


def _followed(rows: Iterable[Row]) -> frozenset[int]:
    return frozenset(line for row in rows for line in row.follows)


def _of_rows(batch: Record, said: Submission, kind: Type, rows: Iterable[Row]) -> Iterator[tuple[int, Submission]]:
    """What the submission says holds for each object, unless its row says otherwise; identifiers are a row's own."""
    for row in rows:
        yield (
            row.line,
            msgspec.structs.replace(
                said,
                type=_OF_ROWS[kind],
                url=row.url,
                filename=row.name,
                size=row.size,
                digest_type="",
                digest_value="",
                received={},
                digests_of_row=row.digests,
                primary_id=row.primary_id,
                local_ids=row.local_ids,
                creator=row.creator or said.creator,
                title=row.title or said.title,
                date=row.date or said.date,
                job_id=job_id(said.batch_id, row.line),
                follows=tuple(request_of(batch.ref, line) for line in row.follows),
            ),
        )


def job_id(batch_id: str, row: int) -> str:
    """The same for the same row, so that a job made again is the same job to everyone who was told of it."""
    return f"jid-{uuid.uuid5(_NAMES, f'{batch_id} {row}')}"


def _documents(said: Submission) -> dict[str, Any]:
    return {"configuration": said.document(), "identifiers": said.identifiers(), "metadata": said.metadata()}


def _sized(said: Submission, line: int) -> int:
    """Bytes of the documents of its job, which no store could keep if somebody wrote a book into a title."""
    size = sum(len(encode(body)) for body in _documents(said).values())
    if size > LONGEST:
        raise BadManifest(
            [Complaint(line, "What is said of the object is too long: shorten its title, its creator, the note.")]
        )
    return size
