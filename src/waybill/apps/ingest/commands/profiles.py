"""Commands about profiles: what holds for every deposit that names one.

Kept as records, so that each has a history of who changed what.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill.apps.ingest.commands.counter import YES, serve
from waybill.apps.ingest.commands.kept import act, merged, read_file
from waybill.apps.ingest.profile import Profile, from_document, to_document
from waybill.apps.ingest.service import COLLECTIONS, PROFILES
from waybill.cli import shapes
from waybill.cli.desk import WHY, Desk
from waybill.cli.problems import Misuse
from waybill.engine import Engine
from waybill.record import Record
from waybill.rules import Refused
from waybill.step import New

MASK = "***"
NAME = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]
FILE = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The profile as JSON; other options stand before it.")
]
DESCRIPTION = Annotated[str | None, typer.Option("--description", help="What it is for.")]
OWNER = Annotated[
    str | None, typer.Option("--owner", metavar="ARK", help="Who owns what is deposited; local ids are his.")
]
COLLECTION = Annotated[
    list[str] | None,
    typer.Option("--collection", metavar="MNEMONIC|ARK", help="A collection in which objects lie; may be repeated."),
]
MAIL = Annotated[list[str] | None, typer.Option("--mail", metavar="ADDRESS", help="Who gets reports; may be repeated.")]
QUIET = Annotated[bool | None, typer.Option("--quiet/--tell", help="Send no mail, or do.", show_default=False)]
CALLBACK = Annotated[
    str | None, typer.Option("--callback", metavar="URL", help="Called for each job: POST URL/mc/JOB.")
]
USER = Annotated[
    str | None, typer.Option("--callback-user", metavar="NAME", help="The user name that a callback shows.")
]
PASSWORD = Annotated[
    Path | None, typer.Option("--callback-password-file", metavar="FILE", help="A file that holds its password.")
]
PRIORITY = Annotated[int | None, typer.Option("--priority", min=0, max=99, help="Of its jobs: 0 to 99, lower first.")]
NAAN = Annotated[str | None, typer.Option("--naan", help="The number of the authority under which ARKs are minted.")]
SHOULDER = Annotated[str | None, typer.Option("--shoulder", help="What minted ARKs begin with, after the NAAN.")]
MINTER = Annotated[
    str | None, typer.Option("--minter", metavar="URL", help="EZID's URL of the shoulder; without it Waybill mints.")
]


def register(ingest: typer.Typer) -> typer.Typer:
    app = typer.Typer(name="ingest profile", help="What holds for every deposit that names a profile.")
    ingest.add_typer(app, name="profile", rich_help_panel="Profiles and collections")
    serve(app, alone=True, examples=("waybill ingest profile", "waybill ingest profile --json"))(list_profiles)
    serve(app, "list", examples=("waybill ingest profile list",))(list_profiles)
    serve(
        app,
        "show",
        examples=("waybill ingest profile show demo_content", "waybill ingest profile show demo_content --json"),
    )(show)
    serve(
        app,
        "add",
        examples=(
            "waybill ingest profile add demo_content --owner ark:/99999/fk4owner --collection demo --mail jane@example.org",
            "waybill ingest profile add demo_content --file demo.json",
        ),
    )(add)
    serve(
        app,
        "change",
        examples=(
            "waybill ingest profile change demo_content --priority 3 --why 'exhibition next week'",
            "waybill ingest profile change demo_content --callback https://example.org/done",
        ),
    )(change)
    serve(app, "retire", examples=("waybill ingest profile retire demo_content --why 'replaced by demo2'",))(retire)
    serve(app, "restore", examples=("waybill ingest profile restore demo_content",))(restore)
    serve(app, "delete", examples=("waybill ingest profile delete demo_content --yes",))(delete)
    return app


def list_profiles(desk: Desk) -> None:
    """List the profiles."""
    with desk.engine() as engine:
        found = [shown(record) for record in PROFILES.each(engine)]
    if desk.as_json:
        return desk.print_json({"profiles": found})
    if not found:
        return desk.note(
            "There are no profiles yet: `waybill ingest profile add NAME` makes one, `import` takes over Merritt's."
        )
    made = shapes.table("name", "state", "owner", "collections", "mail", "description")
    for row in found:
        profile = row["profile"]
        made.add_row(
            row["name"],
            shapes.state(row["state"], "rest" if row["state"] == "Retired" else "end"),
            profile.get("owner", ""),
            " ".join(profile.get("collections", [])),
            " ".join(profile.get("mail", {}).get("to", [])),
            shapes.clip(profile.get("description", ""), 40),
        )
    desk.out.print(made)
    return None


def shown(record: Record) -> dict[str, Any]:
    """A profile as it may be seen: its callback's password is not part of it."""
    document = dict(record.docs["profile"]) if isinstance(record.docs.get("profile"), dict) else {}
    callback = document.get("callback")
    if isinstance(callback, dict) and callback.get("password"):
        document["callback"] = {**callback, "password": MASK}
    return {"name": record.id, "state": record.state, "profile": document}


def show(desk: Desk, name: NAME) -> None:
    """Show a profile; the password of its callback is masked."""
    with desk.engine() as engine:
        view = shown(PROFILES.record(engine, name))
    if desk.as_json:
        return desk.print_json(view)
    desk.say(f"{name} ({view['state']})")
    return desk.out.print(shapes.fields(list(_flat(view["profile"]))))


def _flat(document: dict[str, Any], above: str = "") -> Iterable[tuple[str, str]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        elif value not in (None, "", []) and key != "v":
            yield f"{above}{key}", ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def add(
    desk: Desk,
    name: NAME,
    file: FILE = None,
    description: DESCRIPTION = None,
    owner: OWNER = None,
    collection: COLLECTION = None,
    mail: MAIL = None,
    quiet: QUIET = None,
    callback: CALLBACK = None,
    callback_user: USER = None,
    callback_password_file: PASSWORD = None,
    priority: PRIORITY = None,
    naan: NAAN = None,
    shoulder: SHOULDER = None,
    minter: MINTER = None,
    why: WHY = "",
) -> None:
    """Make a profile."""
    with desk.engine() as engine:
        given = _given(
            engine,
            description,
            owner,
            collection,
            mail,
            quiet,
            callback,
            callback_user,
            callback_password_file,
            priority,
            naan,
            shoulder,
            minter,
        )
        profile = from_document(Profile, merged({**read_file(file), "name": name}, given))
        engine.submit(New("profile", {"profile": to_document(profile)}, id=name), who=desk.who, why=why)
        return _told(desk, engine, name, f"The profile {name} is there: waybill ingest submit FILE --profile {name}")


def change(
    desk: Desk,
    name: NAME,
    file: FILE = None,
    description: DESCRIPTION = None,
    owner: OWNER = None,
    collection: COLLECTION = None,
    mail: MAIL = None,
    quiet: QUIET = None,
    callback: CALLBACK = None,
    callback_user: USER = None,
    callback_password_file: PASSWORD = None,
    priority: PRIORITY = None,
    naan: NAAN = None,
    shoulder: SHOULDER = None,
    minter: MINTER = None,
    why: WHY = "",
) -> None:
    """Change what is given and keep the rest; with --file, everything. Deposits that begin from now on follow it."""
    with desk.engine() as engine:
        before = PROFILES.record(engine, name).docs["profile"]
        given = _given(
            engine,
            description,
            owner,
            collection,
            mail,
            quiet,
            callback,
            callback_user,
            callback_password_file,
            priority,
            naan,
            shoulder,
            minter,
        )
        if file is None and not given:
            raise Misuse("Say what to change: `waybill ingest profile change --help` lists what a profile has.")
        base = _keeping_password(read_file(file), before) if file is not None else before
        profile = from_document(Profile, merged({**base, "name": name}, given))
        PROFILES.change(engine, name, to_document(profile), who=desk.who, why=why)
        return _told(desk, engine, name, f"The profile {name} is changed.")


def _keeping_password(document: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What was shown with its password masked can be given back as it was shown."""
    callback = document.get("callback")
    if isinstance(callback, dict) and callback.get("password") == MASK:
        return {**document, "callback": {**callback, "password": before.get("callback", {}).get("password", "")}}
    return document


def _given(
    engine: Engine,
    description: str | None,
    owner: str | None,
    collections: list[str] | None,
    mail: list[str] | None,
    quiet: bool | None,
    callback: str | None,
    user: str | None,
    password: Path | None,
    priority: int | None,
    naan: str | None,
    shoulder: str | None,
    minter: str | None,
) -> dict[str, Any]:
    """The options as parts of a document."""
    said: dict[str, Any] = {
        "description": description,
        "owner": owner,
        "priority": priority,
        "collections": [_ark_of(engine, each) for each in collections] if collections else None,
        "mail": {"to": mail or None, "suppressed": quiet},
        "callback": {
            "url": callback,
            "user": user,
            "password": password.read_text("utf-8").strip() if password else None,
        },
        "minter": {"naan": naan, "shoulder": shoulder, "url": minter},
    }
    parts = {
        key: {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value
        for key, value in said.items()
    }
    return {key: value for key, value in parts.items() if value not in (None, {})}


def _ark_of(engine: Engine, collection: str) -> str:
    """A collection is named by its mnemonic or its ARK; a profile holds the ARK."""
    if collection.startswith("ark:"):
        return collection
    found = COLLECTIONS.read(COLLECTIONS.record(engine, collection))
    if not found.ark:
        raise Refused(
            f"The collection {collection} has no ARK: `waybill ingest collection change {collection} --ark ARK` gives it one."
        )
    return found.ark


def _told(desk: Desk, engine: Engine, name: str, sentence: str) -> None:
    if desk.as_json:
        return desk.print_json(shown(engine.store.get("profile", name)))
    return desk.say(sentence)


def retire(desk: Desk, name: NAME, why: WHY = "") -> None:
    """Let no new deposit name it; those under way go on."""
    return act(desk, PROFILES, name, "retire", why)


def restore(desk: Desk, name: NAME, why: WHY = "") -> None:
    """Let deposits name a retired profile again."""
    return act(desk, PROFILES, name, "restore", why)


def delete(desk: Desk, name: NAME, yes: YES = False, why: WHY = "") -> None:
    """Remove a retired profile."""
    return act(desk, PROFILES, name, "delete", why, yes)
