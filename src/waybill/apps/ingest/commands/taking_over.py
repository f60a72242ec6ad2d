"""Commands that take over what another Merritt has: profiles from its properties files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from waybill.apps.ingest.commands.counter import serve
from waybill.apps.ingest.profile import BadProfile, to_document
from waybill.apps.ingest.profile_import import import_profile
from waybill.cli.desk import WHY, Desk
from waybill.cli.problems import FAILED
from waybill.engine import Engine
from waybill.record import NotFound, Ref
from waybill.step import New


def register(profile: typer.Typer) -> None:
    serve(profile, "import", examples=(
        "waybill ingest profile import profiles/demo_content", "waybill ingest profile import profiles/demo_content --dry-run --json",
    ))(import_files)  # fmt: skip


def import_files(
    desk: Desk,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Merritt's properties files; a file's name is its profile's.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be made.")] = False,
    why: WHY = "",
) -> int | None:
    """Take profiles over from Merritt's properties files. Safe to repeat: what is the same stays as it is, what differs is changed."""
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
