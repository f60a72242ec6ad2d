"""Commands that operators act with: hold and release, pause and unpause, resume, restart, fail, delete, and the
report after mending.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import msgspec
import typer

from waybill.apps.ingest import service
from waybill.apps.ingest.commands.counter import YES, Tally, agreed, named, serve
from waybill.cli.desk import WHY, Desk
from waybill.cli.problems import FAILED, Misuse
from waybill.engine import Acted, Engine
from waybill.record import Record, Ref
from waybill.rules import Refused

PANEL = "Operating"

NAMES = Annotated[list[str] | None, typer.Argument(metavar="JOB|BATCH...", help="Jobs or batches, by their ids.")]
COLLECTION = Annotated[
    str | None, typer.Option("--collection", metavar="NAME", help="A collection's mnemonic, or a profile's name.")
]
BATCH = Annotated[str | None, typer.Option("--batch", metavar="BATCH", help="All of this batch.")]
QUEUE = Annotated[service.Queue, typer.Argument(help="The queue: all deposits, small assemblies, large assemblies.")]


def register(app: typer.Typer) -> None:
    serve(
        app,
        panel=PANEL,
        examples=(
            "waybill ingest hold --collection demo --why 'the curator asked'",
            "waybill ingest hold jid0000000007",
        ),
    )(hold)
    serve(
        app,
        panel=PANEL,
        examples=(
            "waybill ingest release --collection demo",
            "waybill ingest release bid0000000001",
            "waybill ingest release jid0000000007 --json",
        ),
    )(release)
    serve(app, panel=PANEL, examples=("waybill ingest pause --why 'maintenance'", "waybill ingest pause large"))(pause)
    serve(app, panel=PANEL, examples=("waybill ingest unpause", "waybill ingest unpause large"))(unpause)
    serve(
        app,
        panel=PANEL,
        examples=(
            "waybill ingest resume jid0000000007",
            "waybill ingest resume --batch bid0000000001 --why 'their server is back'",
            "waybill ingest resume --all",
        ),
    )(resume)
    serve(app, panel=PANEL, examples=("waybill ingest restart jid0000000007 --why 'the files were replaced'",))(restart)
    serve(app, panel=PANEL, examples=("waybill ingest fail jid0000000007 --yes --why 'wrong collection'",))(fail)
    serve(
        app, panel=PANEL, examples=("waybill ingest delete jid0000000007", "waybill ingest delete bid0000000001 --yes")
    )(delete)


def hold(desk: Desk, names: NAMES = None, collection: COLLECTION = None, why: WHY = "") -> int | None:
    """Hold jobs or batches that have not begun, or a whole collection: what would begin rests in Held until it is
    released.
    """
    _one_of(names, collection, "JOB|BATCH or --collection")
    with desk.engine() as engine:
        if collection is None:
            return _act_on(desk, engine, names or [], "hold", why)
        known = service.hold(engine, collection, who=desk.who, why=why)
    if desk.as_json:
        desk.print_json({"collection": collection, "on_hold": True, "known": known})
    else:
        desk.say(f"{collection} is on hold: its deposits rest in Held before they begin. What has begun goes on.")
        if not known:
            desk.note(
                f"No collection or profile is called {collection}; deposits of other services may name it all the same."
            )
    return None


def release(desk: Desk, names: NAMES = None, collection: COLLECTION = None, why: WHY = "") -> int | None:
    """Release what is held: jobs, batches with their jobs, or a collection with everything that rests for it."""
    _one_of(names, collection, "JOB|BATCH or --collection")
    with desk.engine() as engine:
        if collection is None:
            return _act_on(desk, engine, names or [], "release", why, below="Held")
        bulk = service.release(engine, collection, who=desk.who, why=why)
    if desk.as_json:
        desk.print_json({"collection": collection, "on_hold": False, **msgspec.to_builtins(bulk)})
    else:
        for refusal in bulk.refusals:
            desk.say(f"{refusal['kind']} {refusal['id']}: {refusal['why']}")
        desk.say(f"{collection} is no longer on hold: {bulk.done + bulk.pending} released, {bulk.refused} refused.")
    return FAILED if bulk.refused else None


def pause(desk: Desk, queue: QUEUE = "ingest", why: WHY = "") -> None:
    """Begin no new work in a queue; steps that run now end as usual."""
    with desk.engine() as engine:
        service.pause(engine, queue, who=desk.who, why=why)
    if desk.as_json:
        return desk.print_json({"queue": queue, "paused": True})
    return desk.say(
        f"The queue {queue} is paused; steps that run now end. `waybill ingest unpause {queue}` lets it go on."
    )


def unpause(desk: Desk, queue: QUEUE = "ingest", why: WHY = "") -> None:
    """Let a queue go on."""
    with desk.engine() as engine:
        service.unpause(engine, queue, who=desk.who, why=why)
    if desk.as_json:
        return desk.print_json({"queue": queue, "paused": False})
    return desk.say(f"The queue {queue} goes on.")


def resume(
    desk: Desk,
    names: NAMES = None,
    batch: BATCH = None,
    every: Annotated[bool, typer.Option("--all", help="All failed jobs that can be.")] = False,
    why: WHY = "",
) -> int | None:
    """Let failed jobs go on after the last step that was done. Those whose payload is wrong are refused: they must
    be submitted again.
    """
    if sum((bool(names), batch is not None, every)) != 1:
        raise Misuse("Give JOB..., or --batch BATCH, or --all.")
    with desk.engine() as engine:
        if names:
            return _act_on(desk, engine, names, "resume", why, below="Failed")
        tally, final = Tally(desk), 0
        parent = service.find_batch(engine, batch).ref if batch is not None else None
        for ref, answer in _failed(engine, parent, desk.who, why):
            if isinstance(answer, Refused) and "cannot be resumed" in str(answer):
                final += 1  # not asked for: "all that can be"
            else:
                tally.take(ref, answer)
    if final:
        desk.note(f"{final} failed for good and must be submitted again.")
    if batch is not None and tally.done and not desk.as_json:
        desk.note(f"When they have settled: waybill ingest report {batch} --send tells the depositor what has changed.")
    return tally.close("resume")


def _failed(engine: Engine, parent: Ref | None, who: str, why: str) -> Iterator[tuple[Ref, Acted | Refused]]:
    if parent is None:
        return engine.act_all("job", "resume", state="Failed", who=who, why=why)
    return engine.act_all("job", "resume", parent=parent, where=lambda job: job.state == "Failed", who=who, why=why)


def restart(desk: Desk, names: NAMES = None, batch: BATCH = None, why: WHY = "") -> int | None:
    """Begin failed jobs again with a new download, as when files were replaced at their URLs."""
    _one_of(names, batch, "JOB... or --batch")
    with desk.engine() as engine:
        return _act_on(desk, engine, names or [str(batch)], "restart", why, below="Failed")


def fail(desk: Desk, names: NAMES = None, yes: YES = False, why: WHY = "") -> int | None:
    """Stop jobs now, whatever they do; they rest in Failed and can be resumed or deleted."""
    with desk.engine() as engine:
        return _act_on(desk, engine, names or [], "fail", why, yes=yes)


def delete(desk: Desk, names: NAMES = None, yes: YES = False, why: WHY = "") -> int | None:
    """Give up failed or held jobs, or batches with all their jobs; working folders are removed."""
    with desk.engine() as engine:
        return _act_on(desk, engine, names or [], "delete", why, yes=yes)


def _one_of(names: list[str] | None, other: str | None, what: str) -> None:
    if bool(names) == (other is not None):
        raise Misuse(f"Give {what}.")


def _act_on(
    desk: Desk, engine: Engine, names: list[str], action: str, why: str, *, yes: bool = False, below: str | None = None
) -> int | None:
    """The action on each that is named. `below`: a batch also stands for its jobs in this state."""
    if not names:
        raise Misuse("Give the id of at least one job or batch.")
    records = [named(engine, name) for name in names]
    tally = Tally(desk)
    for record in records:
        wanted = desk.machine(record.kind).action(action)
        with_jobs = below is not None and record.kind == "batch"
        if wanted is None and not with_jobs:
            raise Misuse(f"{action} is for jobs, and {record.id} is a {record.kind}.")
        if wanted is not None and (record.state in wanted.sources or not with_jobs):
            confirmed = agreed(desk, wanted, wanted.question(record, engine.store), str(record.ref), yes)
            try:
                tally.take(record.ref, engine.act(record.ref, action, who=desk.who, why=why, confirmed=confirmed))
            except Refused as refusal:
                if len(records) == 1:
                    raise
                tally.take(record.ref, refusal)
        if with_jobs:
            at_rest = partial(_is_in, below)
            for ref, answer in engine.act_all("job", action, parent=record.ref, where=at_rest, who=desk.who, why=why):
                tally.take(ref, answer)
    return tally.close(action)


def _is_in(state: str | None, job: Record) -> bool:
    return job.state == state
