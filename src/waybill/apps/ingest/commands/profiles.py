"""`waybill ingest profile`: profiles, the rules for all deposits that name one.

A profile is a record, so it has a history of who changed what. The last functions are shared with `collections`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from waybill.apps.ingest.commands.support import register_command
from waybill.apps.ingest.profile import Profile, from_document, to_document
from waybill.apps.ingest.service import COLLECTIONS, PROFILES
from waybill.apps.ingest.service.managed_documents import ManagedDocuments
from waybill.cli import terminal
from waybill.cli.actions import YES, confirm_on_record
from waybill.cli.command_context import WHY, CommandContext
from waybill.engine import Engine
from waybill.errors import InputError
from waybill.record import Record
from waybill.rules import ActionRefused
from waybill.step import New
from waybill.text_format import clip_line

PASSWORD_MASK = "***"
NAME = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]
FILE = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The profile as JSON; other options override it.")
]
DESCRIPTION = Annotated[str | None, typer.Option("--description", help="What it is for.")]
OWNER = Annotated[
    str | None, typer.Option("--owner", metavar="ARK", help="The owner of the deposits and of their local ids.")
]
COLLECTION = Annotated[
    list[str] | None,
    typer.Option("--collection", metavar="MNEMONIC|ARK", help="A collection of the objects; may be repeated."),
]
MAIL = Annotated[list[str] | None, typer.Option("--mail", metavar="ADDRESS", help="Who gets reports; may be repeated.")]
NO_MAIL = Annotated[
    bool | None, typer.Option("--no-mail/--mail-reports", help="Send no report mail, or do.", show_default=False)
]
CALLBACK = Annotated[
    str | None, typer.Option("--callback", metavar="URL", help="Called for each job: POST URL/mc/JOB.")
]
USER = Annotated[str | None, typer.Option("--callback-user", metavar="NAME", help="The user name that callbacks send.")]
PASSWORD = Annotated[
    Path | None, typer.Option("--callback-password-file", metavar="FILE", help="A file with the password.")
]
PRIORITY = Annotated[int | None, typer.Option("--priority", min=0, max=99, help="Of its jobs: 0 to 99, lower first.")]
NAAN = Annotated[str | None, typer.Option("--naan", help="The name assigning authority number of minted ARKs.")]
SHOULDER = Annotated[str | None, typer.Option("--shoulder", help="What minted ARKs begin with, after the NAAN.")]
MINTER = Annotated[
    str | None,
    typer.Option("--minter", metavar="URL", help="EZID's URL of the shoulder; without it Waybill mints ARKs itself."),
]


def register(ingest: typer.Typer) -> typer.Typer:
    app = typer.Typer(name="ingest profile", help="The rules for all deposits that name a profile.")
    ingest.add_typer(app, name="profile", rich_help_panel="Profiles and collections")
    register_command(
        app, without_subcommand=True, examples=("waybill ingest profile", "waybill ingest profile --json")
    )(list_profiles)
    register_command(app, "list", examples=("waybill ingest profile list",))(list_profiles)
    register_command(
        app,
        "show",
        examples=("waybill ingest profile show demo_content", "waybill ingest profile show demo_content --json"),
    )(show)
    register_command(
        app,
        "add",
        examples=(
            "waybill ingest profile add demo_content --owner ark:/99999/fk4owner --collection demo --mail jane@example.org",
            "waybill ingest profile add demo_content --file demo.json",
        ),
    )(add)
    register_command(
        app,
        "change",
        examples=(
            "waybill ingest profile change demo_content --priority 3 --why 'exhibition next week'",
            "waybill ingest profile change demo_content --callback https://example.org/done",
        ),
    )(change)
    register_command(app, "retire", examples=("waybill ingest profile retire demo_content --why 'replaced by demo2'",))(
        retire
    )
    register_command(app, "restore", examples=("waybill ingest profile restore demo_content",))(restore)
    register_command(app, "delete", examples=("waybill ingest profile delete demo_content --yes",))(delete)
    return app


def list_profiles(context: CommandContext) -> None:
    """List the profiles."""
    with context.open_engine() as engine:
        profiles = [to_view(record) for record in PROFILES.read_all(engine)]
    if context.as_json:
        return context.print_json({"profiles": profiles})
    if not profiles:
        return context.print_note(
            "There are no profiles yet: `waybill ingest profile add NAME` adds one, `import` imports Merritt's."
        )
    table = terminal.make_table("name", "state", "owner", "collections", "mail", "description")
    for row in profiles:
        profile = row["profile"]
        table.add_row(
            row["name"],
            terminal.style_state(row["state"], "rest" if row["state"] == "Retired" else "end"),
            profile.get("owner", ""),
            " ".join(profile.get("collections", [])),
            " ".join(profile.get("mail", {}).get("to", [])),
            clip_line(profile.get("description", ""), 40),
        )
    context.out.print(table)
    return None


def to_view(record: Record) -> dict[str, Any]:
    """Return a profile with the password of its callback masked."""
    document = dict(record.documents["profile"]) if isinstance(record.documents.get("profile"), dict) else {}
    callback = document.get("callback")
    if isinstance(callback, dict) and callback.get("password"):
        document["callback"] = {**callback, "password": PASSWORD_MASK}
    return {"name": record.id, "state": record.state, "profile": document}


def show(context: CommandContext, name: NAME) -> None:
    """Show a profile; the password of its callback is masked."""
    with context.open_engine() as engine:
        view = to_view(PROFILES.get_record(engine, name))
    if context.as_json:
        return context.print_json(view)
    context.print_line(f"{name} ({view['state']})")
    return context.out.print(terminal.make_field_table(list(_flatten(view["profile"]))))


def _flatten(document: dict[str, Any], above: str = "") -> Iterable[tuple[str, str]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{above}{key}.")
        elif value not in (None, "", []) and key != "v":
            yield f"{above}{key}", ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def add(
    context: CommandContext,
    name: NAME,
    file: FILE = None,
    description: DESCRIPTION = None,
    owner: OWNER = None,
    collection: COLLECTION = None,
    mail: MAIL = None,
    no_mail: NO_MAIL = None,
    callback: CALLBACK = None,
    callback_user: USER = None,
    callback_password_file: PASSWORD = None,
    priority: PRIORITY = None,
    naan: NAAN = None,
    shoulder: SHOULDER = None,
    minter: MINTER = None,
    why: WHY = "",
) -> None:
    """Add a profile."""
    with context.open_engine() as engine:
        given = _collect_options(
            engine,
            description,
            owner,
            collection,
            mail,
            no_mail,
            callback,
            callback_user,
            callback_password_file,
            priority,
            naan,
            shoulder,
            minter,
        )
        profile = from_document(Profile, merge_options({**read_document(file), "name": name}, given))
        engine.submit(New("profile", {"profile": to_document(profile)}, id=name), who=context.who, why=why)
        return _print_profile(
            context, engine, name, f"The profile {name} is added: waybill ingest submit FILE --profile {name}"
        )


def change(
    context: CommandContext,
    name: NAME,
    file: FILE = None,
    description: DESCRIPTION = None,
    owner: OWNER = None,
    collection: COLLECTION = None,
    mail: MAIL = None,
    no_mail: NO_MAIL = None,
    callback: CALLBACK = None,
    callback_user: USER = None,
    callback_password_file: PASSWORD = None,
    priority: PRIORITY = None,
    naan: NAAN = None,
    shoulder: SHOULDER = None,
    minter: MINTER = None,
    why: WHY = "",
) -> None:
    """Change the given fields; with --file, replace everything. It applies to deposits that start from now on."""
    with context.open_engine() as engine:
        before = PROFILES.get_record(engine, name).documents["profile"]
        given = _collect_options(
            engine,
            description,
            owner,
            collection,
            mail,
            no_mail,
            callback,
            callback_user,
            callback_password_file,
            priority,
            naan,
            shoulder,
            minter,
        )
        if file is None and not given:
            raise InputError(
                "Give what to change: `waybill ingest profile change --help` lists the options.", code="usage"
            )
        base = _restore_password(read_document(file), before) if file is not None else before
        profile = from_document(Profile, merge_options({**base, "name": name}, given))
        PROFILES.change(engine, name, to_document(profile), who=context.who, why=why)
        return _print_profile(context, engine, name, f"The profile {name} is changed.")


def _restore_password(document: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Put the stored password back into a document that was shown with it masked."""
    callback = document.get("callback")
    if isinstance(callback, dict) and callback.get("password") == PASSWORD_MASK:
        return {**document, "callback": {**callback, "password": before.get("callback", {}).get("password", "")}}
    return document


def _collect_options(
    engine: Engine,
    description: str | None,
    owner: str | None,
    collections: list[str] | None,
    mail: list[str] | None,
    no_mail: bool | None,
    callback: str | None,
    user: str | None,
    password: Path | None,
    priority: int | None,
    naan: str | None,
    shoulder: str | None,
    minter: str | None,
) -> dict[str, Any]:
    """Return the given options as a document."""
    options: dict[str, Any] = {
        "description": description,
        "owner": owner,
        "priority": priority,
        "collections": [_ark_of(engine, each) for each in collections] if collections else None,
        "mail": {"to": mail or None, "suppressed": no_mail},
        "callback": {
            "url": callback,
            "user": user,
            "password": password.read_text("utf-8").strip() if password else None,
        },
        "minter": {"naan": naan, "shoulder": shoulder, "url": minter},
    }
    parts = {
        key: {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value
        for key, value in options.items()
    }
    return {key: value for key, value in parts.items() if value not in (None, {})}


def _ark_of(engine: Engine, collection: str) -> str:
    """Return the ARK of a collection that is named by its mnemonic or ARK; profiles hold the ARK."""
    if collection.startswith("ark:"):
        return collection
    found_collection = COLLECTIONS.read(COLLECTIONS.get_record(engine, collection))
    if not found_collection.ark:
        raise ActionRefused(
            f"The collection {collection} has no ARK: `waybill ingest collection change {collection} --ark ARK` sets one."
        )
    return found_collection.ark


def _print_profile(context: CommandContext, engine: Engine, name: str, sentence: str) -> None:
    if context.as_json:
        return context.print_json(to_view(engine.store.get("profile", name)))
    return context.print_line(sentence)


def retire(context: CommandContext, name: NAME, why: WHY = "") -> None:
    """Accept no new deposits with it; those in progress go on."""
    return act_on_document(context, PROFILES, name, "retire", why)


def restore(context: CommandContext, name: NAME, why: WHY = "") -> None:
    """Accept deposits with a retired profile again."""
    return act_on_document(context, PROFILES, name, "restore", why)


def delete(context: CommandContext, name: NAME, yes: YES = False, why: WHY = "") -> None:
    """Remove a retired profile."""
    return act_on_document(context, PROFILES, name, "delete", why, yes)


def read_document(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        document = msgspec.json.decode(file.read_bytes())
    except msgspec.DecodeError as error:
        raise InputError(f"{file} is not JSON: {error}.", code="usage") from error
    return document if isinstance(document, dict) else {}


def merge_options(document: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the given options; tables are merged."""
    merged = dict(document)
    for key, value in given.items():
        before = merged.get(key)
        merged[key] = {**before, **value} if isinstance(value, dict) and isinstance(before, dict) else value
    return merged


def act_on_document(
    context: CommandContext, documents: ManagedDocuments[Any], name: str, action: str, why: str, yes: bool = False
) -> None:
    """Apply an action to a profile or a collection."""
    with context.open_engine() as engine:
        wanted = context.get_machine(documents.kind).find_action(action)
        assert wanted is not None
        confirmed = confirm_on_record(context, wanted, documents.get_record(engine, name), engine.store, yes)
        record = documents.act(engine, name, action, who=context.who, why=why, confirmed=confirmed)
    if context.as_json:
        return context.print_json({"name": name, "state": record.state})
    return context.print_line(f"The {documents.kind} {name} is {record.state.lower()}.")
