"""Commands that check stored objects: `audit` their bytes, `rebuild` the inventory from storage."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.progress import Progress

from waybill.apps.ingest.commands.support import register_command, resources_of
from waybill.apps.ingest.inventory import identity
from waybill.apps.ingest.machine.rebuild import StoredObjectsPage, make_rebuild, read_object_pages
from waybill.apps.ingest.maintenance.audit import DamagedContent, audit_next, iter_known_damage
from waybill.apps.ingest.resources import IngestResources, read_inventory_epoch
from waybill.cli.command_context import CommandContext
from waybill.cli.followed_records import wait_until_settled
from waybill.cli.terminal import format_size, pluralize
from waybill.errors import FAILED, InputError, NotFound
from waybill.record import MAX_PAGE, Record, Ref
from waybill.rules import ActionRefused

PANEL = "Objects"
DAMAGE_PAGE = 100
OPTIONAL_ARK = Annotated[str | None, typer.Argument(metavar="ARK", help="One object.")]


def register(app: typer.Typer) -> None:
    register_command(
        app,
        "audit",
        panel=PANEL,
        examples=(
            "waybill ingest audit",
            "waybill ingest audit --now",
            "waybill ingest audit ark:/99999/fk4abc --json",
        ),
    )(audit)
    register_command(
        app,
        "rebuild",
        panel=PANEL,
        examples=("waybill ingest rebuild ark:/99999/fk4abc", "waybill ingest rebuild --all"),
    )(rebuild)


def audit(
    context: CommandContext,
    ark: OPTIONAL_ARK = None,
    now: Annotated[
        bool,
        typer.Option(
            "--now", help="Read everything that is due now; the maintenance routine reads a part of it in each round."
        ),
    ] = False,
    all_content: Annotated[bool, typer.Option("--all", help="With --now: read all content, due or not.")] = False,
) -> int | None:
    """Show what audits have found; or read an object, or with --now everything that is due, and verify it. Exit code 1
    if damage is known.
    """
    if ark is not None and (now or all_content):
        raise InputError("Give an ARK, or --now for all objects; one object is always read now.", code="usage")
    if all_content and not now:
        raise InputError("--all needs --now.", code="usage")
    resources = resources_of(context)
    if ark is not None:
        if resources.inventory.is_stored_elsewhere(ark):
            raise ActionRefused(f"{ark} is in another storage service, and is audited there.")
        return _print_damage(context, list(_audit_object(resources, ark)), f"{ark} was read whole")
    what = "By the last audits"
    if now:
        count, size = _audit_due(context, resources, all_content)
        nothing = (
            "There is nothing in storage that the inventory knows of"
            if all_content
            else "Nothing was due (--all reads everything)"
        )
        what = f"{pluralize(count, 'place')} with {format_size(size)} read" if count else nothing
    return _print_damage(context, list(iter_known_damage(resources)), what)


def _audit_object(resources: IngestResources, ark: str) -> Iterator[DamagedContent]:
    """Verify an object against its own inventory, and read again what is recorded as damaged, which may be restored."""
    for found in resources.storage.verify(ark):
        resources.inventory.record_damage(ark, found, datetime.now(UTC))  # safe to repeat: it has the time of the read
        yield DamagedContent(ark, found.place, found.message, found.files)
    after = (ark, "")
    while rows := resources.inventory.list_damaged(after=after, limit=DAMAGE_PAGE):
        for row in rows:
            if row["ark"] != ark:
                return
            again = resources.storage.check(ark, row["place"], row["size"], row["sha256"])
            resources.inventory.record_audit(
                row, again, datetime.now(UTC)
            )  # safe to repeat: it has the time of the read
        after = (ark, rows[-1]["place"])


def _audit_due(context: CommandContext, resources: IngestResources, all_content: bool) -> tuple[int, int]:
    count = size = 0
    with (
        _suppress_log(),
        context.open_engine() as engine,
        Progress(console=context.err, transient=True, disable=not context.is_interactive) as shown,
    ):
        before = engine.store.now() if all_content else None
        task = shown.add_task("reading", total=None)
        while (done := audit_next(resources, engine, before=before, who=context.who)).files:
            count, size = count + done.files, size + done.bytes
            shown.update(task, description=f"{count} places read, {format_size(size)}")
    return count, size


@contextmanager
def _suppress_log() -> Iterator[None]:
    """Suppress the log: what is found is printed at the end."""
    log = logging.getLogger("waybill.ingest")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _print_damage(context: CommandContext, damaged: list[DamagedContent], what: str) -> int | None:
    if context.as_json:
        rows = [
            {"object": each.ark, "place": each.place, "files": list(each.files), "problem": each.problem}
            for each in damaged
        ]
        context.print_json({"damaged": rows, "summary": what})
    else:
        for each in damaged:  # a problem that was read just now names the files itself
            context.print_line(str(each) if each.problem.find("; it is ") < 0 else f"{each.ark}: {each.problem}")
        context.print_note(f"{what}: {f'{len(damaged)} damaged' if damaged else 'nothing is damaged'}.")
    return FAILED if damaged else None


def rebuild(
    context: CommandContext,
    ark: OPTIONAL_ARK = None,
    all_objects: Annotated[bool, typer.Option("--all", help="All objects of the storage.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until workers have done it.")] = True,
    despite_failures: Annotated[
        bool,
        typer.Option(
            "--despite-failures",
            help="With --all: deposits that wait for the inventory go on though some objects failed.",
        ),
    ] = False,
) -> int | None:
    """Record the inventory of an object, or of all, again from storage. Searches work meanwhile; safe to repeat. Deposits that
    wait because the inventory may lack objects go on when all were recorded.
    """
    if (ark is not None) == all_objects:
        raise InputError("Give an ARK, or --all.", code="usage")
    if despite_failures and not (all_objects and wait):
        raise InputError("--despite-failures needs --all, and to wait.", code="usage")
    resources = resources_of(context)
    with context.open_engine() as engine:
        pages = [StoredObjectsPage([ark], [], "")] if ark is not None else read_object_pages(resources.storage)
        unnamed = list[str]()
        rebuilds = list[Ref]()
        for page in pages:
            unnamed += page.unnamed[: max(0, MAX_PAGE - len(unnamed))]
            if page.arks:
                rebuilds.append(engine.submit(make_rebuild(page.arks, owner=context.who), who=context.who).ref)
        settled = [wait_until_settled(context, engine.store, ref) for ref in rebuilds] if wait else []
        has_failed = bool(unnamed) or any(record.state != "Completed" for record in settled)
        if all_objects and wait and (despite_failures or not has_failed):
            # safe to repeat: only says that what was there when this began is recorded
            identity.declare_complete(
                resources.inventory,
                lambda id: engine.store.remember(identity.NAME, id),
                read_inventory_epoch(engine.store),
            )
    return _print_rebuild(context, ark, rebuilds, settled, unnamed)


def _print_rebuild(
    context: CommandContext, ark: str | None, rebuilds: list[Ref], settled: list[Record], unnamed: list[str]
) -> int | None:
    results = [rebuilt for record in settled if isinstance(rebuilt := record.documents.get("rebuilt"), dict)]
    failures = [f"{path}: it is too damaged to tell which object it is." for path in unnamed]
    failures += [failure for result in results for failure in result.get("failures", [])]
    objects, versions = (sum(result.get(name, 0) for result in results) for name in ("objects", "versions"))
    if ark is not None and settled and not failures and not versions:
        raise NotFound(f"{ark} is not in storage, and no longer in the inventory.")
    if context.as_json:
        context.print_json(
            {
                "objects": objects,
                "versions": versions,
                "failures": failures,
                "rebuilds": [ref.id for ref in rebuilds],
                "waited": bool(settled),
            }
        )
    else:
        for failure in failures:
            context.print_line(failure)
        if settled or not rebuilds:
            context.print_line(f"{pluralize(objects, 'object')} with {pluralize(versions, 'version')} recorded again.")
        else:
            context.print_line(f"{pluralize(len(rebuilds), 'rebuild')} requested: waybill ls rebuild")
    return FAILED if failures or any(record.state == "Failed" for record in settled) else None
