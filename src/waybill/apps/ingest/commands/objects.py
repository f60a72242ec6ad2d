"""Commands about stored objects: `search`, `object`, `get`; `audit` their bytes, `rebuild` the inventory from storage."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from waybill.apps.ingest.commands import support
from waybill.apps.ingest.commands.support import (
    LIMIT,
    format_size,
    pluralize,
    register_command,
    resources_of,
    wait_until_settled,
)
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.machine.rebuild import StoredObjectsPage, make_rebuild, read_object_pages
from waybill.apps.ingest.maintenance.audit import DamagedContent, audit_next, iter_known_damage
from waybill.apps.ingest.resources import IngestResources
from waybill.cli import terminal
from waybill.cli.command_context import CommandContext
from waybill.errors import FAILED, InputError, NotFound
from waybill.index import Row
from waybill.record import MAX_PAGE, Record, Ref
from waybill.rules import ActionRefused
from waybill.text_format import format_local_time

PANEL = "Objects"
DAMAGE_PAGE = 100
ARK = Annotated[str, typer.Argument(metavar="ARK", help="The object's identifier.")]
OPTIONAL_ARK = Annotated[str | None, typer.Argument(metavar="ARK", help="One object.")]
VERSION = Annotated[int | None, typer.Option("--version", min=1, help="A version of it.", show_default="the newest")]


def register(app: typer.Typer) -> None:
    register_command(
        app,
        "search",
        panel=PANEL,
        examples=(
            "waybill ingest search husky chicken",
            "waybill ingest search --local-id husky-1 --json",
            "waybill ingest search --collection demo",
        ),
    )(search)
    register_command(
        app,
        "object",
        panel=PANEL,
        examples=(
            "waybill ingest object ark:/99999/fk4abc",
            "waybill ingest object ark:/99999/fk4abc --version 1 --files --json",
        ),
    )(show_object)
    register_command(
        app,
        "get",
        panel=PANEL,
        examples=(
            "waybill ingest get ark:/99999/fk4abc producer/a.txt -o a.txt",
            "waybill ingest get ark:/99999/fk4abc --version 1 -o folder",
            "waybill ingest get ark:/99999/fk4abc list.csv -o -",
        ),
    )(get)
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


def search(
    context: CommandContext,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORD...", help="Words of title, creator or date.")
    ] = None,
    owner: Annotated[str, typer.Option("--owner", metavar="ARK", help="Only objects of this owner.")] = "",
    collection: Annotated[
        str, typer.Option("--collection", metavar="NAME|ARK", help="Only objects of this collection.")
    ] = "",
    local_id: Annotated[str, typer.Option("--local-id", metavar="ID", help="The object with this local id.")] = "",
    limit: LIMIT = 30,
    after: Annotated[
        str, typer.Option("--after", metavar="ARK", help="Continue after this object, the last of an earlier page.")
    ] = "",
) -> None:
    """Search the inventory by words, local id, collection or owner; without any of these, list all objects."""
    page = resources_of(context).inventory.search(
        owner=owner, collection=collection, local_id=local_id, text=" ".join(words or ()), after=after, limit=limit
    )
    if context.as_json:
        return context.print_json({"objects": page.rows, "next": page.next or None})
    if not page.rows:
        return context.print_note("Nothing was found.")
    table = terminal.make_table("object", "version", "title", "creator", "date", "recorded", unfolded=("object",))
    for row in page.rows:
        table.add_row(
            row["ark"], str(row["head"]), row["title"], row["creator"], row["date"], format_local_time(row["created"])
        )
    context.out.print(table)
    if page.next:
        context.print_note(f"There may be more: add --after {page.next}")
    return None


def _find_object(inventory: Inventory, ark: str) -> Row:
    found = inventory.get_object(ark)
    if found is None:
        raise NotFound(
            f"There is no object {ark} in the inventory. `waybill ingest rebuild {ark}` records it again, if it is in storage."
        )
    return found


def _find_version(inventory: Inventory, ark: str, head: int, version: int | None) -> Row:
    number = version or head
    rows = inventory.list_versions(ark, after=number - 1, limit=1)
    if not rows or rows[0]["number"] != number:
        raise NotFound(f"{ark} has no version {number}; its newest is {head}.")
    return rows[0]


def show_object(
    context: CommandContext,
    ark: ARK,
    version: VERSION = None,
    files: Annotated[bool, typer.Option("--files", help="List the files of the version.")] = False,
) -> None:
    """Show an object: its metadata, its versions, and the files of one of them."""
    inventory = resources_of(context).inventory
    found = _find_object(inventory, ark)
    chosen = _find_version(inventory, ark, found["head"], version)
    versions = inventory.list_versions(ark, limit=MAX_PAGE)
    if context.as_json:
        listed = list(_iter_files(inventory, ark, chosen["number"])) if files else None
        return context.print_json({**found, "versions": versions, "version": chosen["number"], "files": listed})
    context.out.print(
        terminal.make_field_table(
            [
                ("object", ark),
                ("title", found["title"]),
                ("creator", found["creator"]),
                ("date", found["date"]),
                ("owner", found["owner"]),
                ("embargo", f"until {found['embargo']}" if found["embargo"] else ""),
                ("collections", " ".join(found["collections"])),
                ("local ids", " ".join(found["local_ids"])),
            ]
        )
    )
    table = terminal.make_table("version", "recorded", "files", "size", "by")
    for row in versions:
        table.add_row(
            str(row["number"]),
            format_local_time(row["created"]),
            str(row["files"]),
            format_size(row["bytes"]),
            row["request"],
        )
    context.print_line("")
    context.out.print(table)
    if files:
        context.print_line(f"\nfiles of version {chosen['number']}:")
        for row in _iter_files(inventory, ark, chosen["number"]):  # printed one by one: there can be many
            context.print_line(f"  {row['sha256']}  {format_size(row['size']):>8}  {row['path']}")
    return None


def _iter_files(inventory: Inventory, ark: str, number: int) -> Iterator[Row]:
    after = ""
    while True:
        page = inventory.list_files(ark, number, after=after, limit=MAX_PAGE)
        yield from page.rows
        if not (after := page.next):
            return


def get(
    context: CommandContext,
    ark: ARK,
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="One file of it, as `object --files` lists it; else all.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Where to: a file for one file (- or nothing: stdout), a new folder for all files.",
        ),
    ] = None,
    version: VERSION = None,
    force: support.FORCE = False,
) -> int | None:
    """Get an object from storage, whole or one file of it. Every file is verified by its digest."""
    resources = resources_of(context)
    found = _find_object(resources.inventory, ark)
    number = _find_version(resources.inventory, ark, found["head"], version)["number"]
    if path is not None:
        return _save_one(context, resources, _find_file(resources.inventory, ark, number, path), ark, output, force)
    if output is None or str(output) == support.STDOUT:
        raise InputError("A whole object is written to a folder: give -o FOLDER.", code="usage")
    if force:
        raise InputError("--force overwrites one file; a whole object is written to a new folder.", code="usage")
    output.mkdir(parents=True)  # fails if it exists, so that nothing is overwritten
    count = total = 0
    for row in _iter_files(resources.inventory, ark, number):
        target = output / row["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        support.save_chunks(target, _iter_verified(resources, ark, row))
        count, total = count + 1, total + row["size"]
    if context.as_json:
        context.print_json({"object": ark, "version": number, "folder": str(output), "files": count, "bytes": total})
    else:
        context.print_line(f"{output}: version {number} of {ark}, {count} files, {format_size(total)}, all verified.")
    return None


def _find_file(inventory: Inventory, ark: str, number: int, path: str) -> Row:
    for name in (path, f"producer/{path}"):  # depositors' files are below producer/
        if (row := inventory.get_file(ark, number, name)) is not None:
            return {**row, "path": name}
    raise NotFound(f"Version {number} of {ark} has no file {path}; `waybill ingest object {ark} --files` lists them.")


def _save_one(
    context: CommandContext, resources: IngestResources, row: Row, ark: str, output: Path | None, force: bool
) -> int | None:
    inside = output / Path(row["path"]).name if output is not None and output.is_dir() else output
    target = support.resolve_output(context, inside, force)
    support.save_chunks(target, _iter_verified(resources, ark, row))
    if context.as_json:
        context.print_json(
            {"object": ark, "path": row["path"], "file": str(target), "bytes": row["size"], "sha256": row["sha256"]}
        )
    else:
        context.print_note(f"{target or row['path']}: {format_size(row['size'])}, SHA-256 {row['sha256']}")
    return None


def _iter_verified(resources: IngestResources, ark: str, row: Row) -> Iterator[bytes]:
    return support.verify_chunks(resources.storage.read(ark, row["place"]), row["sha256"], f"{row['path']} of {ark}")


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
) -> int | None:
    """Record the inventory of an object, or of all, again from storage. Searches work meanwhile; safe to repeat."""
    if (ark is not None) == all_objects:
        raise InputError("Give an ARK, or --all.", code="usage")
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
