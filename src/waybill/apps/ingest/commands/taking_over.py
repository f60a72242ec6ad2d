"""Commands that take over what another Merritt has: profiles from its properties files, and entries of its old
queues.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import Progress

from waybill.apps.ingest.commands.counter import serve, several
from waybill.apps.ingest.imported import Imported
from waybill.apps.ingest.importing import import_entries
from waybill.apps.ingest.legacy import LegacyError
from waybill.apps.ingest.legacy.sources import open_source
from waybill.apps.ingest.profile import BadProfile, to_document
from waybill.apps.ingest.profile_import import import_profile
from waybill.cli.desk import WHY, Desk
from waybill.cli.problems import FAILED
from waybill.engine import Engine
from waybill.record import NotFound, Ref
from waybill.rules import Refused
from waybill.step import New


def register(app: typer.Typer, profile: typer.Typer) -> None:
    serve(
        app,
        "import-legacy",
        panel="Operating",
        examples=(
            "waybill ingest import-legacy zookeeper://zk.example.org:2181 --dry-run",
            "waybill ingest import-legacy copy-of-the-queues --json",
        ),
    )(import_legacy)
    serve(
        profile,
        "import",
        examples=(
            "waybill ingest profile import profiles/demo_content",
            "waybill ingest profile import profiles/demo_content --dry-run --json",
        ),
    )(import_files)


def import_files(
    desk: Desk,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Merritt's properties files; a file's name is its profile's."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be made.")] = False,
    why: WHY = "",
) -> int | None:
    """Take profiles over from Merritt's properties files. Safe to repeat: what is the same stays as it is, what
    differs is changed.
    """
    rows = []
    with desk.engine() as engine:
        for file in files:
            row = _import(desk, engine, file, dry_run, why)
            rows.append(row)
            if not desk.as_json:
                desk.say(f"{row['name']}: {row['result']}")
                for remark in (*row["faults"], *row["remarks"]):
                    desk.say(f"  {remark}")
    if desk.as_json:
        desk.print_json({"profiles": rows, "dry_run": dry_run})
    return FAILED if any(row["faults"] for row in rows) else None


def _import(desk: Desk, engine: Engine, file: Path, dry_run: bool, why: str) -> dict[str, Any]:
    name = file.name.removesuffix(".properties")
    try:
        imported = import_profile(file.read_bytes(), name)
    except BadProfile as error:
        return {"name": name, "result": "refused", "faults": error.faults, "remarks": []}
    document = to_document(imported.profile)
    try:
        there = engine.store.get("profile", name).docs["profile"]
        result = "unchanged" if msgspec.json.decode(msgspec.json.encode(document)) == there else "changed"
    except NotFound:
        result = "made"
    if not dry_run:
        why = why or f"from {file.name}"
        if result == "made":
            engine.submit(New("profile", {"profile": document}, id=name), who=desk.who, why=why)
        elif result == "changed":
            engine.act(Ref("profile", name), "change", args=document, who=desk.who, why=why)
    said = result if not dry_run or result == "unchanged" else f"would be {result}"
    return {"name": name, "result": said, "faults": [], "remarks": imported.remarks}


def import_legacy(
    desk: Desk,
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="zookeeper://host:2181/chroot, or a folder with a copy of the queues."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be made.")] = False,
) -> int | None:
    """Make batches, jobs and assemblies of the entries of Merritt's old mrtQ queues, which are only read.

    Safe to repeat.
    """
    try:
        with (
            open_source(source) as old,
            desk.engine() as engine,
            Progress(console=desk.err, transient=True, disable=not desk.interactive) as shown,
        ):
            task = shown.add_task("importing", total=None)
            told = import_entries(
                engine,
                old,
                who=desk.who,
                dry_run=dry_run,
                progress=lambda done, total: shown.update(task, completed=done, total=total),
            )
    except LegacyError as error:
        raise Refused(str(error)) from error
    if desk.as_json:
        desk.print_json(told)
    else:
        _say_import(desk, told)
    return FAILED if told.refused else None


def _say_import(desk: Desk, told: Imported) -> None:
    for note in (*told.refusals, *told.remarks):
        desk.say(note.words if note.path in note.words else f"{note.path}: {note.words}")
    more = told.refused - len(told.refusals) + told.remarked - len(told.remarks)
    if more:
        desk.say(f"... and {several(more, 'line')} more")
    for state, count in sorted(told.states.items()):
        desk.say(f"{count:8}  {state}")
    made = ", ".join(f"{count} {kind}" for kind, count in told.made.items()) or "nothing"
    verb = "would be made" if told.dry_run else "made"
    gone = f", {told.gone} gone meanwhile" if told.gone else ""
    desk.say(
        f"Of {several(told.entries, 'entry', 'entries')}: {made} {verb}, {told.there} there already, "
        f"{told.refused} refused{gone}."
    )
