"""Commands that show deposits: `waybill ingest` (the overview), `batches`, `batch`, `jobs` and `report`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

import typer
from rich.text import Text

from waybill import views
from waybill.apps.ingest import service
from waybill.apps.ingest.batch_report import ReportedJob
from waybill.apps.ingest.commands.support import register_command, resources_of
from waybill.apps.ingest.documents import BatchFailure, BatchReport, Refusal
from waybill.apps.ingest.job_space import space_needed_of
from waybill.apps.ingest.submission import Submission
from waybill.cli import terminal
from waybill.cli.command_context import WHY, CommandContext
from waybill.cli.followed_records import NO_WORKER
from waybill.cli.records import LIMIT, PAGE_TOKEN, check_state, find_page
from waybill.cli.terminal import format_size, pluralize
from waybill.errors import InputError, NotFound
from waybill.manifests import record_lists
from waybill.record import Record, RecordNotFound, Store
from waybill.text_format import clip_line, format_age, format_local_time
from waybill.views import ListQuery

PANEL = "Deposits"
KINDS = ("batch", "job", "access-small", "access-large")
ACTION_COMMANDS = {"report": "waybill ingest {} {} --send"}  # actions whose command is more than their name
MAX_FAILURES = 20  # failed jobs shown with a batch or a report

STATE = Annotated[str | None, typer.Option("--state", help="Only those in this state.")]
OLDEST = Annotated[bool, typer.Option("--oldest", help="Oldest first.")]
BATCH = Annotated[str, typer.Argument(metavar="BATCH", help="The batch's id, or its batchID (bid-UUID).")]


def register(app: typer.Typer) -> None:
    register_command(app, "overview", without_subcommand=True, examples=("waybill ingest", "waybill ingest --json"))(
        show_overview
    )
    register_command(
        app,
        "batches",
        panel=PANEL,
        examples=(
            "waybill ingest batches",
            "waybill ingest batches --state Failed",
            "waybill ingest batches --limit 10 --json",
        ),
    )(list_batches)
    register_command(
        app,
        "batch",
        panel=PANEL,
        examples=(
            "waybill ingest batch bid0000000001",
            "waybill ingest batch bid-5f0c7f0e-7d2b-4c6e-9d0a-3f1b2c4d5e6f --json",
        ),
    )(show_batch)
    register_command(
        app,
        "jobs",
        panel=PANEL,
        examples=(
            "waybill ingest jobs --state Failed",
            "waybill ingest jobs --batch bid0000000001",
            "waybill ingest jobs --limit 10 --json",
        ),
    )(list_jobs)
    register_command(
        app,
        "report",
        panel=PANEL,
        examples=(
            "waybill ingest report bid0000000001",
            "waybill ingest report bid0000000001 --jobs --json",
            "waybill ingest report bid0000000001 --send --why 'everything repairable is repaired'",
        ),
    )(report)


def show_overview(context: CommandContext) -> None:
    """Count deposits and assemblies by state, and show what is on hold or paused."""
    with context.open_store() as store:
        counts_by_kind = [
            views.to_state_counts_view(context.get_machine(kind), store.count_by_state(kind)) for kind in KINDS
        ]
        holds = {
            name: description
            for name, description in sorted(store.list_holds().items())
            if name.startswith(("collections/", "queue/"))
        }
        workers = len(views.list_live_sessions(store))
    if context.as_json:
        return context.print_json({"kinds": counts_by_kind, "holds": holds, "workers": workers})
    table = terminal.make_table("", "", "states")
    for counts in counts_by_kind:
        states = "  ".join(f"{count['state']} {count['count']}" for count in counts["states"] if count["count"])
        table.add_row(context.get_machine(counts["kind"]).plural, str(counts["total"]), states)
    context.out.print(table)
    for name, description in holds.items():
        context.print_line(
            f"{'on hold' if name.startswith('collections/') else 'paused'}: {name.partition('/')[2]} ({description.rstrip(': ')})"
        )
    if not workers:
        context.print_note(NO_WORKER)
    return None


def list_batches(
    context: CommandContext,
    state: STATE = None,
    limit: LIMIT = 30,
    page_token: PAGE_TOKEN = None,
    oldest: OLDEST = False,
) -> None:
    """List batches, the newest first, with the number of their jobs in each state."""
    with context.open_engine() as engine:
        query = ListQuery("batch", state, newest=not oldest)
        page, next_token = find_page(context, engine.store, query, page_token, limit, documents=True)
        rows = [service.build_batch_view(engine, record) for record in page.records]
    if context.as_json:
        return context.print_json({"batches": rows, "next": next_token})
    if not rows:
        if state:
            return context.print_note(f"No batch is {state}; `waybill ingest` counts them.")
        return context.print_note("There are no batches here. `waybill ingest submit FILE --profile P` makes one.")
    table = terminal.make_table("id", "state", "profile", "submitted", "jobs", "message")
    for row in rows:
        table.add_row(
            row["id"],
            _style_state(context, "batch", row["state"]),
            row["profile"],
            format_age(row["submitted"]),
            format_job_counts(row),
            clip_line(row["message"]),
        )
    context.out.print(table)
    if next_token:
        context.print_note(f"There are more: waybill ingest batches --page-token {next_token}")
    return None


def _style_state(context: CommandContext, kind: str, name: str) -> Text:
    state = context.get_machine(kind).find_state(name)
    return terminal.style_state(name, state.type if state is not None else None)


def format_job_counts(view: dict[str, Any]) -> str:
    return ", ".join(f"{count} {state}" for state, count in view["jobs"]["states"].items() if count)


def show_batch(context: CommandContext, id: BATCH) -> None:
    """Show a batch: what was submitted, the states of its jobs, what failed and why, and its last report."""
    with context.open_engine() as engine:
        record = service.find_batch(engine, id)
        view = service.build_batch_view(engine, record) | find_failures(engine.store, record)
        possible = views.to_record_view(record, context.environment.machines, store=engine.store)["actions"]
    if context.as_json:
        return context.print_json(view)
    context.out.print(
        terminal.make_field_table(
            [
                ("batch", view["id"]),
                ("batchID", view["batch_id"]),
                ("state", _style_state(context, "batch", view["state"])),
                ("", view["state_description"]),
                ("message", view["message"]),
                ("profile", view["profile"]),
                ("title", view["title"]),
                ("payload", view["filename"] or Submission.from_batch(record).url),
                ("type", view["type"]),
                ("mode", "update" if view["update"] else "add"),
                ("submitter", view["submitter"]),
                ("submitted", format_local_time(view["submitted"])),
                ("updated", format_local_time(view["updated"])),
                ("jobs", format_job_counts(view) or "none yet"),
            ]
        )
    )
    for remark in view["remarks"]:
        context.print_line(f"  {remark}")
    print_failures(context, view)
    if view["report"] is not None:
        context.print_note(f"\nwaybill ingest report {view['id']}: the last report to the depositor")
    for action in possible:
        if not action["why_not"]:
            context.print_note(
                f"{ACTION_COMMANDS.get(action['name'], 'waybill ingest {} {}').format(action['name'], record.id)}: {action['description']}"
            )
    return None


def find_failures(store: Store, batch: Record) -> dict[str, Any]:
    """Return the first failed jobs of a batch, and why they failed."""
    failed = store.count_by_state("job", parent=batch.ref).get("Failed", 0)
    jobs = (job for job in store.each("job", parent=batch.ref, documents=True) if job.state == "Failed")
    return {"failures": [_to_failure_view(job) for job in islice(jobs, min(failed, MAX_FAILURES))]}


def print_failures(context: CommandContext, view: dict[str, Any]) -> None:
    for reason in (view["failure"] or {}).get("reasons", []):
        context.print_line(f"  {reason}")
    if not view["failures"]:
        return
    table = terminal.make_table("failed", "what", "after", "why", unfolded=("failed",))
    for job in view["failures"]:
        table.add_row(job["id"], job["what"], job["last_done"] or "", job["reason"])
    context.print_line("")
    context.out.print(table)
    more = view["jobs"]["states"].get("Failed", 0) - len(view["failures"])
    if more > 0:
        context.print_note(f"and {more} more: waybill ingest jobs --batch {view['id']} --state Failed")
    if any(job["can_be_resumed"] for job in view["failures"]):
        context.print_note(f"waybill ingest resume --batch {view['id']} resumes those that can be.")


def _to_failure_view(job: Record) -> dict[str, Any]:
    refusal = job.find_document(Refusal)
    return {
        "id": job.id,
        "what": describe_job(job),
        "last_done": job.last_done,
        "reason": job.message,
        "reasons": refusal.reasons if refusal is not None else (),
        "can_be_resumed": refusal is None or not refusal.final,
    }


def describe_job(job: Record) -> str:
    """Return what a user knows a job by: its title, local ids, file name or URL."""
    deposit = Submission.from_job(job)
    return deposit.title or "; ".join(deposit.local_ids) or deposit.filename or deposit.url


def list_jobs(
    context: CommandContext,
    batch: Annotated[str | None, typer.Option("--batch", metavar="BATCH", help="Only jobs of this batch.")] = None,
    state: STATE = None,
    limit: LIMIT = 30,
    page_token: PAGE_TOKEN = None,
    oldest: OLDEST = False,
) -> None:
    """List jobs, the newest first: the state of each, what it waits for, and why it failed."""
    with context.open_engine() as engine:
        store = engine.store
        parent = service.find_batch(engine, batch).ref if batch is not None else None
        # the store filters by one of them: by the batch, which is narrower
        if parent is not None and state is not None:
            if page_token is not None:
                raise InputError("With --batch and --state together there are no pages: raise --limit.", code="usage")
            check_state(context.get_machine("job"), state, store)
            records, next_token = (
                list(
                    islice(
                        (job for job in store.each("job", parent=parent, documents=True) if job.state == state), limit
                    )
                ),
                None,
            )
        else:
            query = ListQuery("job", state, parent, newest=not oldest)
            page, next_token = find_page(context, store, query, page_token, limit, documents=True)
            records = page.records
        progress = views.progress_of(store.list_sessions())
        holds = store.list_holds() if any(record.state == "Held" for record in records) else {}
        rows = [_to_job_view(context, record, progress, holds) for record in records]
    if context.as_json:
        return context.print_json({"jobs": rows, "next": next_token})
    if not rows:
        return context.print_note("There are no jobs here.")
    table = terminal.make_table(
        "id", "batch", "state", "prio", "what", "object", "space", "", "message", unfolded=("id", "batch", "object")
    )
    for row in rows:
        table.add_row(
            row["id"],
            row["batch"],
            terminal.style_state(row["state"], row["type"]),
            str(row["priority"]),
            clip_line(row["what"], 40),
            row["object"],
            format_size(row["space_needed"]),
            terminal.format_progress(row["progress"]) or terminal.describe_wait(row),
            clip_line(row["message"]),
        )
    context.out.print(table)
    if next_token:
        context.print_note(f"There are more: waybill ingest jobs --page-token {next_token}")
    return None


def _to_job_view(
    context: CommandContext, job: Record, progress: dict[str, Any], holds: Mapping[str, str]
) -> dict[str, Any]:
    view: dict[str, Any] = dict(views.to_record_view(job, context.environment.machines, progress=progress))
    deposit = Submission.from_job(job)
    space = space_needed_of(job)
    copied = (
        "id",
        "state",
        "type",
        "priority",
        "message",
        "last_done",
        "resume_count",
        "session",
        "blocked_by",
        "wake_at",
        "locks",
        "progress",
    )
    return {name: view[name] for name in copied} | {
        "message": views.compose_record_message(context.get_machine("job"), job, holds),
        "batch": job.parent.id if job.parent else "",
        "object": deposit.primary_id,
        "local_ids": deposit.local_ids,
        "what": describe_job(job),
        "space_needed": space if isinstance(space, int) else None,
        "created": view["created"],
        "updated": view["updated"],
    }


def report(
    context: CommandContext,
    id: BATCH,
    jobs: Annotated[
        bool,
        typer.Option("--jobs", help="List every job of the report, with its state at that time and why it failed."),
    ] = False,
    send: Annotated[
        bool, typer.Option("--send", help="Send a new report: what has changed since the last one.")
    ] = False,
    why: WHY = "",
) -> None:
    """Show the last report of a batch; or, after repairs, have the next one written and sent."""
    if send and jobs:
        raise InputError("--send requests a report that does not exist yet; leave out --jobs.", code="usage")
    with context.open_engine() as engine:
        batch = service.find_batch(engine, id)
        if send:
            acted = engine.act(batch.ref, "report", who=context.who, why=why)
            if context.as_json:
                return context.print_json({"id": batch.id, "state": acted.record.state})
            return context.print_line(
                f"{batch.id} is {acted.record.state}: the report is written and sent when none of its jobs is open."
            )
        last_report = batch.find_document(BatchReport)
        if last_report is None:
            raise NotFound(
                f"{batch.id} is {batch.state} and has no report yet. `waybill ingest batch {batch.id}` shows its state."
            )
        rows = list(_iter_failures(engine.store, last_report)) if not context.as_json else []
    if context.as_json:
        shown = {key: value for key, value in batch.documents["status-report"].items() if key != "jobs"}
        return context.print_json(
            {**shown, "jobs": [row.to_document() for row in _iter_report_jobs(context, last_report)]} if jobs else shown
        )
    _print_report(context, batch, last_report, rows)
    for row in _iter_report_jobs(context, last_report) if jobs else ():
        context.print_line(f"  {row.id}  {row.state}{f': {row.message}' if row.message else ''}")
        for warning in row.reasons if row.state == "Completed" else ():
            context.print_line(f"    {warning}")
    return None


def _print_report(
    context: CommandContext, batch: Record, report: BatchReport, failures: list[tuple[str, str, str, str]]
) -> None:
    counts, since, failure = report.counts, report.since, batch.find_document(BatchFailure)
    context.out.print(
        terminal.make_field_table(
            [
                ("batch", batch.id),
                ("report", report.report),
                ("written", report.last_modified),
                ("result", report.status),
                ("", report.reason),
                ("completed", counts.completed),
                ("failed", counts.failed),
                ("deleted", counts.deleted),
            ]
        )
    )
    if report.warnings:
        context.print_line(
            f"{pluralize(report.warnings, 'object')} completed with warnings: waybill ingest report {batch.id} --jobs lists them."
        )
    if since is not None:
        context.print_line(
            f"Since {since.last_modified}: {since.completed} completed, {since.deleted} deleted, {since.unresolved} unresolved."
        )
    for reason in failure.reasons if failure is not None else ():
        context.print_line(f"  {reason}")
    if failures:
        table = terminal.make_table("failed", "what", "now", "why", unfolded=("failed",))
        for row in failures:
            table.add_row(*row)
        context.out.print(table)


def _iter_failures(store: Store, report: BatchReport) -> Iterator[tuple[str, str, str, str]]:
    """Yield the first failed jobs of a report with their state now."""
    for id in report.failed_jobs[:MAX_FAILURES]:
        try:
            job = store.get("job", id)
            yield id, describe_job(job), job.state, job.message
        except RecordNotFound:
            yield id, "", "removed", ""


def _iter_report_jobs(context: CommandContext, report: BatchReport) -> Iterator[ReportedJob]:
    objects = resources_of(context).objects
    return record_lists.read_list(objects, report.jobs, ReportedJob) if report.jobs is not None else iter(())
