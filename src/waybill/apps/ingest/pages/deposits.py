"""Deposits as their depositor sees them: a list, one deposit live with its objects and its report, and parts of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Path, Query, Response

from waybill import views
from waybill.apps.ingest import service
from waybill.apps.ingest.documents import BatchReport, Refusal
from waybill.apps.ingest.machine.batch import BATCH
from waybill.apps.ingest.machine.job import JOB
from waybill.apps.ingest.pages.context import deposit_url, object_url
from waybill.apps.ingest.submission import Submission
from waybill.engine import Engine
from waybill.http.request_context import declare_role
from waybill.pages import PageContext, PageRequest
from waybill.record import Record, Store
from waybill.views import ListQuery

PAGE_LENGTH = 30
JOBS_SHOWN = 100  # of a deposit; the list of its jobs has all

BatchName = Annotated[str, Path(max_length=200)]


class DepositRow(NamedTuple):
    """A deposit in a list."""

    batch: Record
    submission: Submission
    counts: Mapping[str, int]  # jobs by state
    sentence: str
    tone: str

    @property
    def title(self) -> str:
        return self.submission.title or self.submission.filename or self.submission.batch_id

    @property
    def url(self) -> str:
        return deposit_url(self.batch.id)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def done(self) -> int:
        return sum(self.counts.get(state, 0) for state in (*JOB.ended, JOB.failed))


class ObjectRow(NamedTuple):
    """A job of a deposit: one object."""

    job: Record
    title: str
    ark: str
    object_url: str  # "": it is not in the inventory yet
    progress: Any
    reasons: tuple[str, ...]


def add_routes(router: APIRouter) -> None:
    @router.get("", **declare_role("reader", somewhere=True))
    def show_deposits(
        context: PageRequest,
        whose: Literal["mine", "all", ""] = "",
        state: Annotated[str, Query(max_length=100)] = "",
        page_token: str | None = None,
    ) -> Response:
        # who may act on all records looks at all of them; who deposits looks for their own
        chosen = whose or ("all" if context.can("operator") or not context.can("submitter") else "mine")
        owner = context.who if chosen == "mine" else None
        query = ListQuery("batch", state or None if owner is None else None, None, owner, newest=True)
        with context.open_reading_engine() as engine:
            page, next_token = context.find_page(
                engine.store, query, page_token, limit=PAGE_LENGTH, is_order_given=True
            )
            rows = [to_deposit_row(engine, batch) for batch in page.records]
            counts = engine.store.count_by_state("batch")
        return context.render(
            "ingest/deposits.html", rows=rows, next=next_token, whose=chosen, state=state, counts=counts, states=BATCH
        )

    @router.get("/deposits/{name}", **declare_role("reader", somewhere=True))
    def show_deposit(context: PageRequest, name: BatchName) -> Response:
        with context.open_reading_engine() as engine:
            batch = service.find_batch(engine, name)
            row = to_deposit_row(engine, batch)
            progress = views.progress_of(engine.store.list_sessions())
            jobs = engine.store.find("job", parent=batch.ref, limit=JOBS_SHOWN, documents=True).records
            machine, job_machine = engine.machines["batch"], engine.machines["job"]
            rows = [to_object_row(engine, job, progress) for job in jobs]
            actions = [
                action
                for action in views.to_record_view(batch, engine.machines, store=engine.store)["actions"]
                if context.access.may(batch, action["role"])
            ]
            view = service.build_batch_view(engine, batch)
        return context.render(
            "ingest/deposit.html",
            row=row,
            batch=view,
            machine=machine,
            job_machine=job_machine,
            rows=rows,
            report=batch.find_document(BatchReport),
            actions=actions,
            jobs_shown=JOBS_SHOWN,
            is_over=batch.state in BATCH.ended,
        )


def to_deposit_row(engine: Engine, batch: Record) -> DepositRow:
    counts = engine.store.count_by_state("job", parent=batch.ref)
    sentence, tone = describe_deposit(batch, counts)
    if batch.state == BATCH.held:
        sentence = views.compose_record_message(engine.machines["batch"], batch, engine.store.list_holds()) or sentence
    return DepositRow(batch, Submission.from_batch(batch), counts, sentence, tone)


def describe_deposit(batch: Record, counts: Mapping[str, int]) -> tuple[str, str]:
    """What becomes of a deposit, in one sentence for its depositor, and its tone."""
    total, stored, failed = sum(counts.values()), counts.get(JOB.completed, 0), counts.get(JOB.failed, 0)
    held = counts.get(JOB.held, 0)
    objects = f"{total:,} objects" if total != 1 else "object"
    if batch.state == BATCH.initial:
        return "It was received, and is read as soon as a worker is free.", "work"
    if batch.state == BATCH.held:
        return "It is held until an operator releases it. Nothing is lost.", "rest"
    if batch.state == BATCH.completed:
        return ("The object is stored and in the inventory." if total == 1 else f"All {objects} are done."), "end"
    if batch.state == BATCH.deleted:
        return "It was given up.", "unknown"
    if batch.state == BATCH.failed:
        if not total:
            return batch.message or "Its payload could not be read.", "bad"
        return (
            "The object could not be stored." if total == 1 else f"{failed:,} of {objects} could not be stored."
        ), "bad"
    if not total:
        return "Its payload is being read.", "work"
    parts = [f"{stored:,} of {total:,} {'object is' if total == 1 else 'objects are'} stored"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"{held:,} held"] if held else []
    return f"{', '.join(parts)}.", "bad" if failed else "work"


def to_object_row(engine: Engine, job: Record, progress: Mapping[str, Any]) -> ObjectRow:
    submission = Submission.from_job(job)
    refusal = job.find_document(Refusal) if job.state == JOB.failed else None
    view = views.to_record_view(job, engine.machines, progress=progress)
    return ObjectRow(
        job,
        submission.title or submission.filename or job.id,
        submission.primary_id,
        object_url(submission.primary_id) if job.state == JOB.completed and submission.primary_id else "",
        view["progress"],
        refusal.reasons if refusal is not None else (),
    )


def read_batch_part(context: PageContext, store: Store, batch: Record) -> Mapping[str, Any]:
    submission = Submission.from_batch(batch)
    return {"url": deposit_url(batch.id), "title": submission.title or submission.filename or submission.batch_id}


def read_job_part(context: PageContext, store: Store, job: Record) -> Mapping[str, Any]:
    submission = Submission.from_job(job)
    return {
        "title": submission.title or submission.filename,
        "ark": submission.primary_id,
        "url": object_url(submission.primary_id) if submission.primary_id else "",
        "is_recorded": job.state == JOB.completed,
        "local_ids": submission.local_ids,
        "deposit_url": deposit_url(job.parent.id) if job.parent is not None else "",
    }
