"""Commands that care for what is at rest: audit its bytes, record it again from storage."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.progress import Progress

from waybill.apps.ingest.commands.counter import outfit, serve, several, size_of, until_settled
from waybill.apps.ingest.duties.audit import Damaged, audit_some, known_damage
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.rebuilding import Portion, order, portions
from waybill.cli.desk import Desk
from waybill.cli.problems import FAILED, Missing, Misuse
from waybill.record import MAX_PAGE, Record, Ref
from waybill.rules import Refused

PANEL = "Objects"
PORTION = 100
ARK = Annotated[str | None, typer.Argument(metavar="ARK", help="One object.")]


def register(app: typer.Typer) -> None:
    serve(
        app,
        panel=PANEL,
        examples=(
            "waybill ingest audit",
            "waybill ingest audit --now",
            "waybill ingest audit ark:/99999/fk4abc --json",
        ),
    )(audit)
    serve(app, panel=PANEL, examples=("waybill ingest rebuild ark:/99999/fk4abc", "waybill ingest rebuild --all"))(
        rebuild
    )


def audit(
    desk: Desk,
    ark: ARK = None,
    now: Annotated[
        bool, typer.Option("--now", help="Read everything that is due, now; a duty does so a portion at a time.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="With --now: read everything, due or not.")] = False,
) -> int | None:
    """Say what audits have found; or read an object, or with --now everything that is due, and compare. Exit code 1:
    damage is known.
    """
    if ark is not None and (now or every):
        raise Misuse("Give an ARK, or --now for all objects; one object is always read now.")
    if every and not now:
        raise Misuse("--all needs --now.")
    have = outfit(desk)
    if ark is not None:
        if have.inventory.kept_elsewhere(ark):
            raise Refused(f"Another storage service keeps {ark}, and its bytes are not here: they are audited there.")
        return _say(desk, list(_read_object(have, ark)), f"{ark} was read whole")
    what = "By the last audits"
    if now:
        count, size = _read_due(desk, have, every)
        nothing = (
            "There is nothing in storage that the inventory knows of"
            if every
            else "Nothing was due (--all reads everything)"
        )
        what = f"{several(count, 'place')} with {size_of(size)} read" if count else nothing
    return _say(desk, list(known_damage(have)), what)


def _read_object(have: Outfit, ark: str) -> Iterator[Damaged]:
    """The object against what it says of itself; and what is known of damage in it is looked at again, for it may be
    restored.
    """
    for found in have.storage.verify(ark):
        have.inventory.found_damaged(ark, found, datetime.now(UTC))  # safe to repeat: it says when it was read
        yield Damaged(ark, found.place, found.words, found.files)
    after = (ark, "")
    while rows := have.inventory.damaged(after=after, most=PORTION):
        for row in rows:
            if row["ark"] != ark:
                return
            again = have.storage.check(ark, row["place"], row["size"], row["sha256"])
            have.inventory.audited(row, again, datetime.now(UTC))  # safe to repeat: it says when it was read
        after = (ark, rows[-1]["place"])


def _read_due(desk: Desk, have: Outfit, every: bool) -> tuple[int, int]:
    count = size = 0
    with (
        _unlogged(),
        desk.engine() as engine,
        Progress(console=desk.err, transient=True, disable=not desk.interactive) as shown,
    ):
        before = engine.store.now() if every else None
        task = shown.add_task("reading", total=None)
        while (done := audit_some(have, engine, before=before, who=desk.who)).files:
            count, size = count + done.files, size + done.bytes
            shown.update(task, description=f"{count} places read, {size_of(size)}")
    return count, size


@contextmanager
def _unlogged() -> Iterator[None]:
    """What is found is said at the end, and not logged as well."""
    log = logging.getLogger("waybill.ingest")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _say(desk: Desk, damaged: list[Damaged], what: str) -> int | None:
    if desk.as_json:
        rows = [
            {"object": each.ark, "place": each.place, "files": list(each.files), "problem": each.words}
            for each in damaged
        ]
        desk.print_json({"damaged": rows, "said": what})
    else:
        for each in damaged:  # what was read just now names the files itself
            desk.say(str(each) if each.words.find("; it is ") < 0 else f"{each.ark}: {each.words}")
        desk.note(f"{what}: {f'{len(damaged)} damaged' if damaged else 'nothing is damaged'}.")
    return FAILED if damaged else None


def rebuild(
    desk: Desk,
    ark: ARK = None,
    every: Annotated[bool, typer.Option("--all", help="All objects of the storage.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until workers have done it.")] = True,
) -> int | None:
    """Have the inventory of an object, or of all, recorded again from storage (mode fix). Searches go on meanwhile;
    safe to repeat.
    """
    if (ark is not None) == every:
        raise Misuse("Give an ARK, or --all.")
    have = outfit(desk)
    with desk.engine() as engine:
        found = [Portion([ark], [], "")] if ark is not None else portions(have.storage)
        nameless = list[str]()
        asked = list[Ref]()
        for portion in found:
            nameless += portion.nameless[: max(0, MAX_PAGE - len(nameless))]
            if portion.arks:
                asked.append(engine.submit(order(portion.arks, owner=desk.who), who=desk.who).ref)
        done = [until_settled(desk, engine.store, ref) for ref in asked] if wait else []
    return _rebuilt(desk, ark, asked, done, nameless)


def _rebuilt(desk: Desk, ark: str | None, asked: list[Ref], done: list[Record], nameless: list[str]) -> int | None:
    told = [rebuilt for record in done if isinstance(rebuilt := record.docs.get("rebuilt"), dict)]
    troubles = [f"{at}: it is too damaged to say which object it is." for at in nameless]
    troubles += [trouble for each in told for trouble in each.get("troubles", [])]
    objects, versions = (sum(each.get(name, 0) for each in told) for name in ("objects", "versions"))
    if ark is not None and done and not troubles and not versions:
        raise Missing(f"{ark} is not in storage, and no longer in the inventory.")
    if desk.as_json:
        rebuilds = [ref.id for ref in asked]
        desk.print_json(
            {"objects": objects, "versions": versions, "troubles": troubles, "rebuilds": rebuilds, "waited": bool(done)}
        )
    else:
        for trouble in troubles:
            desk.say(trouble)
        if done or not asked:
            desk.say(f"{several(objects, 'object')} with {several(versions, 'version')} recorded again.")
        else:
            desk.say(f"{several(len(asked), 'rebuild')} asked for: waybill ls rebuild")
    return FAILED if troubles or any(record.state == "Failed" for record in done) else None
