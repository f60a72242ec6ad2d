"""`waybill ingest collection`: collections, groups of objects that are put on hold together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from waybill.apps.ingest.commands.profiles import act_on_document, merge_options, read_document
from waybill.apps.ingest.commands.support import register_command
from waybill.apps.ingest.profile import Collection, from_document, to_document
from waybill.apps.ingest.service import COLLECTIONS
from waybill.cli import terminal
from waybill.cli.actions import YES
from waybill.cli.command_context import WHY, CommandContext
from waybill.engine import Engine
from waybill.errors import InputError
from waybill.record import Record
from waybill.step import New

MNEMONIC = Annotated[str, typer.Argument(metavar="MNEMONIC", help="The collection's short name.")]
FILE = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The collection as JSON; other options override it.")
]
NAME = Annotated[str | None, typer.Option("--name", help="Its display name.")]
ARK = Annotated[str | None, typer.Option("--ark", metavar="ARK", help="Its identifier, by which profiles name it.")]
OWNER = Annotated[str | None, typer.Option("--owner", metavar="ARK", help="Who owns it.")]
DESCRIPTION = Annotated[str | None, typer.Option("--description", help="What it holds.")]


def register(ingest: typer.Typer) -> None:
    app = typer.Typer(name="ingest collection", help="Groups of objects that are put on hold together.")
    ingest.add_typer(app, name="collection", rich_help_panel="Profiles and collections")
    register_command(
        app, without_subcommand=True, examples=("waybill ingest collection", "waybill ingest collection --json")
    )(list_collections)
    register_command(app, "list", examples=("waybill ingest collection list",))(list_collections)
    register_command(app, "show", examples=("waybill ingest collection show demo",))(show)
    register_command(
        app, "add", examples=("waybill ingest collection add demo --name 'A demonstration' --ark ark:/99999/fk4demo",)
    )(add)
    register_command(app, "change", examples=("waybill ingest collection change demo --name 'Another name'",))(change)
    register_command(app, "retire", examples=("waybill ingest collection retire demo",))(retire)
    register_command(app, "restore", examples=("waybill ingest collection restore demo",))(restore)
    register_command(app, "delete", examples=("waybill ingest collection delete demo --yes",))(delete)


def _to_view(record: Record, holds: dict[str, str]) -> dict[str, Any]:
    return {
        "mnemonic": record.id,
        "state": record.state,
        "on_hold": holds.get(f"collections/{record.id}"),
        "collection": record.documents.get("collection", {}),
    }


def list_collections(context: CommandContext) -> None:
    """List the collections, and which of them are on hold."""
    with context.open_engine() as engine:
        holds = dict(engine.store.list_holds())
        collections = [_to_view(record, holds) for record in COLLECTIONS.read_all(engine)]
    if context.as_json:
        return context.print_json({"collections": collections})
    if not collections:
        return context.print_note("There are no collections yet: `waybill ingest collection add MNEMONIC` adds one.")
    table = terminal.make_table("mnemonic", "state", "on hold", "ark", "name")
    for row in collections:
        document = row["collection"]
        table.add_row(
            row["mnemonic"], row["state"], row["on_hold"] or "", document.get("ark", ""), document.get("name", "")
        )
    context.out.print(table)
    return None


def show(context: CommandContext, mnemonic: MNEMONIC) -> None:
    """Show a collection."""
    with context.open_engine() as engine:
        view = _to_view(COLLECTIONS.get_record(engine, mnemonic), dict(engine.store.list_holds()))
    if context.as_json:
        return context.print_json(view)
    document = view["collection"]
    fields = [(key, document.get(key, "")) for key in ("name", "ark", "owner", "description")]
    return context.out.print(
        terminal.make_field_table(
            [("mnemonic", mnemonic), ("state", view["state"]), ("on hold", view["on_hold"]), *fields]
        )
    )


def add(
    context: CommandContext,
    mnemonic: MNEMONIC,
    file: FILE = None,
    name: NAME = None,
    ark: ARK = None,
    owner: OWNER = None,
    description: DESCRIPTION = None,
    why: WHY = "",
) -> None:
    """Add a collection."""
    given = _collect_options(name, ark, owner, description)
    collection = from_document(Collection, merge_options({**read_document(file), "mnemonic": mnemonic}, given))
    with context.open_engine() as engine:
        engine.submit(New("collection", {"collection": to_document(collection)}, id=mnemonic), who=context.who, why=why)
        return _print_collection(context, engine, mnemonic, f"The collection {mnemonic} is added.")


def change(
    context: CommandContext,
    mnemonic: MNEMONIC,
    file: FILE = None,
    name: NAME = None,
    ark: ARK = None,
    owner: OWNER = None,
    description: DESCRIPTION = None,
    why: WHY = "",
) -> None:
    """Change the given fields; with --file, replace everything."""
    given = _collect_options(name, ark, owner, description)
    if file is None and not given:
        raise InputError("Give what to change: --name, --ark, --owner, --description or --file.", code="usage")
    with context.open_engine() as engine:
        before = COLLECTIONS.get_record(engine, mnemonic).documents["collection"]
        base = read_document(file) if file is not None else before
        collection = from_document(Collection, merge_options({**base, "mnemonic": mnemonic}, given))
        COLLECTIONS.change(engine, mnemonic, to_document(collection), who=context.who, why=why)
        return _print_collection(context, engine, mnemonic, f"The collection {mnemonic} is changed.")


def _collect_options(name: str | None, ark: str | None, owner: str | None, description: str | None) -> dict[str, Any]:
    options = {"name": name, "ark": ark, "owner": owner, "description": description}
    return {key: value for key, value in options.items() if value is not None}


def _print_collection(context: CommandContext, engine: Engine, mnemonic: str, sentence: str) -> None:
    if context.as_json:
        return context.print_json(_to_view(engine.store.get("collection", mnemonic), dict(engine.store.list_holds())))
    return context.print_line(sentence)


def retire(context: CommandContext, mnemonic: MNEMONIC, why: WHY = "") -> None:
    """Accept no new deposits into it; those in progress go on."""
    return act_on_document(context, COLLECTIONS, mnemonic, "retire", why)


def restore(context: CommandContext, mnemonic: MNEMONIC, why: WHY = "") -> None:
    """Accept deposits into a retired collection again."""
    return act_on_document(context, COLLECTIONS, mnemonic, "restore", why)


def delete(context: CommandContext, mnemonic: MNEMONIC, yes: YES = False, why: WHY = "") -> None:
    """Remove a retired collection; the objects in it stay."""
    return act_on_document(context, COLLECTIONS, mnemonic, "delete", why, yes)
