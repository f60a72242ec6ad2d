"""Commands that care for what is at rest: audit its bytes, record it again from storage; and what is locked meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.progress import Progress

from waybill.apps.ingest.commands.counter import LIMIT, outfit, serve
from waybill.apps.ingest.inventory import rebuild_object, rebuild_some
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.storage import Finding
from waybill.cli import shapes
from waybill.cli.desk import Desk
from waybill.cli.problems import FAILED, Missing, Misuse
from waybill.index import Row
from waybill.record import MAX_PAGE, Record, Store

PANEL = "Objects"
PORTION = 100
ARK = Annotated[str | None, typer.Argument(metavar="ARK", help="One object.")]


def register(app: typer.Typer) -> None:
    serve(app, panel=PANEL, examples=(
        "waybill ingest audit", "waybill ingest audit --now", "waybill ingest audit ark:/99999/fk4abc --json",
    ))(audit)  # fmt: skip
    serve(app, panel=PANEL, examples=("waybill ingest rebuild ark:/99999/fk4abc", "waybill ingest rebuild --all"))(rebuild)
    serve(app, panel="Operating", examples=("waybill ingest locks", "waybill ingest locks --json"))(locks)


def audit(
    desk: Desk,
    ark: ARK = None,
    now: Annotated[bool, typer.Option("--now", help="Read everything that is due, now; a duty does so a portion at a time.")] = False,
    every: Annotated[bool, typer.Option("--all", help="With --now: read everything, due or not.")] = False,
) -> int | None:
    """Say what audits have found; or read an object, or with --now everything that is due, and compare. Exit code 1: damage is known."""
    have = outfit(desk)
    if ark is not None and (now or every):
        raise Misuse("Give an ARK, or --now for all objects; one object is always read now.")
    if every and not now:
        raise Misuse("--all needs --now.")
    if ark is not None:
        findings = [
            {"object": ark, "place": found.place, "files": list(found.files), "problem": found.words} for found in have.storage.verify(ark)
        ]
        return _say(desk, findings, f"{ark} was read whole")
    read = _read_due(desk, have, every) if now else None
    findings = [
        {"object": row["ark"], "place": row["place"], "files": row["files"], "problem": row["result"]} for row in _damaged(have)
    ]
    return _say(desk, findings, f"{read} places were read" if read is not None else "By the last audits")


def _read_due(desk: Desk, have: Outfit, every: bool) -> int:
    began = datetime.now(UTC)
    before = began if every else began - timedelta(days=have.settings.audit.days)
    count = 0
    with Progress(console=desk.err, transient=True, disable=not desk.interactive) as shown:
        task = shown.add_task("reading", total=None)
        while rows := have.inventory.to_audit(before, most=PORTION):
            for row in rows:
                # Noted one by one: whoever stops this has lost nothing, and a second run goes on where this one was.
                have.inventory.audited(row, _check(have, row), datetime.now(UTC))
                count += 1
                shown.update(task, description=f"{count} places read")
    return count


def _check(have: Outfit, row: Row) -> Finding | None:
    return have.storage.check(row["ark"], row["place"], row["size"], row["sha256"])


def _damaged(have: Outfit) -> Iterator[Row]:
    after = ("", "")
    while rows := have.inventory.damaged(after=after, most=PORTION):
        yield from rows
        after = (rows[-1]["ark"], rows[-1]["place"])


def _say(desk: Desk, findings: list[dict[str, Any]], what: str) -> int | None:
    if desk.as_json:
        desk.print_json({"findings": findings, "said": what})
    else:
        for found in findings:
            desk.say(f"{found['object']}: {found['problem']}" + (f" It is {', '.join(found['files'])}." if found["files"] else ""))
        desk.note(f"{what}: {len(findings) or 'nothing'} damaged.")
    return FAILED if findings else None


def rebuild(
    desk: Desk,
    ark: ARK = None,
    every: Annotated[bool, typer.Option("--all", help="All objects of the storage.")] = False,
) -> int | None:
    """Record the inventory of an object, or of all, again from storage (mode fix). Searches go on meanwhile; safe to repeat."""
    if (ark is not None) == every:
        raise Misuse("Give an ARK, or --all.")
    have = outfit(desk)
    if ark is not None:
        versions = rebuild_object(have.inventory, have.storage, ark)
        if not versions:
            raise Missing(f"{ark} is not in storage; whatever the inventory knew of it is forgotten.")
        return _rebuilt(desk, 1, [], f"{ark}: {versions} version{'s' if versions > 1 else ''} recorded again.")
    cursor, objects, troubles = "", 0, list[str]()
    with Progress(console=desk.err, transient=True, disable=not desk.interactive) as shown:
        task = shown.add_task("recording", total=None)
        while True:
            done = rebuild_some(have.inventory, have.storage, cursor, most=PORTION)
            cursor, objects = done.cursor, objects + done.objects
            troubles += done.troubles[: max(0, MAX_PAGE - len(troubles))]
            shown.update(task, description=f"{objects} objects recorded")
            if not cursor:
                break
    return _rebuilt(desk, objects, troubles, f"{objects} objects recorded again, {len(troubles)} with trouble.")


def _rebuilt(desk: Desk, objects: int, troubles: list[str], sentence: str) -> int | None:
    if desk.as_json:
        desk.print_json({"objects": objects, "troubles": troubles})
    else:
        for trouble in troubles:
            desk.say(trouble)
        desk.say(sentence)
    return FAILED if troubles else None


def locks(desk: Desk, limit: LIMIT = 100) -> None:
    """List what is locked: queues that are paused, collections on hold, and ARKs and local ids that jobs hold or wait for."""
    with desk.store() as store:
        marks = {name: about for name, about in sorted(store.marks().items()) if name.startswith(("collections/", "queue/"))}
        rows = [row for job in _with_keys(desk, store, limit) for row in _locks_of(job)]
    if desk.as_json:
        return desk.print_json({"marks": marks, "locks": rows})
    if not marks and not rows:
        return desk.note("Nothing is locked, held or paused.")
    made = shapes.table("lock", "by", "how")
    for name, about in marks.items():
        made.add_row(name, about.rstrip(": "), "on hold" if name.startswith("collections/") else "paused")
    for row in rows:
        made.add_row(row["lock"], row["job"], f"{row['how']} in {row['state']}")
    desk.out.print(made)
    return None


def _with_keys(desk: Desk, store: Store, limit: int) -> Iterator[Record]:
    """Jobs in states that need keys; at most so many of each state."""
    for state in desk.machine("job").states:
        if state.needs:
            yield from (job for job in store.find("job", state=state.name, limit=limit).records if job.keys)


def _locks_of(job: Record) -> Iterator[dict[str, str]]:
    awaited = (job.parked or "").removeprefix("key ") if (job.parked or "").startswith("key ") else None
    for key in job.keys:
        how = "held" if job.session else "waited for" if key == awaited else "asked for"
        yield {"lock": key, "job": job.id, "state": job.state, "how": how}
