"""Commands about stored objects: `search`, `object`, `get`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from waybill.apps.ingest.commands.support import register_command, resources_of
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.resources import IngestResources
from waybill.cli import downloads, terminal
from waybill.cli.command_context import CommandContext
from waybill.cli.records import LIMIT
from waybill.cli.terminal import format_size
from waybill.errors import InputError, NotFound
from waybill.index import Row
from waybill.record import MAX_PAGE
from waybill.text_format import format_local_time

PANEL = "Objects"
ARK = Annotated[str, typer.Argument(metavar="ARK", help="The object's identifier.")]
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
    force: downloads.FORCE = False,
) -> int | None:
    """Get an object from storage, whole or one file of it. Every file is verified by its digest."""
    resources = resources_of(context)
    found = _find_object(resources.inventory, ark)
    number = _find_version(resources.inventory, ark, found["head"], version)["number"]
    if path is not None:
        return _save_one(context, resources, _find_file(resources.inventory, ark, number, path), ark, output, force)
    if output is None or str(output) == downloads.STDOUT:
        raise InputError("A whole object is written to a folder: give -o FOLDER.", code="usage")
    if force:
        raise InputError("--force overwrites one file; a whole object is written to a new folder.", code="usage")
    output.mkdir(parents=True)  # fails if it exists, so that nothing is overwritten
    count = total = 0
    for row in _iter_files(resources.inventory, ark, number):
        target = output / row["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        downloads.save_chunks(target, _iter_verified(resources, ark, row))
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
    target = downloads.resolve_output(context, inside, force)
    downloads.save_chunks(target, _iter_verified(resources, ark, row))
    if context.as_json:
        context.print_json(
            {"object": ark, "path": row["path"], "file": str(target), "bytes": row["size"], "sha256": row["sha256"]}
        )
    else:
        context.print_note(f"{target or row['path']}: {format_size(row['size'])}, SHA-256 {row['sha256']}")
    return None


def _iter_verified(resources: IngestResources, ark: str, row: Row) -> Iterator[bytes]:
    return downloads.verify_chunks(resources.storage.read(ark, row["place"]), row["sha256"], f"{row['path']} of {ark}")
