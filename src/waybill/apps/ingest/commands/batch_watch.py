"""`waybill ingest watch`: follow a batch to its end.

In a terminal it shows a live display, in a pipe a line for each change, with --json JSON lines. It ends when the batch
has settled, with exit code 1 if anything in it failed, or when the batch is held, because then nobody knows when it
goes on. While the store is unavailable it waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from waybill import views
from waybill.apps.ingest import service
from waybill.apps.ingest.commands.batches import BATCH, describe_job, find_failures, print_failures
from waybill.apps.ingest.commands.support import MIN_LOOK_INTERVAL, NO_WORKER, register_command
from waybill.apps.ingest.submission import Submission
from waybill.cli import terminal
from waybill.cli.command_context import CommandContext
from waybill.cli.watch import StoreRetry
from waybill.engine import Engine
from waybill.errors import FAILED
from waybill.record import Record, RecordNotFound, Ref, Store
from waybill.text_format import clip_line

PANEL = "Deposits"
MAX_JOBS_READ = 200  # jobs of which each snapshot reads why they wait
MAX_SHOWN = 20  # waiting jobs, running steps and objects shown
BatchSnapshot = dict[str, Any]
INTERVAL = Annotated[
    float, typer.Option("--interval", min=MIN_LOOK_INTERVAL, max=3600, help="Seconds between two reads, at most.")
]


def register(app: typer.Typer) -> None:
    register_command(
        app,
        "watch",
        panel=PANEL,
        examples=("waybill ingest watch bid0000000001", "waybill ingest watch bid0000000001 --json"),
    )(watch)


def watch(context: CommandContext, id: BATCH, interval: INTERVAL = 1.0) -> int | None:
    """Follow a batch until it has settled; exit code 1 if anything in it failed, or if it is held."""
    with context.open_engine() as engine:
        return follow_batch(context, engine, service.find_batch(engine, id).ref, interval)


def follow_batch(context: CommandContext, engine: Engine, ref: Ref, interval: float = 1.0) -> int | None:
    store = engine.store
    last: Record | None = None
    before: BatchSnapshot | None = None
    with ExitStack() as stack:
        live = context.out.is_terminal and not context.as_json
        screen = stack.enter_context(Live(console=context.out, auto_refresh=False, transient=True)) if live else None
        retry = StoreRetry(context.print_line if live else context.print_note)  # printed above the live display
        for batch, snapshot in _iter_snapshots(context, retry, store, ref, interval):
            if screen is not None:
                screen.update(_render_snapshot(snapshot), refresh=True)
            elif snapshot != before:
                _print_snapshot(context, snapshot, before)
            last, before = batch, snapshot
    if screen is not None and before is not None:
        _print_snapshot(context, before, None)  # the live display is gone
    return _print_outcome(context, engine, last, ref)


def _iter_snapshots(
    context: CommandContext, retry: StoreRetry, store: Store, ref: Ref, interval: float
) -> Iterator[tuple[Record, BatchSnapshot]]:
    warned = False
    while True:
        started = time.monotonic()
        try:
            batch, snapshot, worker_count = retry(lambda: _read_snapshot(context, store, ref))
        except RecordNotFound:  # settled, and removed meanwhile
            return
        yield batch, snapshot
        if not batch.open or batch.state == "Held":
            return
        if not worker_count and not warned:
            warned = True
            context.print_note(NO_WORKER)
        left = max(0.0, interval - (time.monotonic() - started))
        retry(partial(store.watch, left))
        if (left := MIN_LOOK_INTERVAL - (time.monotonic() - started)) > 0:
            time.sleep(left)


def _read_snapshot(context: CommandContext, store: Store, ref: Ref) -> tuple[Record, BatchSnapshot, int]:
    """Return the batch, what is shown of it, and the number of live workers."""
    (batch,) = views.refresh_messages([store.get(*ref)], context.environment.machines, store, documents=True)
    sessions = views.list_live_sessions(store)
    snapshot = {
        "batch": batch.id,
        "state": batch.state,
        "message": batch.message,
        "jobs": {state: count for state, count in store.count_by_state("job", parent=ref).items() if count},
        "waits": [
            {"id": job.id, "state": job.state, "message": job.message}
            for job in _find_waiting_jobs(context, store, ref)
        ],
        "steps": list(islice(_iter_steps(context, store, ref, views.progress_of(sessions)), MAX_SHOWN)),
    }
    return batch, snapshot, len(sessions)


def _iter_steps(context: CommandContext, store: Store, ref: Ref, progress: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the running steps of this batch, as its workers report them."""
    for name in progress:
        kind, _, id = name.partition(" ")
        if kind != "job":
            continue
        try:
            job = store.get(kind, id)
        except RecordNotFound:
            continue
        if job.parent == ref:
            shown = views.to_record_view(job, context.environment.machines, progress=progress)["progress"]
            yield {"id": id, "what": describe_job(job), "state": job.state, "progress": shown}


def _find_waiting_jobs(context: CommandContext, store: Store, ref: Ref) -> list[Record]:
    """Return jobs that say why they wait: no disk space, an unavailable server.

    Only the first jobs of the batch are read, so that a snapshot is quick.
    """
    waiting = (job for job in store.find("job", parent=ref, limit=MAX_JOBS_READ).records if job.open and job.message)
    return views.refresh_messages(
        list(islice(waiting, MAX_SHOWN)), context.environment.machines, store, documents=False
    )


def _render_snapshot(snapshot: BatchSnapshot) -> RenderableType:
    total = max(1, sum(snapshot["jobs"].values()))
    parts: list[RenderableType] = [
        Text(f"{snapshot['batch']}  {snapshot['state']}  {snapshot['message']}".rstrip(), style="bold")
    ]
    table = terminal.make_table("", "", "")
    table.show_header = False
    for state, count in snapshot["jobs"].items():
        table.add_row(f"  {state}", str(count), "█" * max(1, round(30 * count / total)))
    parts.append(table)
    for wait in snapshot["waits"]:
        parts.append(Text(f"  {wait['id']}  {wait['state']}  {clip_line(wait['message'])}", style="yellow"))
    for step in snapshot["steps"]:
        parts.append(
            Text(
                f"  {step['id']}  {step['state']}  {terminal.format_progress(step['progress'])}  {clip_line(step['what'], 40)}"
            )
        )
    return Group(*parts)


def _print_snapshot(context: CommandContext, snapshot: BatchSnapshot, before: BatchSnapshot | None) -> None:
    if context.as_json:
        return context.print_json({"at": views.format_time(time.time()), **snapshot}, line=True)
    if before is None or any(snapshot[part] != before[part] for part in ("state", "jobs")):
        jobs = ", ".join(f"{count} {state}" for state, count in snapshot["jobs"].items())
        context.print_line(f"{snapshot['batch']} {snapshot['state']}: {jobs or snapshot['message'] or 'no jobs yet'}")
    for wait in snapshot["waits"]:
        if before is None or wait not in before["waits"]:
            context.print_line(f"  {wait['id']} {wait['state']}: {wait['message']}")
    for step in snapshot["steps"]:
        if before is not None and step not in before["steps"]:
            context.print_line(f"  {step['id']} {step['state']} {terminal.format_progress(step['progress'])}")
    context.out.file.flush()
    return None


def _print_outcome(context: CommandContext, engine: Engine, batch: Record | None, ref: Ref) -> int | None:
    """Print the objects that were made, or what failed and why; return the exit code."""
    if batch is None:
        context.print_note(f"{ref} was removed meanwhile.")
        return FAILED
    store = engine.store
    view = service.build_batch_view(engine, batch) | find_failures(store, batch)
    completed = batch.state == "Completed"
    objects = list(islice(_iter_objects(store, ref), MAX_SHOWN))
    if context.as_json:
        context.print_json({"at": views.format_time(time.time()), **view, "objects": objects}, line=True)
        return None if completed else FAILED
    if batch.state == "Held":
        hold_names, holds = context.get_machine("batch").hold_names, store.list_holds()
        held = [name.partition("/")[2] for name in (hold_names(batch) if hold_names else ()) if name in holds]
        release = f"--collection {held[0]}" if held else batch.id
        context.print_note(f"It is held until it is released: waybill ingest release {release}")
        return FAILED
    for each in objects:
        context.print_line(f"  {each['object']}  {each['what']}")
    if not completed:
        print_failures(context, view)
    return None if completed else FAILED


def _iter_objects(store: Store, batch: Ref) -> Iterator[dict[str, str]]:
    """Yield the objects that the completed jobs of the batch made."""
    for job in store.each("job", parent=batch, documents=True):
        if job.state == "Completed":
            yield {"object": Submission.from_job(job).primary_id, "job": job.id, "what": describe_job(job)}
