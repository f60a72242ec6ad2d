"""Commands about what is at rest: find an object, look at it, get it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from waybill.apps.ingest.commands import saving
from waybill.apps.ingest.commands.counter import LIMIT, outfit, serve, size_of
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.outfit import Outfit
from waybill.cli import shapes
from waybill.cli.desk import Desk
from waybill.cli.problems import Missing, Misuse
from waybill.index import Row
from waybill.record import MAX_PAGE

PANEL = "Objects"
ARK = Annotated[str, typer.Argument(metavar="ARK", help="The object's identifier.")]
VERSION = Annotated[int | None, typer.Option("--version", min=1, help="A version of it.", show_default="the newest")]


def register(app: typer.Typer) -> None:
    serve(
        app,
        panel=PANEL,
        examples=(
            "waybill ingest search husky chicken",
            "waybill ingest search --local-id husky-1 --json",
            "waybill ingest search --collection demo",
        ),
    )(search)
    serve(
        app,
        "object",
        panel=PANEL,
        examples=(
            "waybill ingest object ark:/99999/fk4abc",
            "waybill ingest object ark:/99999/fk4abc --version 1 --files --json",
        ),
    )(show)
    serve(
        app,
        panel=PANEL,
        examples=(
            "waybill ingest get ark:/99999/fk4abc producer/a.txt -o a.txt",
            "waybill ingest get ark:/99999/fk4abc --version 1 -o folder",
            "waybill ingest get ark:/99999/fk4abc list.csv -o -",
        ),
    )(get)


def search(
    desk: Desk,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORD...", help="Words of title, creator or date.")
    ] = None,
    owner: Annotated[str, typer.Option("--owner", metavar="ARK", help="Only objects of this owner.")] = "",
    collection: Annotated[
        str, typer.Option("--collection", metavar="NAME|ARK", help="Only objects of this collection.")
    ] = "",
    local_id: Annotated[
        str, typer.Option("--local-id", metavar="ID", help="The object that a depositor calls so.")
    ] = "",
    limit: LIMIT = 30,
    after: Annotated[
        str, typer.Option("--after", metavar="ARK", help="Go on after this object, the last of an earlier page.")
    ] = "",
) -> None:
    """Search the inventory: by words, by local id, by collection, by owner; without any of these, all objects."""
    page = outfit(desk).inventory.search(
        owner=owner, collection=collection, local_id=local_id, text=" ".join(words or ()), after=after, most=limit
    )
    if desk.as_json:
        return desk.print_json({"objects": page.rows, "next": page.next or None})
    if not page.rows:
        return desk.note("Nothing was found.")
    made = shapes.table("object", "version", "title", "creator", "date", "recorded")
    for row in page.rows:
        made.add_row(
            row["ark"], str(row["head"]), row["title"], row["creator"], row["date"], shapes.local(row["created"])
        )
    desk.out.print(made)
    if page.next:
        desk.note(f"There may be more: add --after {page.next}")
    return None


def _object(inventory: Inventory, ark: str) -> Row:
    found = inventory.object(ark)
    if found is None:
        raise Missing(
            f"There is no object {ark} in the inventory. `waybill ingest rebuild {ark}` records it again, if it is in storage."
        )
    return found


def _version(inventory: Inventory, ark: str, head: int, version: int | None) -> Row:
    number = version or head
    rows = inventory.versions(ark, after=number - 1, most=1)
    if not rows or rows[0]["number"] != number:
        raise Missing(f"{ark} has no version {number}; its newest is {head}.")
    return rows[0]


def show(
    desk: Desk,
    ark: ARK,
    version: VERSION = None,
    files: Annotated[bool, typer.Option("--files", help="List the files of the version.")] = False,
) -> None:
    """Show an object: what is known of it, its versions, and the files of one of them."""
    inventory = outfit(desk).inventory
    found = _object(inventory, ark)
    chosen = _version(inventory, ark, found["head"], version)
    versions = inventory.versions(ark, most=MAX_PAGE)
    if desk.as_json:
        listed = list(_files(inventory, ark, chosen["number"])) if files else None
        return desk.print_json({**found, "versions": versions, "version": chosen["number"], "files": listed})
    desk.out.print(
        shapes.fields(
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
    made = shapes.table("version", "recorded", "files", "size", "by")
    for row in versions:
        made.add_row(
            str(row["number"]), shapes.local(row["created"]), str(row["files"]), size_of(row["bytes"]), row["request"]
        )
    desk.say("")
    desk.out.print(made)
    if files:
        desk.say(f"\nfiles of version {chosen['number']}:")
        for row in _files(inventory, ark, chosen["number"]):  # line by line: there can be many
            desk.say(f"  {row['sha256']}  {size_of(row['size']):>8}  {row['path']}")
    return None


def _files(inventory: Inventory, ark: str, number: int) -> Iterator[Row]:
    after = ""
    while True:
        page = inventory.files(ark, number, after=after, most=MAX_PAGE)
        yield from page.rows
        if not (after := page.next):
            return


def get(
    desk: Desk,
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
            help="Where to: a file for one file (- or nothing: stdout), a new folder for all.",
        ),
    ] = None,
    version: VERSION = None,
    force: saving.FORCE = False,
) -> int | None:
    """Get an object back from storage, whole or one file of it; every byte is compared with its digest."""
    have = outfit(desk)
    found = _object(have.inventory, ark)
    number = _version(have.inventory, ark, found["head"], version)["number"]
    if path is not None:
        return _one(desk, have, _file(have.inventory, ark, number, path), ark, output, force)
    if output is None or str(output) == saving.STDOUT:
        raise Misuse("A whole object goes into a folder: say which with -o FOLDER.")
    if force:
        raise Misuse("--force writes over one file; a whole object goes into a new folder.")
    output.mkdir(parents=True)  # a folder of its own, so that nothing is written over
    count = total = 0
    for row in _files(have.inventory, ark, number):
        target = output / row["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        saving.save(target, _verified(have, ark, row))
        count, total = count + 1, total + row["size"]
    if desk.as_json:
        desk.print_json({"object": ark, "version": number, "folder": str(output), "files": count, "bytes": total})
    else:
        desk.say(f"{output}: version {number} of {ark}, {count} files, {size_of(total)}, each as its digest says.")
    return None


def _file(inventory: Inventory, ark: str, number: int, path: str) -> Row:
    for name in (path, f"producer/{path}"):  # what a depositor sent is under producer/
        if (row := inventory.file(ark, number, name)) is not None:
            return {**row, "path": name}
    raise Missing(f"Version {number} of {ark} has no file {path}; `waybill ingest object {ark} --files` lists them.")


def _one(desk: Desk, have: Outfit, row: Row, ark: str, output: Path | None, force: bool) -> int | None:
    inside = output / Path(row["path"]).name if output is not None and output.is_dir() else output
    target = saving.place(desk, inside, force)
    saving.save(target, _verified(have, ark, row))
    if desk.as_json:
        desk.print_json(
            {"object": ark, "path": row["path"], "file": str(target), "bytes": row["size"], "sha256": row["sha256"]}
        )
    else:
        desk.note(f"{target or row['path']}: {size_of(row['size'])}, SHA-256 {row['sha256']}")
    return None


def _verified(have: Outfit, ark: str, row: Row) -> Iterator[bytes]:
    return saving.verified(have.storage.read(ark, row["place"]), row["sha256"], f"{row['path']} of {ark}")
