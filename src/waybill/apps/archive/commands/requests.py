"""put, migrate, get, delete, undelete, move, cancel, resume, watch."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from waybill.apps.archive.commands.support import (
    MIGRATION,
    NOTIFY,
    REQUEST,
    USER,
    WATCH,
    WORKSPACE,
    caller_of,
    migrations_of,
    register_command,
    requests_of,
    resources_of,
)
from waybill.apps.archive.machine import RequestKind
from waybill.cli.command_context import CommandContext
from waybill.cli.followed_records import follow_record
from waybill.cli.terminal import format_size
from waybill.errors import FAILED, InputError
from waybill.record import Record

PANEL = "Requests"
STORAGE = Annotated[
    str, typer.Option("--storage", "-s", metavar="NAME", help="The storage.", show_default="the only one")
]
PATHS = Annotated[list[Path] | None, typer.Argument(metavar="PATH...", help="Files and folders.")]
LABEL = Annotated[
    str,
    typer.Option(
        "--label", "-l", metavar="TEXT", help="What the migration is called.", show_default="the first path's name"
    ),
]
EXCLUDE = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="GLOB", help="Leave out what matches; may be repeated.")
]
FILES_FROM = Annotated[
    str,
    typer.Option("--files-from", metavar="FILE", help="Read paths from a file, one in each line; -: standard input."),
]
NUL = Annotated[bool, typer.Option("-0", help="Paths of --files-from end with a NUL byte.")]
DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="List what would be archived, and change nothing.")]


def register(app: typer.Typer) -> None:
    register_command(app, "put", panel=PANEL, examples=(
        "waybill archive put /data/run-17 --watch",
        "waybill archive put --files-from names.txt --label netcdf",
        "waybill archive put /data/run-17 --exclude '**/*.tmp' --dry-run",
    ))(put)  # fmt: skip
    register_command(
        app,
        "migrate",
        panel=PANEL,
        examples=("waybill archive migrate /data/run-16 --storage tape --notify ann@example.org",),
    )(migrate)
    register_command(app, "get", panel=PANEL, examples=(
        "waybill archive get 12 /scratch/run-17 --watch",
        "waybill archive get 12 /scratch/some --glob '**/*.nc'",
        "waybill archive get 12 --original",
    ))(get)  # fmt: skip
    register_command(
        app, "delete", panel=PANEL, examples=("waybill archive delete 12", "waybill archive delete 13 --only-copy")
    )(delete)
    register_command(app, "undelete", panel=PANEL, examples=("waybill archive undelete 12",))(undelete)
    register_command(app, "move", panel=PANEL, examples=("waybill archive move 12 --storage tape --watch",))(move)
    register_command(app, "cancel", panel=PANEL, examples=("waybill archive cancel 31",))(cancel)
    register_command(app, "resume", panel=PANEL, examples=("waybill archive resume 31",))(resume)
    register_command(app, "watch", panel=PANEL, examples=("waybill archive watch 31",))(watch)


def put(
    context: CommandContext, paths: PATHS = None, storage: STORAGE = "", workspace: WORKSPACE = "", label: LABEL = "",
    exclude: EXCLUDE = None, files_from: FILES_FROM = "", nul: NUL = False, notify: NOTIFY = None, dry_run: DRY_RUN = False,
    watch: WATCH = False, user: USER = "",
) -> int | None:  # fmt: skip
    """Copy files to a storage, and prove that they are there. The originals stay."""
    return _put(
        context, "PUT", paths, storage, workspace, label, exclude, files_from, nul, notify, dry_run, watch, user
    )


def migrate(
    context: CommandContext, paths: PATHS = None, storage: STORAGE = "", workspace: WORKSPACE = "", label: LABEL = "",
    exclude: EXCLUDE = None, files_from: FILES_FROM = "", nul: NUL = False, notify: NOTIFY = None, dry_run: DRY_RUN = False,
    watch: WATCH = False, user: USER = "",
) -> int | None:  # fmt: skip
    """Move files to a storage: the originals go when everything was read back, and only if they have not changed."""
    return _put(
        context, "MIGRATE", paths, storage, workspace, label, exclude, files_from, nul, notify, dry_run, watch, user
    )


def _put(
    context: CommandContext, kind: RequestKind, paths: list[Path] | None, storage: str, workspace: str, label: str,
    exclude: list[str] | None, files_from: str, nul: bool, notify: list[str] | None, dry_run: bool, watch: bool, user: str,
) -> int | None:  # fmt: skip
    chosen = [os.path.abspath(path) for path in paths or ()]
    chosen += [os.path.abspath(path) for path in _read_paths(files_from, nul)] if files_from else []
    if dry_run:
        return _print_files(context, chosen, exclude or [], user)
    record = requests_of(context).put(
        caller_of(context, user), chosen, kind=kind, workspace=workspace, storage=storage, label=label, exclude=exclude or (),
        notify=notify or (),
    )  # fmt: skip
    return _print_request(context, record, watch)


def _read_paths(files_from: str, nul: bool) -> list[str]:
    if files_from == "-":
        content = sys.stdin.buffer.read()
    else:
        try:
            content = Path(files_from).read_bytes()
        except OSError as error:
            raise InputError(f"{files_from} cannot be read: {error.strerror}.") from None
    return [os.fsdecode(line) for line in content.split(b"\0" if nul else b"\n") if line]


def _print_files(context: CommandContext, paths: list[str], exclude: list[str], user: str) -> int | None:
    """What a PUT would archive, listed as the user; nothing is locked or written."""
    from waybill.apps.archive.files import FileFailure, Selection, open_access, to_printable
    from waybill.apps.archive.service.requests import check_paths

    failures: list[FileFailure] = []
    excluded = Selection(globs=exclude) if exclude else None
    files = size = 0
    with open_access(resources_of(context).find_user(caller_of(context, user).name)) as access:
        file_set, relative = access.find_file_set(check_paths(paths))
        for entry in access.list_files(file_set, relative, failures.append):
            if excluded is None or not excluded.has_path(entry.path):
                files, size = files + 1, size + entry.size
                if not context.as_json:
                    context.print_line(to_printable(entry.path))
    if context.as_json:
        context.print_json({"files": files, "bytes": size, "failures": failures})
    else:
        for failure in failures:
            context.print_note(f"{failure.path}: {failure.reason}")
        context.print_note(f"{files} files, {format_size(size)}; nothing was archived.")
    return FAILED if failures else None


def get(
    context: CommandContext,
    migration: MIGRATION,
    target: Annotated[
        Path | None, typer.Argument(metavar="TARGET", help="The folder to restore into; its parent must exist.")
    ] = None,
    glob: Annotated[
        list[str] | None, typer.Option("--glob", metavar="GLOB", help="Only what matches, such as '**/*.nc'.")
    ] = None,
    regex: Annotated[
        list[str] | None, typer.Option("--regex", metavar="REGEX", help="Only what matches a regular expression.")
    ] = None,
    path: Annotated[list[str] | None, typer.Option("--path", metavar="PATH", help="Only this file or folder.")] = None,
    files_from: FILES_FROM = "",
    nul: NUL = False,
    original: Annotated[bool, typer.Option("--original", help="Restore to where the files were.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")] = False,
    notify: NOTIFY = None,
    watch: WATCH = False,
    user: USER = "",
) -> int | None:
    """Restore files of a migration, all of them or some."""
    if (target is None) != original:
        raise InputError("Name a target folder, or say --original.", code="usage")
    chosen = [*(path or ()), *(_read_paths(files_from, nul) if files_from else ())]
    record = requests_of(context).get(
        caller_of(context, user), migration, os.path.abspath(target) if target is not None else "", globs=glob or (),
        regexes=regex or (), paths=chosen, overwrite=overwrite, notify=notify or (),
    )  # fmt: skip
    return _print_request(context, record, watch)


def delete(
    context: CommandContext,
    migration: MIGRATION,
    only_copy: Annotated[
        bool, typer.Option("--only-copy", help="Delete it although the originals were removed.")
    ] = False,
    grace: Annotated[
        float | None,
        typer.Option("--grace", min=0, metavar="SECONDS", help="How long it can be taken back.", show_default="as set"),
    ] = None,
    notify: NOTIFY = None,
    watch: WATCH = False,
    user: USER = "",
) -> int | None:
    """Delete a migration from its storage. An unfinished PUT of it is ended, and its files are given back."""
    record = requests_of(context).delete(
        caller_of(context, user), migration, only_copy=only_copy, grace=grace, notify=notify or ()
    )
    return _print_request(context, record, watch)


def undelete(context: CommandContext, migration: MIGRATION, user: USER = "") -> int | None:
    """Take back a DELETE while its grace lasts."""
    result = requests_of(context).undelete(caller_of(context, user), migration)
    if context.as_json:
        context.print_json({"migration": migration, "pending": result.pending})
    else:
        context.print_line(f"Migration {migration} is kept.")
    return None


def move(
    context: CommandContext,
    migration: MIGRATION,
    storage: STORAGE = "",
    notify: NOTIFY = None,
    watch: WATCH = False,
    user: USER = "",
) -> int | None:
    """Move a migration to another storage; the old copy goes when the new one was read back."""
    if not storage:
        raise InputError("Say which storage it goes to: --storage NAME.", code="usage")
    return _print_request(
        context, requests_of(context).move(caller_of(context, user), migration, storage, notify=notify or ()), watch
    )


def cancel(
    context: CommandContext,
    request: REQUEST,
    why: Annotated[str, typer.Option("--why", help="The reason, for the history.")] = "",
    user: USER = "",
) -> int | None:
    """End a request and clean up after it."""
    return _print_request(context, requests_of(context).cancel(caller_of(context, user), request, why=why), False)


def resume(context: CommandContext, request: REQUEST, watch: WATCH = False, user: USER = "") -> int | None:
    """Let a request that has failed go on. What was stored and has not changed is not sent again."""
    return _print_request(context, requests_of(context).resume(caller_of(context, user), request), watch)


def watch(context: CommandContext, request: REQUEST) -> int | None:
    """Follow a request to its end."""
    with context.open_engine() as engine:
        record = requests_of(context).get_request(engine, request)
    return _follow(context, record)


def _print_request(context: CommandContext, record: Record, is_watched: bool) -> int | None:
    shown = migrations_of(context).show_request(record)
    if is_watched:
        return _follow(context, record)
    if context.as_json:
        context.print_json(shown)
    else:
        context.print_line(
            f"request {shown['request']}: {shown['kind']} of migration {shown['migration']}, {shown['state']}"
        )
    return None


def _follow(context: CommandContext, record: Record) -> int | None:
    with context.open_store() as store:
        last = follow_record(context, store, record.ref)
    if last is None:
        return None
    if last.message and not context.as_json:
        context.print_note(last.message)
    return FAILED if last.state in ("FAILED", "STOPPED") else None
