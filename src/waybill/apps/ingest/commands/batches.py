"""Commands that look at deposits: all of them together, batches, one batch with what failed in it, its report, jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

import typer
from rich.text import Text

from waybill import views
from waybill.apps.ingest import service, submission
from waybill.apps.ingest.commands.counter import LIMIT, NO_WORKER, serve, size_of
from waybill.cli import shapes
from waybill.cli.desk import Desk
from waybill.cli.problems import Misuse
from waybill.cli.records import check_state
from waybill.record import MAX_PAGE, Record, Ref, Store
from waybill.views import PageTokens, Query

PANEL = "Deposits"
KINDS = ("batch", "job", "access-small", "access-large")
AS_COMMANDS = {"report": "waybill ingest {} {} --send"}  # actions whose command is not their name alone
FAILURES = 20  # failed jobs that a batch shows

STATE = Annotated[str | None, typer.Option("--state", help="Only those in this state.")]
TOKEN = Annotated[
    str | None, typer.Option("--token", help="Go on after an earlier page; it is printed with that page.")
]
OLDEST = Annotated[bool, typer.Option("--oldest", help="Oldest first.")]
BATCH = Annotated[str, typer.Argument(metavar="BATCH", help="The batch's id, or its batchID (bid-UUID).")]


def register(app: typer.Typer) -> None:
    serve(app, alone=True, examples=("waybill ingest", "waybill ingest --json"))(overview)
    serve(
        app,
        panel=PANEL,
        examples=(
            "waybill ingest batches",
            "waybill ingest batches --state Failed",
            "waybill ingest batches --limit 10 --json",
        ),
    )(batches)
    serve(
        app,
        panel=PANEL,
        examples=(
            "waybill ingest batch bid0000000001",
            "waybill ingest batch bid-5f0c7f0e-7d2b-4c6e-9d0a-3f1b2c4d5e6f --json",
        ),
    )(batch)
    serve(
        app,
        panel=PANEL,
        examples=(
            "waybill ingest jobs --state Failed",
            "waybill ingest jobs --batch bid0000000001",
            "waybill ingest jobs --limit 10 --json",
        ),
    )(jobs)


def overview(desk: Desk) -> None:
    """Count deposits and assemblies by state, and say what is on hold or paused."""
    with desk.store() as store:
        tallies = [views.tally(desk.machine(kind), store.tally(kind)) for kind in KINDS]
        marks = {
            name: about for name, about in sorted(store.marks().items()) if name.startswith(("collections/", "queue/"))
        }
        workers = len(views.living(store))
    if desk.as_json:
        return desk.print_json({"kinds": tallies, "marks": marks, "workers": workers})
    made = shapes.table("", "", "states")
    for tally in tallies:
        states = "  ".join(f"{count['state']} {count['count']}" for count in tally["states"] if count["count"])
        made.add_row(desk.machine(tally["kind"]).plural, str(tally["total"]), states)
    desk.out.print(made)
    for name, about in marks.items():
        desk.say(
            f"{'on hold' if name.startswith('collections/') else 'paused'}: {name.partition('/')[2]} ({about.rstrip(': ')})"
        )
    if not workers:
        desk.note(NO_WORKER)
    return None


def found(
    desk: Desk,
    store: Store,
    kind: str,
    state: str | None,
    parent: Ref | None,
    limit: int,
    token: str | None,
    newest: bool,
) -> tuple[list[Record], str | None]:
    """A page of records with their documents, and the token of the next one."""
    query, after = Query(kind, state, parent, None, newest), None
    if token is not None:
        query, after = PageTokens.of(store).verify(token)
        if query.kind != kind:
            raise Misuse(f"This token belongs to a list of {query.kind}; give it there, or begin again without it.")
    check_state(desk.machine(kind), query.state, store)
    page = store.find(
        kind, state=query.state, parent=query.parent, after=after, newest=query.newest, limit=limit, docs=True
    )
    return list(page.records), PageTokens.of(store).sign(query, page.after) if page.after is not None else None


def batches(desk: Desk, state: STATE = None, limit: LIMIT = 30, token: TOKEN = None, oldest: OLDEST = False) -> None:
    """List batches, the newest first, with how many of their jobs are in which state."""
    with desk.engine() as engine:
        records, further = found(desk, engine.store, "batch", state, None, limit, token, not oldest)
        rows = [service.batch_view(engine, record) for record in records]
    if desk.as_json:
        return desk.print_json({"batches": rows, "next": further})
    if not rows:
        if state:
            return desk.note(f"No batch is {state}; `waybill ingest` counts them.")
        return desk.note("There are no batches here. `waybill ingest submit FILE --profile P` makes one.")
    made = shapes.table("id", "state", "profile", "submitted", "jobs", "message")
    for row in rows:
        made.add_row(
            row["id"],
            _state(desk, "batch", row["state"]),
            row["profile"],
            shapes.age(row["submitted"]),
            counts(row),
            shapes.clip(row["message"]),
        )
    desk.out.print(made)
    if further:
        desk.note(f"There are more: waybill ingest batches --token {further}")
    return None


def _state(desk: Desk, kind: str, name: str) -> Text:
    state = desk.machine(kind).state(name)
    return shapes.state(name, state.sort if state is not None else None)


def counts(view: dict[str, Any]) -> str:
    return ", ".join(f"{count} {state}" for state, count in view["jobs"]["states"].items() if count)


def batch(desk: Desk, id: BATCH) -> None:
    """Show a batch: what was submitted, how its jobs stand, what failed in it and why, and its last report."""
    with desk.engine() as engine:
        record = service.find_batch(engine, id)
        view = service.batch_view(engine, record) | what_failed(engine.store, record)
        possible = views.record(record, desk.depot.machines, store=engine.store)["actions"]
    if desk.as_json:
        return desk.print_json(view)
    desk.out.print(
        shapes.fields(
            [
                ("batch", view["id"]),
                ("batchID", view["batch_id"]),
                ("state", _state(desk, "batch", view["state"])),
                ("", view["state_doc"]),
                ("message", view["message"]),
                ("profile", view["profile"]),
                ("title", view["title"]),
                ("payload", view["filename"] or submission.of_batch(record).url),
                ("type", view["type"]),
                ("mode", "update" if view["update"] else "add"),
                ("submitter", view["submitter"]),
                ("submitted", shapes.local(view["submitted"])),
                ("updated", shapes.local(view["updated"])),
                ("jobs", counts(view) or "none yet"),
            ]
        )
    )
    for remark in view["remarks"]:
        desk.say(f"  {remark}")
    say_failures(desk, view)
    if view["report"] is not None:
        desk.note(f"\nwaybill ingest report {view['id']}: What the depositor was told.")
    for action in possible:
        if not action["why_not"]:
            desk.note(
                f"{AS_COMMANDS.get(action['name'], 'waybill ingest {} {}').format(action['name'], record.id)}: {action['doc']}"
            )
    return None


def what_failed(store: Store, batch: Record) -> dict[str, Any]:
    """The first of its jobs that failed, and why."""
    failed = store.tally("job", parent=batch.ref).get("Failed", 0)
    jobs = (job for job in jobs_of(store, batch.ref) if job.state == "Failed")
    return {"failures": [_failure(job) for job in islice(jobs, min(failed, FAILURES))]}


def say_failures(desk: Desk, view: dict[str, Any]) -> None:
    for complaint in (view["trouble"] or {}).get("reasons", []):
        desk.say(f"  {complaint}")
    if not view["failures"]:
        return
    made = shapes.table("failed", "what", "after", "why")
    for job in view["failures"]:
        made.add_row(job["id"], job["what"], job["last_done"] or "", job["reason"])
    desk.say("")
    desk.out.print(made)
    more = view["jobs"]["states"].get("Failed", 0) - len(view["failures"])
    if more > 0:
        desk.note(f"and {more} more: waybill ingest jobs --batch {view['id']} --state Failed")
    if any(job["can_be_resumed"] for job in view["failures"]):
        desk.note(f"waybill ingest resume --batch {view['id']} tries all again that can be.")


def jobs_of(store: Store, batch: Ref) -> Iterator[Record]:
    after: int | None = None
    while True:
        page = store.find("job", parent=batch, after=after, limit=MAX_PAGE, docs=True)
        yield from page.records
        if (after := page.after) is None:
            return


def _failure(job: Record) -> dict[str, Any]:
    refusal = job.docs.get("refusal") or {}
    return {
        "id": job.id,
        "what": what(job),
        "last_done": job.last_done,
        "reason": job.message,
        "reasons": refusal.get("reasons", []),
        "can_be_resumed": not refusal.get("final"),
    }


def what(job: Record) -> str:
    """What a person knows it by."""
    said = submission.of_job(job)
    return said.title or "; ".join(said.local_ids) or said.filename or said.url


def jobs(
    desk: Desk,
    batch: Annotated[str | None, typer.Option("--batch", metavar="BATCH", help="Only jobs of this batch.")] = None,
    state: STATE = None,
    limit: LIMIT = 30,
    token: TOKEN = None,
    oldest: OLDEST = False,
) -> None:
    """List jobs, the newest first: where each is, what it waits for, and why it failed."""
    with desk.engine() as engine:
        store = engine.store
        parent = service.find_batch(engine, batch).ref if batch is not None else None
        # the store has an index for one of them: the batch is the narrower
        if parent is not None and state is not None:
            if token is not None:
                raise Misuse("With --batch and --state together there are no pages: raise --limit.")
            check_state(desk.machine("job"), state, store)
            records, further = list(islice((job for job in jobs_of(store, parent) if job.state == state), limit)), None
        else:
            records, further = found(desk, store, "job", state, parent, limit, token, not oldest)
        progress = views.progress_of(store.sessions())
        marks = store.marks() if any(record.state == "Held" for record in records) else {}
        rows = [_job_view(desk, record, progress, marks) for record in records]
    if desk.as_json:
        return desk.print_json({"jobs": rows, "next": further})
    if not rows:
        return desk.note("There are no jobs here.")
    made = shapes.table("id", "batch", "state", "prio", "what", "object", "space", "", "message")
    for row in rows:
        made.add_row(
            row["id"],
            row["batch"],
            shapes.state(row["state"], row["sort"]),
            str(row["priority"]),
            shapes.clip(row["what"], 40),
            row["object"],
            size_of(row["space_needed"]),
            shapes.progress(row["progress"]) or shapes.where(row),
            shapes.clip(row["message"]),
        )
    desk.out.print(made)
    if further:
        desk.note(f"There are more: waybill ingest jobs --token {further}")
    return None


def _job_view(desk: Desk, job: Record, progress: dict[str, Any], marks: Mapping[str, str]) -> dict[str, Any]:
    view: dict[str, Any] = dict(views.record(job, desk.depot.machines, progress=progress))
    said = submission.of_job(job)
    space = job.docs.get("space_needed")
    kept = (
        "id",
        "state",
        "sort",
        "priority",
        "message",
        "last_done",
        "retries",
        "session",
        "parked",
        "wake_at",
        "keys",
        "progress",
    )
    return {name: view[name] for name in kept} | {
        "message": views.message(desk.machine("job"), job, marks),
        "batch": job.parent.id if job.parent else "",
        "object": said.primary_id,
        "local_ids": said.local_ids,
        "what": what(job),
        "space_needed": space if isinstance(space, int) else None,
        "created": view["created"],
        "updated": view["updated"],
    }
