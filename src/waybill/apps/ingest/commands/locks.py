"""Commands about what is locked: holds, pauses, and the keys of objects and local ids."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from waybill.apps.ingest import service
from waybill.apps.ingest.commands.counter import LIMIT, YES, serve, several
from waybill.cli import shapes
from waybill.cli.desk import WHY, Desk
from waybill.rules import Refused

PANEL = "Operating"
KEY = Annotated[str, typer.Argument(metavar="KEY", help="storage/ARK, inventory/ARK or localid/LOCALID_OWNER.")]


def register(app: typer.Typer) -> None:
    serve(app, panel=PANEL, examples=("waybill ingest locks", "waybill ingest locks --json"))(locks)
    serve(app, panel=PANEL, examples=("waybill ingest lock storage/ark:/99999/fk4abc --why 'it is being moved'",))(lock)
    serve(app, panel=PANEL, examples=("waybill ingest unlock storage/ark:/99999/fk4abc --yes",))(unlock)


def locks(
    desk: Desk,
    limit: LIMIT = 100,
    after: Annotated[
        str, typer.Option("--after", metavar="KEY", help="Go on after this key, the last of an earlier page.")
    ] = "",
) -> None:
    """List what is locked: queues that are paused, collections on hold, objects and local ids, and who holds each."""
    with desk.engine() as engine:
        marks = [mark for mark in service.marks(engine) if mark.sort != "other"]
        rows = list(service.locks(engine, after=after, limit=limit))
    further = rows[-1]["key"] if len(rows) == limit else None
    if desk.as_json:
        return desk.print_json({"marks": msgspec.to_builtins(marks), "locks": rows, "next": further})
    if not marks and not rows:
        return desk.note("Nothing is locked, held or paused.")
    made = shapes.table("lock", "", "by")
    for mark in marks:
        made.add_row(mark.mark, "on hold" if mark.sort == "collection" else "paused", mark.about.rstrip(": "))
    for row in rows:
        holder = row["holder"]
        made.add_row(
            row["key"],
            row["state"] or "locked",
            f"{holder['kind']} {holder['id']}: {row['why']}" if holder else row["why"],
        )
    desk.out.print(made)
    if further:
        desk.note(f"There may be more: add --after {further}")
    return None


def lock(desk: Desk, key: KEY, why: WHY = "") -> None:
    """Keep everybody from writing an object, or from minting for a local id, until it is unlocked; in force once
    nobody else holds it.
    """
    with desk.engine() as engine:
        record = service.lock(engine, key, who=desk.who, why=why)
    if desk.as_json:
        return desk.print_json({"key": key, "lock": record.id, "state": record.state})
    return desk.say(f"{record.ref} asks for {key}; `waybill ingest locks` shows when it is in force.")


def unlock(desk: Desk, key: KEY, yes: YES = False, why: WHY = "") -> None:
    """End an operator's lock; or free one that another service left behind when it died, once you know that it did."""
    with desk.engine() as engine:
        # Keys are listed in the order of their names, and little lies between this one and itself without its last
        # letter.
        holder = next((row for row in service.locks(engine, after=key[:-1], limit=1000) if row["key"] == key), None)
        if holder is not None and holder["holder"] is None and not yes:
            raise Refused(
                f"{key} is another service's lock. If that service has died, add --yes to free it; if not, it may write as well."
            )
        ended = service.unlock(engine, key, who=desk.who, why=why)
    if desk.as_json:
        return desk.print_json({"key": key, "ended": ended})
    return desk.say(f"{key} is free: {several(ended, 'lock')} ended.")
