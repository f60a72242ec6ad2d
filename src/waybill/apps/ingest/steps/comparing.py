"""Comparing: whether the jobs that another service makes of a batch are all there, by the rows of its payload.

Whoever takes a batch holds it, makes its jobs one by one in the order of its rows, then says Reporting and lets it go.
While he lives nobody looks here; what is looked at here was ended by him, or abandoned. A batch that lacks jobs is
looked at for a while, since he may have lost no more than his lock. Then

    the first rows have their jobs, the last have none, and he never said Reporting     the last are made here (`admitting`)
    rows have no job in any other way                                                   the report fails the batch, and names them
    the payload cannot be read here                                                     his jobs count as all; without his word the report
                                                                                        says that nobody could compare them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from waybill.apps.ingest import names, submission
from waybill.apps.ingest.checkm import BadManifest, Row
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.steps.contents import contents
from waybill.apps.ingest.steps.refusal import Trouble, Unfit
from waybill.apps.ingest.submission import Submission, Type
from waybill.record import Record
from waybill.step import Context, Wait

PATIENCE = 600.0  # seconds in which nothing comes, after which nothing more is awaited
LOOK = 5.0
PAGE = 500  # jobs read at once
NAMED = 10  # rows that a message names
MOST_REASONS = 100  # complaints that the document keeps


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs of a batch are, beside the rows of its payload."""

    jobs: int
    kind: Type | None = None
    rows: Sequence[Row] = ()  # all of them
    bare: Sequence[Row] = ()  # those of which no job is known
    strange: int = 0  # jobs of which no row is known: each may be that of a bare row
    unknown: str = ""  # why nothing can be compared

    @property
    def lacking(self) -> int:
        return max(0, len(self.bare) - self.strange)

    @property
    def whole(self) -> bool:
        return bool(self.jobs) and not self.lacking and not self.unknown

    @property
    def begun(self) -> bool:
        """Whether the first rows have a job each and the last have none, as one leaves them who dies while he makes
        them.
        """
        return bool(self.bare) and not self.strange and list(self.bare) == list(self.rows[self.jobs :])


def looked_at(batch: Record, ctx: Context) -> Wait | Found:
    """What there is, once it is whole, or has not become more for a while."""
    jobs = sum(ctx.tally("job", parent=batch.ref).values())
    plan = batch.docs.get("plan", {})
    same = "awaited" in plan and plan.get("jobs", 0) == jobs
    if same and not _was_whole(batch, jobs) and ctx.now() - float(plan["awaited"]) < PATIENCE:
        return Wait(LOOK, batch.message)
    found = compared(batch, ctx, jobs)
    if found.whole or same or (found.unknown and found.jobs):
        return found
    return Wait(LOOK, _awaits(found), docs={"plan": {"awaited": ctx.now(), "jobs": jobs}})


def compared(batch: Record, ctx: Context, jobs: int) -> Found:
    """Its jobs beside its rows."""
    said = submission.of_batch(batch)
    if not jobs or _was_whole(batch, jobs) or not (said.url or (said.type and said.type.batch)):
        return Found(jobs=jobs)  # what lists nothing is one object, and one job is all of it
    if not said.url:
        return Found(jobs=jobs, unknown="its submission does not say where its manifest is")
    try:
        kind, manifest = contents(ctx, said)
    except (Unfit, BadManifest) as error:
        return Found(jobs=jobs, unknown=f"its manifest cannot be read: {error}".rstrip("."))
    except Trouble as error:
        if batch.tries + 1 < 2 * outfit_of(ctx).settings.fetch.tries:
            raise  # the state's back-off, then again
        return Found(jobs=jobs, unknown=f"its manifest cannot be read: {error}".rstrip("."))
    return _beside(manifest.rows, _configurations(batch, ctx), kind) if manifest is not None else Found(jobs=jobs)


def _was_whole(batch: Record, jobs: int) -> bool:
    """Whether all were there once: those that are gone since were deleted, and removed by others."""
    return 0 < jobs <= int(batch.docs.get("plan", {}).get("compared", 0))


def _beside(rows: Sequence[Row], jobs: Iterator[Submission], kind: Type) -> Found:
    """A job is its row's by the address of its payload; one that names none, by the name of its file."""
    urls, files = {row.url for row in rows}, {row.name for row in rows}
    by_url, by_file = Counter[str](), Counter[str]()
    count = strange = 0
    for each in jobs:
        count += 1
        if each.url in urls:
            by_url[each.url] += 1
        elif not each.url and each.filename in files:
            by_file[each.filename] += 1
        else:
            strange += 1
    bare = []
    for row in rows:
        if by_url[row.url]:
            by_url[row.url] -= 1
        elif by_file[row.name]:
            by_file[row.name] -= 1
        else:
            bare.append(row)
    return Found(jobs=count, kind=kind, rows=rows, bare=bare, strange=strange)


def _configurations(batch: Record, ctx: Context) -> Iterator[Submission]:
    after: int | None = None
    while True:
        page = ctx.find("job", parent=batch.ref, after=after, limit=PAGE, docs=True)
        yield from (submission.of_job(job) for job in page.records)
        if page.after is None:
            return
        after = page.after


# --- in words


def _awaits(found: Found) -> str:
    if not found.jobs:
        return "It waits for its first job, which is made by whoever made it."
    return f"It waits for {found.lacking} of its {len(found.rows)} jobs, which are made by whoever took it."


def complaint(found: Found) -> dict[str, Any] | None:
    """The document `trouble` of a batch that lacks jobs; None if nothing is to be said."""
    if found.lacking:
        first = ", ".join(names.shown(row.name) for row in found.bare[:NAMED])
        more = f" and {len(found.bare) - NAMED} more" if len(found.bare) > NAMED else ""
        among = " They are among" if found.strange else " They are"
        rest = " Submit them again as a batch of their own."
        reason = f"{found.lacking} of its {len(found.rows)} objects have no job.{among} {first}{more}.{rest}"
        return trouble(reason, [f"Line {row.line}: no job was made for {names.shown(row.name)}." for row in found.bare])
    return None


def remark(batch: Record, found: Found) -> str:
    """What the report says of a batch that could not be compared, and of which nobody said that its jobs are all."""
    if not (found.unknown and batch.docs.get("plan", {}).get("unsaid")):
        return ""
    return (
        f"The service that took it made {found.jobs} jobs and has not said that these are all, and {found.unknown}. "
        "Compare them with what was to be ingested, and submit what is missing."
    )


def trouble(reason: str, reasons: Sequence[str] = ()) -> dict[str, Any]:
    """Why there are no jobs: the first reasons with their lines, and how many there are."""
    every = list(reasons) or [reason]
    return {"reason": reason, "reasons": [each[:500] for each in every[:MOST_REASONS]], "count": len(every)}
