"""Reporting: when every job of a batch has settled, the depositor is told what became of them.

    Reporting         counts, lists and letter of all jobs -> Completed, or Failed when a job failed or none could be made
    UpdateReporting   the same after mending, told as what has changed since the last report

Jobs are read page by page and written as they come; the report keeps the list of all of them beside the record, for the
next report to be compared with. Letter and events are made in the commit that ends the state, and never without it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import IO, Any

from waybill.apps.ingest import caveats, lists, submission
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.report import (
    FIRST,
    Counts,
    Findings,
    Told,
    addressed,
    document,
    entry,
    in_short,
    reasons_of,
    told,
)
from waybill.apps.ingest.steps.admitting import make_jobs, no_jobs, to_be_made
from waybill.apps.ingest.steps.comparing import Found, compared, complaint, looked_at, remark, trouble
from waybill.notify import Attachment
from waybill.objects import NotFound
from waybill.record import NotFound as NoRecord
from waybill.record import Record, encode
from waybill.step import Context, Done, Fail, Outcome, Wait

PAGE = 500  # jobs read at once
INLINE = 4000  # bytes of a file that the letter itself may carry
IN_MEMORY = 1024 * 1024  # bytes of a file before it goes to disk
ID_BYTES = 200_000  # of all ids in the document: a znode must stay well below a megabyte
REPORTED = {"Completed": "completed", "Failed": "failed", "Deleted": "deleted"}


def reporting(batch: Record, ctx: Context) -> Outcome:
    docs: dict[str, Any] = {}
    note = ""
    if to_be_made(batch):  # others have led it here while its jobs were being made
        made = make_jobs(batch, ctx)
        if isinstance(made, Wait):
            return made
        docs = no_jobs(batch, made)
    elif "spawned" not in batch.docs:
        found = looked_at(batch, ctx)
        if isinstance(found, Wait):
            return found
        docs, note = _lacks(batch, found), remark(batch, found)
    # Another service may have let a batch begin again that was reported: the second report is another one, told as what
    # has changed.
    again = isinstance(batch.docs.get("status-report"), dict)
    return _report_again(batch, ctx, docs, note) if again else _report(batch, ctx, docs, 1, None, note)


def update_reporting(batch: Record, ctx: Context) -> Outcome:
    if "spawned" in batch.docs:
        return _report_again(batch, ctx, {})
    found = compared(batch, ctx, sum(ctx.tally("job", parent=batch.ref).values()))
    return _report_again(batch, ctx, _lacks(batch, found), remark(batch, found))


def _lacks(batch: Record, found: Found) -> dict[str, Any]:
    """What is to be said of jobs that others should have made; what was said of them before no longer counts."""
    said = complaint(found)
    docs: dict[str, Any] = {"plan": {"compared": found.jobs}} if found.whole else {}
    return {**docs, "trouble": said} if said or "trouble" in batch.docs else docs


def _report_again(batch: Record, ctx: Context, docs: dict[str, Any], note: str = "") -> Outcome:
    before = batch.docs.get("status-report")
    known = before if isinstance(before, dict) else {}
    number = known.get("report")
    return _report(batch, ctx, docs, number + 1 if isinstance(number, int) else 2, known, note)


def _report(
    batch: Record, ctx: Context, docs: dict[str, Any], number: int, before: Mapping[str, Any] | None, note: str
) -> Outcome:
    outfit, said, at = outfit_of(ctx), submission.of_batch(batch), ctx.now()
    try:
        profile = outfit.profile(ctx, said)
    except Fail:  # then nobody is named to whom the report could go; it is written all the same
        profile = Profile(name=said.profile)
    with_files = any(addressed(said, profile, outfit))
    found = _gathered(batch, ctx, before, with_files)
    found.number, found.since = number, str((before or {}).get("last_modified", ""))
    found.trouble, found.remark = docs.get("trouble", batch.docs.get("trouble")), note
    if not found.counts.total and not found.trouble:
        found.trouble = trouble("Nobody has made a job for it. Submit it again.")
        docs = {**docs, "trouble": found.trouble}
    if found.trouble and with_files:
        found.files.append(Attachment("trouble.json", text=encode(found.trouble).decode()))
    url = outfit.address("batches", batch.id, "report")
    docs = {**docs, "status-report": document(found, at, outfit.settings.tell.most_ids, url)}
    words = found.trouble["reason"] if found.trouble else ". ".join(filter(None, (in_short(found), found.remark)))
    # Safe to repeat: letter and events are made in this commit alone, and their numbers follow from the batch and the
    # report's own.
    return Done(
        docs,
        to="Completed" if found.good else "Failed",
        message=words,
        spawn=told(batch, said, profile, outfit, found, at),
    )


# --- looking at all jobs


def _gathered(batch: Record, ctx: Context, before: Mapping[str, Any] | None, with_files: bool) -> Findings:
    with ExitStack() as stack:
        look = _Look(batch, ctx, before, with_files, stack)
        # Safe to repeat: the name is this attempt's own.
        jobs = lists.keep(ctx.objects, f"{look.place}/jobs.jsonl", look.each())
        look.count_removed()
        return Findings(
            counts=look.counts,
            news=look.news,
            failed=look.ids["Failed"],
            completed=look.ids["Completed"],
            jobs=jobs,
            first=look.first,
            stored=look.stored,
            files=look.attachments(),
            warned=look.warned,
            warnings=look.warnings,
        )


class _Look:
    """One pass over the jobs of a batch, beside the list of the report before."""

    def __init__(
        self, batch: Record, ctx: Context, before: Mapping[str, Any] | None, with_files: bool, stack: ExitStack
    ) -> None:
        self._batch, self._ctx, self._stack = batch, ctx, stack
        self._update = before is not None
        self._with_files = with_files  # somebody will read of each job; else its documents are not read here either
        self.place = f"ingest/reports/{batch.id}/{ctx.attempt}"
        self.counts, self.news = Counts(), Counts()
        self.ids: dict[str, list[str]] = {"Completed": [], "Failed": []}
        self.first: list[dict[str, Any]] = []
        self.stored: list[dict[str, Any]] = []
        self.warned: list[dict[str, Any]] = []
        self.warnings = 0
        self._id_bytes = 0
        self._files: dict[str, _File] = {}
        kept = before.get("jobs") if before else None
        self._known: Iterator[Told] = lists.each(ctx.objects, kept, Told) if isinstance(kept, dict) else iter(())
        try:
            self._next = next(self._known, None)
        except NotFound:  # then all that is known is told as new
            self._known, self._next = iter(()), None

    def each(self) -> Iterator[Told]:
        """Every job in the order in which they were made; on the way everything is counted and written."""
        after: int | None = None
        while True:
            page = self._ctx.find("job", parent=self._batch.ref, after=after, limit=PAGE, docs=self._with_files)
            for job in page.records:
                self._take(job)
                yield Told.of(self._read_whole(job) if job.state == "Failed" or caveats.has_some(job) else job)
            if page.after is None:
                break
            after = page.after
        while self._next is not None:
            self._gone(self._next)

    def _read_whole(self, job: Record) -> Record:
        """With its documents, where the reasons are."""
        if self._with_files:
            return job
        with suppress(NoRecord):  # somebody removes it just now: then it is reported as it was read
            return self._ctx.get("job", job.id)
        return job

    def count_removed(self) -> None:
        """Jobs that were made and are no longer there: others remove a deleted job at once, and the report counts it
        all the same.
        """
        made = self._batch.docs["spawned"].get("jobs", 0) if "spawned" in self._batch.docs else 0
        self.counts.deleted += max(0, int(made) - self.counts.total)

    def attachments(self) -> list[Attachment]:
        return [
            self._files[state].attached(self._ctx, self.place)
            for state in ("failed", "completed", "deleted")
            if state in self._files
        ]

    def _take(self, job: Record) -> None:
        state = REPORTED.get(job.state)
        before = self._state_before(job)
        if state is None:
            return  # it has gone back to work: then this report's commit is refused, and it is written again later
        setattr(self.counts, state, getattr(self.counts, state) + 1)
        if state != "deleted" and self._id_bytes < ID_BYTES:
            self._id_bytes += len(job.id) + 3
            self.ids[job.state].append(job.id)
        warned = caveats.has_some(job)
        self.warnings += warned
        if self._update and before == job.state and state != "failed":
            return
        setattr(self.news, state, getattr(self.news, state) + 1)
        if self._with_files:
            told_of = entry(job, reasons_of(self._ctx.objects, job))
            self._file(state).write(told_of)
            named = {"failed": self.first, "completed": self.stored}.get(state)
            if named is not None and len(named) < FIRST:
                named.append(told_of)
            if warned and len(self.warned) < FIRST and told_of.get("warnings"):
                self.warned.append(told_of)

    def _state_before(self, job: Record) -> str | None:
        """What the report before said of it.

        Both lists are in the order of making, so that one pass over both is enough.
        """
        while self._next is not None and self._next.seq < job.seq:
            self._gone(self._next)
        if self._next is not None and self._next.id == job.id:
            state, self._next = self._next.state, next(self._known, None)
            return state
        return None

    def _gone(self, known: Told) -> None:
        self._next = next(self._known, None)
        if known.state == "Failed":
            self.news.deleted += 1

    def _file(self, state: str) -> _File:
        if state not in self._files:
            self._files[state] = _File(state, self._stack)
        return self._files[state]


class _File:
    """A file of the report, written as jobs come: {"failedJobs": [...]}."""

    def __init__(self, state: str, stack: ExitStack) -> None:
        self._name = f"{state}.json"
        # the stack closes it
        self._body: IO[bytes] = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=IN_MEMORY))  # noqa: SIM115
        self._body.write(b'{"%sJobs":[' % state.encode())
        self._empty = True

    def write(self, row: Mapping[str, Any]) -> None:
        self._body.write((b"\n" if self._empty else b",\n") + encode(row))
        self._empty = False

    def attached(self, ctx: Context, place: str) -> Attachment:
        self._body.write(b"\n]}\n")
        size = self._body.tell()
        self._body.seek(0)
        if size <= INLINE:
            return Attachment(self._name, text=self._body.read().decode())
        # Safe to repeat: the name is this attempt's own.
        ctx.objects.put(f"{place}/{self._name}", self._body, size=size)
        return Attachment(self._name, object=f"{place}/{self._name}")
