"""Following a batch to its end: a picture in a terminal, a line for each change in a pipe, JSON lines with --json.

It ends when the batch has settled, with exit code 1 if anything in it failed; or when the batch rests on hold, for then
nobody knows when it will go on. A store that goes away is waited for.
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
from waybill.apps.ingest import service, submission
from waybill.apps.ingest.commands.batches import BATCH, jobs_of, say_failures, what, what_failed
from waybill.apps.ingest.commands.counter import CLOSEST, NO_WORKER, serve
from waybill.cli import shapes
from waybill.cli.desk import Desk
from waybill.cli.looking import Looking
from waybill.cli.problems import FAILED
from waybill.engine import Engine
from waybill.record import NotFound, Record, Ref, Store

PANEL = "Deposits"
LOOKED_AT = 200  # jobs that are asked, in each look, why they wait
SHOWN = 20  # objects, failures and running steps that are named
Look = dict[str, Any]
EVERY = Annotated[float, typer.Option("--every", min=CLOSEST, max=3600, help="Seconds between two looks, at most.")]


def register(app: typer.Typer) -> None:
    serve(
        app, panel=PANEL, examples=("waybill ingest watch bid0000000001", "waybill ingest watch bid0000000001 --json")
    )(watch)


def watch(desk: Desk, id: BATCH, every: EVERY = 1.0) -> int | None:
    """Follow a batch until it has settled; exit code 1 if anything in it failed, or if it is held."""
    with desk.engine() as engine:
        return follow(desk, engine, service.find_batch(engine, id).ref, every)


def follow(desk: Desk, engine: Engine, ref: Ref, every: float = 1.0) -> int | None:
    store = engine.store
    last: Record | None = None
    before: Look | None = None
    with ExitStack() as stack:
        live = desk.out.is_terminal and not desk.as_json
        screen = stack.enter_context(Live(console=desk.out, auto_refresh=False, transient=True)) if live else None
        looking = Looking(desk.say if live else desk.note)  # above the picture
        for batch, look in _looks(desk, looking, store, ref, every):
            if screen is not None:
                screen.update(_picture(look), refresh=True)
            elif look != before:
                _line(desk, look, before)
            last, before = batch, look
    if screen is not None and before is not None:
        _line(desk, before, None)  # the picture is gone
    return _end(desk, engine, last, ref)


def _looks(desk: Desk, looking: Looking, store: Store, ref: Ref, every: float) -> Iterator[tuple[Record, Look]]:
    warned = False
    while True:
        began = time.monotonic()
        try:
            batch, look, workers = looking(lambda: _look(desk, store, ref))
        except NotFound:  # settled, and removed meanwhile
            return
        yield batch, look
        if not batch.open or batch.state == "Held":
            return
        if not workers and not warned:
            warned = True
            desk.note(NO_WORKER)
        left = max(0.0, every - (time.monotonic() - began))
        looking(partial(store.watch, left))
        if (left := CLOSEST - (time.monotonic() - began)) > 0:
            time.sleep(left)


def _look(desk: Desk, store: Store, ref: Ref) -> tuple[Record, Look, int]:
    """The batch, what is shown of it, and how many workers there are."""
    (batch,) = views.current([store.get(*ref)], desk.depot.machines, store, docs=True)
    sessions = views.living(store)
    look = {
        "batch": batch.id,
        "state": batch.state,
        "message": batch.message,
        "jobs": {state: count for state, count in store.tally("job", parent=ref).items() if count},
        "waits": [{"id": job.id, "state": job.state, "message": job.message} for job in _waits(desk, store, ref)],
        "steps": list(islice(_steps(desk, store, ref, views.progress_of(sessions)), SHOWN)),
    }
    return batch, look, len(sessions)


def _steps(desk: Desk, store: Store, ref: Ref, progress: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What workers say of jobs of this batch."""
    for name in progress:
        kind, _, id = name.partition(" ")
        if kind != "job":
            continue
        try:
            job = store.get(kind, id)
        except NotFound:
            continue
        if job.parent == ref:
            shown = views.record(job, desk.depot.machines, progress=progress)["progress"]
            yield {"id": id, "what": what(job), "state": job.state, "progress": shown}


def _waits(desk: Desk, store: Store, ref: Ref) -> list[Record]:
    """Jobs that say why they do not go on: no room, a server that is away.

    Among the first of the batch, for a look must be quick.
    """
    found = (job for job in store.find("job", parent=ref, limit=LOOKED_AT).records if job.open and job.message)
    return views.current(list(islice(found, SHOWN)), desk.depot.machines, store, docs=False)


def _picture(look: Look) -> RenderableType:
    total = max(1, sum(look["jobs"].values()))
    parts: list[RenderableType] = [Text(f"{look['batch']}  {look['state']}  {look['message']}".rstrip(), style="bold")]
    made = shapes.table("", "", "")
    made.show_header = False
    for state, count in look["jobs"].items():
        made.add_row(f"  {state}", str(count), "█" * max(1, round(30 * count / total)))
    parts.append(made)
    for wait in look["waits"]:
        parts.append(Text(f"  {wait['id']}  {wait['state']}  {shapes.clip(wait['message'])}", style="yellow"))
    for step in look["steps"]:
        parts.append(
            Text(
                f"  {step['id']}  {step['state']}  {shapes.progress(step['progress'])}  {shapes.clip(step['what'], 40)}"
            )
        )
    return Group(*parts)


def _line(desk: Desk, look: Look, before: Look | None) -> None:
    if desk.as_json:
        return desk.print_json({"at": views.moment(time.time()), **look}, line=True)
    if before is None or any(look[part] != before[part] for part in ("state", "jobs")):
        jobs = ", ".join(f"{count} {state}" for state, count in look["jobs"].items())
        desk.say(f"{look['batch']} {look['state']}: {jobs or look['message'] or 'no jobs yet'}")
    for wait in look["waits"]:
        if before is None or wait not in before["waits"]:
            desk.say(f"  {wait['id']} {wait['state']}: {wait['message']}")
    for step in look["steps"]:
        if before is not None and step not in before["steps"]:
            desk.say(f"  {step['id']} {step['state']} {shapes.progress(step['progress'])}")
    desk.out.file.flush()
    return None


def _end(desk: Desk, engine: Engine, batch: Record | None, ref: Ref) -> int | None:
    """What became of it: the objects that were made, or what failed and why."""
    if batch is None:
        desk.note(f"{ref} was removed meanwhile.")
        return FAILED
    store = engine.store
    view = service.batch_view(engine, batch) | what_failed(store, batch)
    good = batch.state == "Completed"
    objects = list(islice(_objects(store, ref), SHOWN))
    if desk.as_json:
        desk.print_json({"at": views.moment(time.time()), **view, "objects": objects}, line=True)
        return None if good else FAILED
    if batch.state == "Held":
        gates = desk.machine("batch").gates
        held = [mark.partition("/")[2] for mark in (gates(batch) if gates is not None else ()) if mark in store.marks()]
        release = f"--collection {held[0]}" if held else batch.id
        desk.note(f"It rests until it is released: waybill ingest release {release}")
        return FAILED
    for made in objects:
        desk.say(f"  {made['object']}  {made['what']}")
    if not good:
        say_failures(desk, view)
    return None if good else FAILED


def _objects(store: Store, batch: Ref) -> Iterator[dict[str, str]]:
    """What was made of it."""
    for job in jobs_of(store, batch):
        if job.state == "Completed":
            yield {"object": submission.of_job(job).primary_id, "job": job.id, "what": what(job)}
