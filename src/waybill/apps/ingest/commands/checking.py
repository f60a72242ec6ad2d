"""The command that checks a manifest before it is submitted: every complaint with its line; nothing is fetched, no store is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill.apps.ingest.checkm import BadManifest, Complaint, Kind, Manifest, read
from waybill.apps.ingest.commands.counter import opened, serve, size_of
from waybill.apps.ingest.submission import Type
from waybill.cli.desk import Desk
from waybill.cli.problems import FAILED

PANEL = "Depositing"
OF_TYPE = {Type.OBJECT: Kind.OBJECT, Type.MANIFESTS: Kind.MANIFESTS, Type.CONTAINERS: Kind.CONTAINERS, Type.FILES: Kind.FILES}
IN_WORDS = {
    Kind.OBJECT: "an object of {} files",
    Kind.MANIFESTS: "a batch of {} objects, each with a manifest of its own",
    Kind.CONTAINERS: "a batch of {} objects, each a container",
    Kind.FILES: "a batch of {} objects, each one file",
}


def register(app: typer.Typer) -> None:
    serve(app, panel=PANEL, examples=(
        "waybill ingest check photos.checkm", "waybill ingest check photos.checkm --type container-batch-manifest --json",
    ))(check)  # fmt: skip


def check(
    desk: Desk,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A checkm manifest; - reads stdin.")],
    type: Annotated[Type | None, typer.Option("--type", help="What it is to be submitted as; otherwise its #%profile says so.")] = None,
) -> int | None:
    """Check a manifest: every complaint with its line, before anything is fetched. Exit code 1 if there is one."""
    kind = OF_TYPE.get(type) if type is not None else None
    if type is not None and kind is None:
        raise typer.BadParameter(f"a {type} is no manifest; only manifests can be checked.", param_hint="--type")
    manifest: Manifest | None = None
    complaints: list[Complaint] = []
    try:
        if str(file) == "-":
            manifest = read(sys.stdin.buffer, kind=kind)
        else:
            with opened(file) as source:
                manifest = read(source, kind=kind)
    except BadManifest as error:
        complaints = error.complaints
    _say(desk, file, manifest, complaints)
    return FAILED if complaints else None


def _say(desk: Desk, file: Path, manifest: Manifest | None, complaints: list[Complaint]) -> None:
    remarks = manifest.remarks if manifest is not None else []
    total = sum(row.size or 0 for row in manifest.rows) if manifest is not None else 0
    if desk.as_json:
        return desk.print_json({
            "file": str(file), "good": not complaints, "profile": manifest.kind if manifest is not None else None,
            "rows": len(manifest.rows) if manifest is not None else None, "bytes": total,
            "complaints": _rows(complaints), "remarks": _rows(remarks),
        })  # fmt: skip
    for complaint in (*complaints, *remarks):
        desk.say(str(complaint))
    if manifest is None:
        return desk.note(f"{file}: {len(complaints)} complaint{'s' if len(complaints) != 1 else ''}. It would be refused as it is.")
    said = IN_WORDS[manifest.kind].format(len(manifest.rows))
    known = f", {size_of(total)} by what it says" if total else ""
    return desk.say(f"{file} is good: {said}{known}.")


def _rows(complaints: list[Complaint]) -> list[dict[str, Any]]:
    return [{"line": each.line or None, "text": each.text} for each in complaints]
