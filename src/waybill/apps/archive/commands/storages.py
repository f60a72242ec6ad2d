"""storages, create-storage, verify, scrub, rebuild."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill.apps.archive.checking import check_archive
from waybill.apps.archive.commands.support import MIGRATION, caller_of, migrations_of, register_command, resources_of
from waybill.apps.archive.machine import MigrationDocument
from waybill.apps.archive.rebuilding import Rebuild
from waybill.apps.archive.service.requests import migration_ref
from waybill.apps.archive.storages import ExternalStorageError
from waybill.cli.command_context import CommandContext
from waybill.cli.terminal import format_size, make_table
from waybill.errors import FAILED, ActionRefused

PANEL = "Storages"
STORAGE = Annotated[str, typer.Argument(metavar="STORAGE", help="Its name in the settings.")]


def register(app: typer.Typer) -> None:
    register_command(app, "storages", panel=PANEL, examples=("waybill archive storages",))(storages)
    register_command(app, "create-storage", panel=PANEL, examples=("waybill archive create-storage disk",))(
        create_storage
    )
    register_command(app, "verify", panel=PANEL, examples=("waybill archive verify 12",))(verify)
    register_command(app, "scrub", panel=PANEL, examples=("waybill archive scrub", "waybill archive scrub --json"))(
        scrub
    )
    register_command(app, "rebuild", panel=PANEL, examples=("waybill archive rebuild disk",))(rebuild)


def storages(context: CommandContext) -> None:
    """List the storages, and whether each can be used now."""
    resources = resources_of(context)
    found = []
    for name, settings in sorted(resources.settings.storages.items()):
        try:
            resources.open_storage(name).check()
            problem = ""
        except ExternalStorageError as error:
            problem = str(error)
        found.append({"storage": name, "type": settings.type, "title": settings.title or name, "problem": problem})
    if context.as_json:
        return context.print_json({"storages": found})
    table = make_table("storage", "type", "title", "")
    for each in found:
        table.add_row(each["storage"], each["type"], each["title"], each["problem"] or "usable")
    context.out.print(table)
    return None


def create_storage(context: CommandContext, name: STORAGE) -> None:
    """Make the folder of a storage that the settings name: once, when its disk is mounted."""
    resources_of(context).create_storage(name)
    if context.as_json:
        return context.print_json({"storage": name})
    return context.print_line(f"The storage {name} is ready.")


def verify(context: CommandContext, migration: MIGRATION) -> int | None:
    """Read every archive of a migration again now, and compare it with what was put there."""
    resources, service = resources_of(context), migrations_of(context)
    service.find(caller_of(context), migration)
    with context.open_store() as store:
        found = store.get_many([migration_ref(migration)]).get(migration_ref(migration))
        now = store.now()
    if found is None or found.state != "ON_STORAGE":
        raise ActionRefused(
            f"Migration {migration} is {found.state if found is not None else 'gone'}; only one ON_STORAGE can be verified."
        )
    document = found.document(MigrationDocument)
    wrong = pending = right = 0
    for row in service.iter_archives(caller_of(context), migration):
        result = check_archive(
            resources, storage_name=document.storage, container=document.container, migration=migration, number=row.number,
            name=row.name, size=row.size, sha256=row.sha256, now=now,
        )  # fmt: skip
        wrong, pending, right = wrong + bool(result.problem), pending + result.is_pending, right + result.is_right
        state = result.problem or (
            "the storage is fetching it; ask again" if result.is_pending else "is what was put there"
        )
        if context.as_json:
            context.print_json(
                {"archive": row.number, "name": row.name, "problem": result.problem, "pending": result.is_pending},
                line=True,
            )
        else:
            context.print_line(f"{row.name}  {format_size(row.size):>8}  {state}")
    context.print_note(f"{right} archives are right, {wrong} are not, {pending} are being fetched.")
    return FAILED if wrong or pending else None


def scrub(context: CommandContext) -> int | None:
    """Show the archives that are no longer what was put there, as the scrub or a verify has found."""
    found = migrations_of(context).list_findings(caller_of(context))
    if context.as_json:
        context.print_json({"findings": found})
    elif not found:
        context.print_line("No archive is known to be damaged.")
    else:
        table = make_table("migration", "archive", "storage", "found", "problem")
        for each in found:
            table.add_row(str(each["migration"]), str(each["archive"]), each["storage"], each["found"], each["problem"])
        context.out.print(table)
    return FAILED if found else None


def rebuild(context: CommandContext, storage: STORAGE) -> int | None:
    """Enter in the catalogue what it has lost of a storage, from the catalogue file of each container."""
    with context.open_engine() as engine:
        work = Rebuild(resources_of(context), engine, storage, who=context.who)
        restored = failed = 0
        for result in work.iter_results():
            restored, failed = restored + (result.state == "restored"), failed + (result.state == "damaged")
            if context.as_json:
                context.print_json(
                    {"container": result.container, "state": result.state, "message": result.message}, line=True
                )
            elif result.state != "known":
                context.print_line(f"{result.container}  {result.state}  {result.message}".rstrip())
    context.print_note(f"{restored} migrations were restored, {failed} could not be.")
    return FAILED if failed else None
