"""Commands about collections: objects that belong together, and are put on hold together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from waybill.apps.ingest.commands.counter import YES, serve
from waybill.apps.ingest.commands.kept import act, merged, read_file
from waybill.apps.ingest.profile import Collection, from_document, to_document
from waybill.apps.ingest.service import COLLECTIONS
from waybill.cli import shapes
from waybill.cli.desk import WHY, Desk
from waybill.cli.problems import Misuse
from waybill.engine import Engine
from waybill.record import Record
from waybill.step import New

MNEMONIC = Annotated[str, typer.Argument(metavar="MNEMONIC", help="The collection's short name.")]
FILE = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The collection as JSON; other options stand before it.")
]
NAME = Annotated[str | None, typer.Option("--name", help="Its name, for people.")]
ARK = Annotated[str | None, typer.Option("--ark", metavar="ARK", help="Its identifier, by which profiles name it.")]
OWNER = Annotated[str | None, typer.Option("--owner", metavar="ARK", help="Who owns it.")]
DESCRIPTION = Annotated[str | None, typer.Option("--description", help="What it holds.")]


def register(ingest: typer.Typer) -> None:
    app = typer.Typer(name="ingest collection", help="Objects that belong together, and are put on hold together.")
    ingest.add_typer(app, name="collection", rich_help_panel="Profiles and collections")
    serve(app, alone=True, examples=("waybill ingest collection", "waybill ingest collection --json"))(list_collections)
    serve(app, "list", examples=("waybill ingest collection list",))(list_collections)
    serve(app, "show", examples=("waybill ingest collection show demo",))(show)
    serve(
        app, "add", examples=("waybill ingest collection add demo --name 'A demonstration' --ark ark:/99999/fk4demo",)
    )(add)
    serve(app, "change", examples=("waybill ingest collection change demo --name 'Another name'",))(change)
    serve(app, "retire", examples=("waybill ingest collection retire demo",))(retire)
    serve(app, "restore", examples=("waybill ingest collection restore demo",))(restore)
    serve(app, "delete", examples=("waybill ingest collection delete demo --yes",))(delete)


def _view(record: Record, marks: dict[str, str]) -> dict[str, Any]:
    return {
        "mnemonic": record.id,
        "state": record.state,
        "on_hold": marks.get(f"collections/{record.id}"),
        "collection": record.docs.get("collection", {}),
    }


def list_collections(desk: Desk) -> None:
    """List the collections, and which of them are on hold."""
    with desk.engine() as engine:
        marks = dict(engine.store.marks())
        found = [_view(record, marks) for record in COLLECTIONS.each(engine)]
    if desk.as_json:
        return desk.print_json({"collections": found})
    if not found:
        return desk.note("There are no collections yet: `waybill ingest collection add MNEMONIC` makes one.")
    made = shapes.table("mnemonic", "state", "on hold", "ark", "name")
    for row in found:
        about = row["collection"]
        made.add_row(row["mnemonic"], row["state"], row["on_hold"] or "", about.get("ark", ""), about.get("name", ""))
    desk.out.print(made)
    return None


def show(desk: Desk, mnemonic: MNEMONIC) -> None:
    """Show a collection."""
    with desk.engine() as engine:
        view = _view(COLLECTIONS.record(engine, mnemonic), dict(engine.store.marks()))
    if desk.as_json:
        return desk.print_json(view)
    about = view["collection"]
    fields = [(key, about.get(key, "")) for key in ("name", "ark", "owner", "description")]
    return desk.out.print(
        shapes.fields([("mnemonic", mnemonic), ("state", view["state"]), ("on hold", view["on_hold"]), *fields])
    )


def add(
    desk: Desk,
    mnemonic: MNEMONIC,
    file: FILE = None,
    name: NAME = None,
    ark: ARK = None,
    owner: OWNER = None,
    description: DESCRIPTION = None,
    why: WHY = "",
) -> None:
    """Make a collection."""
    given = _given(name, ark, owner, description)
    collection = from_document(Collection, merged({**read_file(file), "mnemonic": mnemonic}, given))
    with desk.engine() as engine:
        engine.submit(New("collection", {"collection": to_document(collection)}, id=mnemonic), who=desk.who, why=why)
        return _told(desk, engine, mnemonic, f"The collection {mnemonic} is there.")


def change(
    desk: Desk,
    mnemonic: MNEMONIC,
    file: FILE = None,
    name: NAME = None,
    ark: ARK = None,
    owner: OWNER = None,
    description: DESCRIPTION = None,
    why: WHY = "",
) -> None:
    """Change what is given and keep the rest; with --file, everything."""
    given = _given(name, ark, owner, description)
    if file is None and not given:
        raise Misuse("Say what to change: --name, --ark, --owner, --description or --file.")
    with desk.engine() as engine:
        before = COLLECTIONS.record(engine, mnemonic).docs["collection"]
        base = read_file(file) if file is not None else before
        collection = from_document(Collection, merged({**base, "mnemonic": mnemonic}, given))
        COLLECTIONS.change(engine, mnemonic, to_document(collection), who=desk.who, why=why)
        return _told(desk, engine, mnemonic, f"The collection {mnemonic} is changed.")


def _given(name: str | None, ark: str | None, owner: str | None, description: str | None) -> dict[str, Any]:
    said = {"name": name, "ark": ark, "owner": owner, "description": description}
    return {key: value for key, value in said.items() if value is not None}


def _told(desk: Desk, engine: Engine, mnemonic: str, sentence: str) -> None:
    if desk.as_json:
        return desk.print_json(_view(engine.store.get("collection", mnemonic), dict(engine.store.marks())))
    return desk.say(sentence)


def retire(desk: Desk, mnemonic: MNEMONIC, why: WHY = "") -> None:
    """Let no new deposit go into it; those under way go on."""
    return act(desk, COLLECTIONS, mnemonic, "retire", why)


def restore(desk: Desk, mnemonic: MNEMONIC, why: WHY = "") -> None:
    """Let deposits go into a retired collection again."""
    return act(desk, COLLECTIONS, mnemonic, "restore", why)


def delete(desk: Desk, mnemonic: MNEMONIC, yes: YES = False, why: WHY = "") -> None:
    """Remove a retired collection; the objects in it stay."""
    return act(desk, COLLECTIONS, mnemonic, "delete", why, yes)
