"""`waybill ingest watch`: follow a batch to its end.

It ends when the batch has settled, with exit code 1 if anything in it failed, or when the batch is held, because then
nobody knows when it goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

import typer

from waybill import views
from waybill.apps.ingest import service
from waybill.apps.ingest.commands.batches import BATCH, describe_job, find_failures, print_failures
from waybill.apps.ingest.commands.support import register_command
from waybill.apps.ingest.submission import Submission
from waybill.cli.command_context import CommandContext
from waybill.cli.followed_records import INTERVAL, follow_record
from waybill.engine import Engine
from waybill.errors import FAILED
from waybill.record import Record, Ref, Store

PANEL = "Deposits"
MAX_SHOWN = 20  # objects shown


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
    last = follow_record(context, engine.store, ref, interval=interval, describe=describe_job)
    return _print_outcome(context, engine, last, ref)


def _print_outcome(context: CommandContext, engine: Engine, batch: Record | None, ref: Ref) -> int | None:
    """Print the objects that were made, or what failed and why; return the exit code."""
    if batch is None:
        context.print_note(f"{ref} was removed meanwhile.")
        return FAILED
    store = engine.store
    view = service.build_batch_view(engine, batch) | find_failures(store, batch)
    completed = batch.state == "Completed" or view["report_due"]
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
    if view["report_due"]:
        context.print_note(view["message"])
    if not completed:
        print_failures(context, view)
    return None if completed else FAILED


def _iter_objects(store: Store, batch: Ref) -> Iterator[dict[str, str]]:
    """Yield the objects that the completed jobs of the batch made."""
    for job in store.each("job", parent=batch, documents=True):
        if job.state == "Completed":
            yield {"object": Submission.from_job(job).primary_id, "job": job.id, "what": describe_job(job)}
