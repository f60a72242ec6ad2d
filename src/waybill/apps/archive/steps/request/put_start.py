"""PUT_START: the files are listed, locked, shared out among archives; the quota is reserved.

    listed as the user -> the list is durable, and the migration names it -> locked -> the list of the locked files
    -> planned: one list of entries for each archive, one row in the catalogue -> the quota is reserved

Everything until the last commit is safe to repeat: lists have names of this run, locking what is locked changes nothing, the
rows of archives are replaced. An archive whose members are those of an earlier plan keeps what is known of it: it is hashed
again before it counts as sent.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from waybill.apps.archive.catalogue import ArchiveRow, decode_path
from waybill.apps.archive.files import (
    FileEntry,
    FileFailure,
    PlannedArchive,
    Selection,
    plan_archives,
    write_entry_list,
)
from waybill.apps.archive.machine import MigrationCharge, MigrationFiles, Progress, Released
from waybill.apps.archive.service.quotas import quota_ref
from waybill.apps.archive.stages import Stage, describe_failures, give_back_files, limit_report, run_stage
from waybill.errors import ActionRefused
from waybill.manifests.record_lists import read_list
from waybill.record import Record
from waybill.step import Act, Done, Fail, Outcome, StepContext

ROWS_AT_ONCE = 200


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _put_start)


def _put_start(stage: Stage) -> Outcome:
    files = _list_and_lock(stage)
    files = _plan(stage, files)
    _reserve_quota(stage, files)
    return Done(remove=(Released, Progress), message=f"{files.files} files in {files.archives} archives")


def _list_and_lock(stage: Stage) -> MigrationFiles:
    ctx, failures = stage.ctx, list[FileFailure]()
    if stage.request.paths is None:
        raise Fail("The request names no path.")
    paths = [decode_path(path) for path in read_list(ctx.objects, stage.request.paths, str)]
    # What an earlier run has locked gets its owner and mode back, so that they are listed as they were.
    give_back_files(stage)
    excluded = Selection(globs=stage.request.exclude) if stage.request.exclude else None
    with stage.open_access() as access:
        file_set, relative = access.find_file_set(paths)
        found = write_entry_list(
            ctx.objects,
            stage.list_name("found"),
            _watch(stage, _without(excluded, access.list_files(file_set, relative, limit_report(failures)))),
        )
        failures = [each for each in failures if excluded is None or not excluded.has_path(each.path)]
        if failures:
            raise Fail(
                f"Some files cannot be archived: {describe_failures(failures)}. Exclude them, or make them readable."
            )
        if not found.count:
            raise Fail("There is no file to archive.")
        # Owners and modes are durable before the first one is taken.
        before = MigrationFiles(file_set=file_set, found=found, is_locked=True, plan=stage.files.plan)
        ctx.save(acts=(stage.act_on_migration("note_files", files=msgspec.to_builtins(before)),))
        stage.forget_migration()
        locked = write_entry_list(
            ctx.objects,
            stage.list_name("locked"),
            _watch(stage, access.lock_files(file_set, stage.read_entries(found), limit_report(failures))),
        )
    if failures:
        raise Fail(f"Some files cannot be locked: {describe_failures(failures)}.")
    return replace(before, locked=locked)


def _without(excluded: Selection | None, entries: Iterator[FileEntry]) -> Iterator[FileEntry]:
    return entries if excluded is None else (entry for entry in entries if not excluded.has_path(entry.path))


def _watch(stage: Stage, entries: Iterator[FileEntry]) -> Iterator[FileEntry]:
    for number, entry in enumerate(entries, start=1):
        if number % 1000 == 0:
            stage.ctx.check()
            stage.ctx.report_progress(number, None, "files")
        yield entry


def _plan(stage: Stage, files: MigrationFiles) -> MigrationFiles:
    ctx, migration = stage.ctx, stage.request.migration_number
    plan = str(ctx.claim_version)
    limits = stage.resources.get_limits(stage.migration.storage)
    rows: list[ArchiveRow] = []
    archives = count = size = 0
    with stage.open_tables() as tables:
        for planned in plan_archives(stage.read_entries(files.locked), limits):
            ctx.check()
            entries = write_entry_list(ctx.objects, stage.list_name(f"archive-{planned.number:010d}"), planned.entries)
            known = tables.find_archive(migration, planned.number)
            sha256 = known.sha256 if known is not None and known.sha256 and _is_same(stage, known, planned) else ""
            rows.append(
                ArchiveRow(
                    migration,
                    planned.number,
                    planned.name,
                    plan,
                    planned.size,
                    len(planned.entries),
                    msgspec.json.encode(entries).decode(),
                    sha256,
                )
            )
            archives, count, size = planned.number, count + len(planned.entries), size + planned.size
            if len(rows) >= ROWS_AT_ONCE:
                tables.enter_archives(rows)
                rows = []
        tables.enter_archives(rows)
        tables.remove_archives_beyond(migration, archives)
    return replace(files, plan=plan, archives=archives, files=count, bytes=size)


def _is_same(stage: Stage, known: ArchiveRow, planned: PlannedArchive) -> bool:
    """Whether an archive of the plan before has the same members, as far as their metadata tell. The lock changes ctime."""
    if (known.size, known.files) != (planned.size, len(planned.entries)):
        return False
    before = stage.read_entries(known.entry_list)
    return all(
        replace(old, ctime_ns=0, sha256="") == replace(new, ctime_ns=0, sha256="")
        for old, new in zip(before, planned.entries, strict=True)
    )


def _reserve_quota(stage: Stage, files: MigrationFiles) -> None:
    """Reserve what is not reserved yet, and say so on the migration: one commit, and all of it or nothing.

    Safe to repeat: a second run finds the charge, and reserves the difference.
    """
    migration = stage.migration
    charge = stage.migration_record.find_document(MigrationCharge) or MigrationCharge(migration.storage)
    new = replace(charge, reserved=files.bytes)
    limit = stage.resources.get_limit(migration.workspace, migration.storage)
    reserve = Act(
        quota_ref(migration.workspace, migration.storage),
        "reserve",
        {"bytes": new.reserved - charge.reserved, "limit": limit},
    )
    begin = stage.act_on_migration("begin", files=msgspec.to_builtins(files), charge=msgspec.to_builtins(new))
    try:
        stage.ctx.save(acts=(begin, reserve))
    except ActionRefused as refused:
        if stage.ctx.get(*stage.migration_record.ref).state in ("DELETING", "DELETED"):
            raise  # a DELETE has come between, and stops this request
        raise Fail(str(refused)) from None
    stage.forget_migration()
