"""The command that checks a payload before it is submitted: every complaint with its line or file; nothing is
fetched or kept.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from waybill.apps.ingest import service, settings
from waybill.apps.ingest.commands.counter import opened, serve, several, size_of
from waybill.apps.ingest.submission import Type
from waybill.cli.desk import Desk
from waybill.cli.problems import FAILED

PANEL = "Depositing"
IN_WORDS: dict[Type | None, tuple[str, str]] = {
    Type.OBJECT: ("an object of {}", "file"),
    Type.MANIFESTS: ("a batch of {}, each with a manifest of its own", "object"),
    Type.CONTAINERS: ("a batch of {}, each a container", "object"),
    Type.FILES: ("a batch of {}, each one file", "object"),
}


def register(app: typer.Typer) -> None:
    serve(
        app,
        panel=PANEL,
        examples=(
            "waybill ingest check photos.checkm",
            "waybill ingest check photos.checkm --type container-batch-manifest --json",
            "waybill ingest check bag.zip",
        ),
    )(check)


def check(
    desk: Desk,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A checkm manifest, a container or a bag; - reads a manifest from stdin."),
    ],
    type: Annotated[
        Type | None, typer.Option("--type", help="What it is to be submitted as; otherwise it says so itself.")
    ] = None,
) -> int | None:
    """Check what is to be submitted: every complaint with its line or file, before anything is fetched. Exit code 1
    if there is one.

    Also each URL of a manifest that would be refused, by the settings here: hosts are looked up, and no server is
    asked.
    """
    reach = settings.read(desk.config.app.get("ingest", {})).fetch.reach()
    if str(file) == "-":
        with tempfile.NamedTemporaryFile(suffix=".checkm") as kept:
            shutil.copyfileobj(sys.stdin.buffer, kept)
            kept.flush()
            report = service.check_payload(Path(kept.name), type=type, reach=reach)
    else:
        opened(file).close()
        report = service.check_payload(file, type=type, reach=reach)
    _say(desk, file, report)
    return None if report.good else FAILED


def _say(desk: Desk, file: Path, report: service.Report) -> None:
    if desk.as_json:
        return desk.print_json({"file": str(file), "good": report.good, **msgspec.to_builtins(report)})
    for note in (*report.complaints, *report.remarks):
        desk.say(str(note))
    count = len(report.complaints)
    if count:
        return desk.note(f"{file}: {several(count, 'complaint')}. It would be refused as it is.")
    words, noun = IN_WORDS.get(report.type, (f"a {report.sort} of {{}}", "file"))
    said = words.format(several(report.count, noun))
    known = (
        f", {size_of(report.octets)}{' by what it says' if report.sort == 'manifest' else ''}" if report.octets else ""
    )
    return desk.say(f"{file} is good: {said if report.sort != 'file' else 'a file, which is stored as it is'}{known}.")
