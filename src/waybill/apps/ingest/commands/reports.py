"""The command about reports: what the depositor was told of a batch, and telling him what has changed since."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from waybill.apps.ingest import lists, service
from waybill.apps.ingest.commands.batches import BATCH, what
from waybill.apps.ingest.commands.counter import outfit, serve, several
from waybill.apps.ingest.report import Told
from waybill.cli import shapes
from waybill.cli.desk import WHY, Desk
from waybill.cli.problems import Missing, Misuse
from waybill.record import NotFound, Record, Store

PANEL = "Deposits"
SHOWN = 20  # failures that are told with their reasons


def register(app: typer.Typer) -> None:
    serve(
        app,
        panel=PANEL,
        examples=(
            "waybill ingest report bid0000000001",
            "waybill ingest report bid0000000001 --jobs --json",
            "waybill ingest report bid0000000001 --send --why 'all that could be mended is'",
        ),
    )(report)


def report(
    desk: Desk,
    id: BATCH,
    jobs: Annotated[
        bool, typer.Option("--jobs", help="List every job of the report, with its state then, and why it had failed.")
    ] = False,
    send: Annotated[
        bool, typer.Option("--send", help="Mending has ended: tell the depositor what has changed since the last.")
    ] = False,
    why: WHY = "",
) -> None:
    """Show the last report of a batch; or, after mending, have the next one made and sent."""
    if send and jobs:
        raise Misuse("--send asks for a report that is not there yet; leave out --jobs.")
    with desk.engine() as engine:
        batch = service.find_batch(engine, id)
        if send:
            acted = engine.act(batch.ref, "report", who=desk.who, why=why)
            if desk.as_json:
                return desk.print_json({"id": batch.id, "state": acted.record.state})
            return desk.say(
                f"{batch.id} is {acted.record.state}: the report is written and sent once no job of it is at work."
            )
        told = batch.docs.get("status-report")
        if not isinstance(told, dict):
            raise Missing(
                f"{batch.id} is {batch.state} and not reported yet. `waybill ingest batch {batch.id}` says how it stands."
            )
        rows = list(_failures(engine.store, told)) if not desk.as_json else []
    if desk.as_json:
        shown = {key: value for key, value in told.items() if key != "jobs"}
        return desk.print_json({**shown, "jobs": [row.shown() for row in _all(desk, told)]} if jobs else shown)
    _say(desk, batch, told, rows)
    for row in _all(desk, told) if jobs else ():
        desk.say(f"  {row.id}  {row.state}{f': {row.message}' if row.message else ''}")
        for warning in row.reasons if row.state == "Completed" else ():
            desk.say(f"    {warning}")
    return None


def _say(desk: Desk, batch: Record, told: dict[str, Any], failures: list[tuple[str, str, str, str]]) -> None:
    counts, since = told.get("counts") or {}, told.get("since")
    desk.out.print(
        shapes.fields(
            [
                ("batch", batch.id),
                ("report", told.get("report")),
                ("written", told.get("last_modified")),
                ("result", told.get("status")),
                ("", told.get("reason")),
                ("completed", counts.get("completed")),
                ("failed", counts.get("failed")),
                ("deleted", counts.get("deleted")),
            ]
        )
    )
    if told.get("warnings"):
        desk.say(
            f"{several(told['warnings'], 'object')} completed with warnings: waybill ingest report {batch.id} --jobs lists them."
        )
    if isinstance(since, dict):
        desk.say(
            f"Since {since.get('last_modified')}: {since.get('completed', 0)} completed, {since.get('deleted', 0)} deleted, "
            f"{since.get('unresolved', 0)} unresolved."
        )
    for reason in (batch.docs.get("trouble") or {}).get("reasons", []):
        desk.say(f"  {reason}")
    if failures:
        made = shapes.table("failed", "what", "now", "why")
        for row in failures:
            made.add_row(*row)
        desk.out.print(made)


def _failures(store: Store, told: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """The first that had failed, and how they are now."""
    for id in told.get("failed_jobs", [])[:SHOWN]:
        try:
            job = store.get("job", id)
            yield id, what(job), job.state, job.message
        except NotFound:
            yield id, "", "removed", ""


def _all(desk: Desk, told: dict[str, Any]) -> Iterator[Told]:
    kept = told.get("jobs")
    return lists.each(outfit(desk).objects, kept, Told) if isinstance(kept, dict) else iter(())
