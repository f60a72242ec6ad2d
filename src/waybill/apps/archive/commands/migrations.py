"""ls, show, files, search, label, tag, quota."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from waybill import views
from waybill.apps.archive import machine
from waybill.apps.archive.catalogue import decode_path
from waybill.apps.archive.commands.support import MIGRATION, USER, caller_of, migrations_of, register_command
from waybill.apps.archive.files import to_printable
from waybill.apps.archive.service.migrations import describe_request
from waybill.cli.command_context import CommandContext, command
from waybill.cli.terminal import format_progress, format_size, make_field_table, make_table
from waybill.errors import InputError
from waybill.text_format import clip_line, format_age

PANEL = "Migrations"
MAX_OVERVIEW = 200  # of the latest requests
LIMIT = Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000_000, help="How many, at most.")]


def register_overview(app: typer.Typer) -> None:
    command(app, "overview", without_subcommand=True, examples=("waybill archive", "waybill archive --json"))(
        show_overview
    )


def register(app: typer.Typer) -> None:
    register_command(
        app, "ls", panel=PANEL, examples=("waybill archive ls", "waybill archive ls --tag year=2026 --workspace atlas")
    )(ls)
    register_command(app, "show", panel=PANEL, examples=("waybill archive show 12",))(show)
    register_command(app, "files", panel=PANEL, examples=("waybill archive files 12 --digests",))(files)
    register_command(app, "search", panel=PANEL, examples=(
        "waybill archive search --path /data/run-17",
        "waybill archive search --name result.nc",
        "waybill archive search --digest 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ))(search)  # fmt: skip
    register_command(app, "label", panel=PANEL, examples=('waybill archive label 12 "Run 17, final"',))(label)
    register_command(
        app,
        "tag",
        panel=PANEL,
        examples=("waybill archive tag 12 project=eden year=2026", "waybill archive tag 12 --remove year"),
    )(tag)
    register_command(app, "quota", panel=PANEL, examples=("waybill archive quota", "waybill archive quota atlas"))(
        quota
    )


def show_overview(context: CommandContext) -> None:
    """Show how many migrations are in which state, and the requests that are at work or have failed."""
    with context.open_store() as store:
        counts = store.count_by_state(machine.MIGRATION.name)
        progress = views.progress_of(views.list_live_sessions(store))
        newest = store.find(machine.REQUEST.name, newest=True, limit=MAX_OVERVIEW, documents=True).records
    shown = [describe_request(each, progress) for each in newest if each.open]
    if context.as_json:
        return context.print_json({"migrations": counts, "requests": shown})
    context.print_line(
        ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "There are no migrations."
    )
    for each in shown:
        text = _format_progress(each) or clip_line(each["message"])
        context.print_line(
            f"request {each['request']}  {each['kind']} of migration {each['migration']}  {each['state']}  {text}".rstrip()
        )
    return None


def ls(
    context: CommandContext,
    workspace: Annotated[str, typer.Option("--workspace", "-w", metavar="NAME", help="Only of this workspace.")] = "",
    owner: Annotated[str, typer.Option("--owner", metavar="NAME", help="Only of this owner.")] = "",
    label: Annotated[str, typer.Option("--label", "-l", metavar="TEXT", help="Only with this label.")] = "",
    tag: Annotated[str, typer.Option("--tag", metavar="KEY[=VALUE]", help="Only with this tag.")] = "",
    limit: LIMIT = 50,
) -> None:
    """List migrations, the latest first."""
    service = migrations_of(context)
    rows = service.iter_visible(caller_of(context), workspace=workspace, owner=owner, label=label, tag=tag, newest=True)
    found = service.list_views(rows, limit)
    if context.as_json:
        return context.print_json({"migrations": found})
    table = make_table(
        "migration",
        "state",
        "label",
        "owner",
        "workspace",
        "storage",
        "files",
        "size",
        "made",
        unfolded=("migration", "state"),
    )
    for each in found:
        table.add_row(
            str(each["migration"]), each["state"], clip_line(each["label"], 40), each["owner"], each["workspace"], each["storage"],
            f"{each['files']:,}", format_size(each["bytes"]), format_age(each["made"]),
        )  # fmt: skip
    context.out.print(table)
    return None


def show(context: CommandContext, migration: MIGRATION) -> None:
    """Show a migration and its requests."""
    shown = migrations_of(context).show(caller_of(context), migration)
    if context.as_json:
        return context.print_json(shown)
    context.out.print(
        make_field_table(
            [
                ("migration", shown["migration"]),
                ("state", shown["state"]),
                ("label", shown["label"]),
                ("owner", shown["owner"]),
                ("workspace", shown["workspace"]),
                ("storage", shown["storage"]),
                ("folder", shown["common_path"]),
                ("files", f"{shown['files']:,} in {shown['archives']:,} archives"),
                ("size", format_size(shown["bytes"])),
                ("only copy", "yes: the originals were removed" if shown["only_copy"] else ""),
                ("tags", ", ".join(shown["tags"])),
                ("failure", shown["failure"]),
                ("made", shown["made"]),
                ("removed", shown["removed"]),
            ]
        )
    )
    table = make_table("request", "kind", "state", "stage", "changed", "message", unfolded=("request", "state"))
    for each in shown["requests"]:
        stage = f"{each['stage']}/{each['stages']}" if each["stage"] else ""
        table.add_row(
            str(each["request"]), each["kind"], each["state"], stage, format_age(each["changed"]),
            _format_progress(each) or clip_line(each["message"]),
        )  # fmt: skip
    context.out.print(table)
    return None


def _format_progress(request: dict[str, Any]) -> str:
    progress = request["progress"]
    if not progress:
        return ""
    total = progress["total"]
    return format_progress({**progress, "fraction": min(1.0, progress["done"] / total) if total else None})


def files(
    context: CommandContext,
    migration: MIGRATION,
    digests: Annotated[bool, typer.Option("--digests", "-d", help="With the SHA-256 of each file.")] = False,
    limit: LIMIT = 1000,
) -> None:
    """List the files of a migration, in the order of its archives. With --json: one line for each."""
    rows = islice(migrations_of(context).iter_files(caller_of(context), migration), limit)
    for row in rows:
        path = to_printable(decode_path(row.path))
        if context.as_json:
            context.print_json(
                {
                    "archive": row.archive,
                    "path": path,
                    "kind": row.kind,
                    "size": row.size,
                    "sha256": row.sha256 or None,
                },
                line=True,
            )
        else:
            context.print_line(f"{row.sha256:64}  {path}" if digests else f"{row.size:>14,}  {path}")


def search(
    context: CommandContext,
    path: Annotated[str, typer.Option("--path", metavar="PATH", help="At this path, or below it.")] = "",
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="With exactly this name.")] = "",
    digest: Annotated[str, typer.Option("--digest", metavar="SHA256", help="With this content.")] = "",
    limit: LIMIT = 100,
    user: USER = "",
) -> None:
    """Search the files of all migrations. With --json: one line for each."""
    given = [(by, text) for by, text in (("path", path), ("name", name), ("digest", digest)) if text]
    if len(given) != 1:
        raise InputError("Say one of --path, --name and --digest.", code="usage")
    by, text = given[0]
    found = islice(migrations_of(context).search(caller_of(context, user), by, text), limit)  # type: ignore[arg-type]
    count = 0
    for each in found:
        count += 1
        if context.as_json:
            context.print_json(each, line=True)
        else:
            context.print_line(f"{each['migration']:>8}  {each['size']:>14,}  {each['path']}")
    context.print_note(f"{count} files{', at most as many as --limit says' if count == limit else ''}.")


def label(
    context: CommandContext,
    migration: MIGRATION,
    text: Annotated[str, typer.Argument(metavar="LABEL", help="The new label.")],
) -> None:
    """Give a migration another label."""
    given = migrations_of(context).set_label(caller_of(context), migration, text)
    if context.as_json:
        return context.print_json({"migration": migration, "label": given})
    return context.print_line(f"Migration {migration} is called {given}.")


def tag(
    context: CommandContext,
    migration: MIGRATION,
    tags: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Tags to add.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="KEY[=VALUE]", help="A tag to remove; may be repeated.")
    ] = None,
) -> None:
    """Add and remove tags of a migration; without any, show them."""
    left = migrations_of(context).change_tags(caller_of(context), migration, tags or [], remove or [])
    if context.as_json:
        return context.print_json({"migration": migration, "tags": left})
    return context.print_line(", ".join(left) or "It has no tags.")


def quota(
    context: CommandContext, workspace: Annotated[str, typer.Argument(metavar="WORKSPACE", help="Only this one.")] = ""
) -> None:
    """Show how much of their quotas workspaces have used and reserved."""
    found = migrations_of(context).list_quotas(caller_of(context), workspace)
    if context.as_json:
        return context.print_json({"quotas": found})
    table = make_table("workspace", "storage", "used", "reserved", "limit", "")
    for each in found:
        limit = each["limit"]
        share = (each["used"] + each["reserved"]) / limit if limit else 0.0
        bar = (
            f"{'━' * round(20 * min(1.0, share))}{'╌' * (20 - round(20 * min(1.0, share)))} {share:4.0%}"
            if limit
            else ""
        )
        table.add_row(
            each["workspace"], each["storage"], format_size(each["used"]), format_size(each["reserved"]),
            format_size(limit) if limit else "none", bar,
        )  # fmt: skip
    context.out.print(table)
    return None
