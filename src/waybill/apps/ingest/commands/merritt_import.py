"""Commands that import from Merritt: profiles from its properties files, and the entries of its old queues."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import Progress

from waybill.apps.ingest.commands.support import register_command
from waybill.apps.ingest.merritt.profile_import import import_profile
from waybill.apps.ingest.merritt.queue_import import QueueImportReport, import_entries
from waybill.apps.ingest.merritt.queue_sources import open_source
from waybill.apps.ingest.profile import BadProfile, to_document
from waybill.cli.command_context import WHY, CommandContext
from waybill.cli.terminal import pluralize
from waybill.engine import Engine
from waybill.errors import FAILED, FormatError
from waybill.record import RecordNotFound, Ref
from waybill.rules import ActionRefused
from waybill.step import New


def register(app: typer.Typer, profile: typer.Typer) -> None:
    register_command(
        app,
        "import-legacy",
        panel="Operations",
        examples=(
            "waybill ingest import-legacy zookeeper://zk.example.org:2181 --dry-run",
            "waybill ingest import-legacy copy-of-the-queues --json",
        ),
    )(import_legacy)
    register_command(
        profile,
        "import",
        examples=(
            "waybill ingest profile import profiles/demo_content",
            "waybill ingest profile import profiles/demo_content --dry-run --json",
        ),
    )(import_profiles)


def import_profiles(
    context: CommandContext,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Merritt's properties files; a file's name is its profile's."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be created.")] = False,
    why: WHY = "",
) -> int | None:
    """Import profiles from Merritt's properties files. Safe to repeat: a profile is changed only where it differs."""
    rows = []
    with context.open_engine() as engine:
        for file in files:
            row = _import_file(context, engine, file, dry_run, why)
            rows.append(row)
            if not context.as_json:
                context.print_line(f"{row['name']}: {row['result']}")
                for remark in (*row["faults"], *row["remarks"]):
                    context.print_line(f"  {remark}")
    if context.as_json:
        context.print_json({"profiles": rows, "dry_run": dry_run})
    return FAILED if any(row["faults"] for row in rows) else None


def _import_file(context: CommandContext, engine: Engine, file: Path, dry_run: bool, why: str) -> dict[str, Any]:
    name = file.name.removesuffix(".properties")
    try:
        imported = import_profile(file.read_bytes(), name)
    except BadProfile as error:
        return {"name": name, "result": "refused", "faults": error.faults, "remarks": []}
    document = to_document(imported.profile)
    try:
        before = engine.store.get("profile", name).documents["profile"]
        result = "unchanged" if msgspec.json.decode(msgspec.json.encode(document)) == before else "changed"
    except RecordNotFound:
        result = "created"
    if not dry_run:
        why = why or f"from {file.name}"
        if result == "created":
            engine.submit(New("profile", {"profile": document}, id=name), who=context.who, why=why)
        elif result == "changed":
            engine.act(Ref("profile", name), "change", args=document, who=context.who, why=why)
    text = result if not dry_run or result == "unchanged" else f"would be {result}"
    return {"name": name, "result": text, "faults": [], "remarks": imported.remarks}


def import_legacy(
    context: CommandContext,
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="zookeeper://host:2181/chroot, or a folder with a copy of the queues."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be created.")] = False,
) -> int | None:
    """Create batches, jobs and assemblies from the entries of Merritt's old mrtQ queues, which are only read.

    Safe to repeat.
    """
    try:
        with (
            open_source(source) as legacy_queues,
            context.open_engine() as engine,
            Progress(console=context.err, transient=True, disable=not context.is_interactive) as shown,
        ):
            task = shown.add_task("importing", total=None)
            report = import_entries(
                engine,
                legacy_queues,
                who=context.who,
                dry_run=dry_run,
                progress=lambda done, total: shown.update(task, completed=done, total=total),
            )
    except FormatError as error:
        raise ActionRefused(str(error)) from error
    if context.as_json:
        context.print_json(report)
    else:
        _print_import(context, report)
    return FAILED if report.refusal_count else None


def _print_import(context: CommandContext, report: QueueImportReport) -> None:
    for note in (*report.refusals, *report.remarks):
        context.print_line(note.text if note.path in note.text else f"{note.path}: {note.text}")
    more = report.refusal_count - len(report.refusals) + report.remark_count - len(report.remarks)
    if more:
        context.print_line(f"... and {pluralize(more, 'line')} more")
    for state, count in sorted(report.states.items()):
        context.print_line(f"{count:8}  {state}")
    created = ", ".join(f"{count} {kind}" for kind, count in report.created.items()) or "nothing"
    verb = "would be created" if report.dry_run else "created"
    vanished = f", {report.vanished} vanished meanwhile" if report.vanished else ""
    context.print_line(
        f"Of {pluralize(report.entries, 'entry', 'entries')}: {created} {verb}, {report.already_imported} already imported, "
        f"{report.refusal_count} refused{vanished}."
    )
