"""PUT_TIDY: what was staged is removed; the originals of a MIGRATE are removed, those of a PUT get owner and mode back.

An original goes only if it is still the file that was packed: device, inode, size, mtime, and the ctime that it had after the
lock. One that changed stays, gets its owner and mode back, and is reported. The step never gives up: the storage may have the
only copy of what is removed already, and a second run passes over what is gone.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from waybill.apps.archive.files import FileFailure, remove_originals
from waybill.apps.archive.machine import MigrationCharge, Progress, Released, RequestReport
from waybill.apps.archive.notices import make_completion_mail
from waybill.apps.archive.packed_archives import remove_staged
from waybill.apps.archive.service.quotas import quota_ref
from waybill.apps.archive.stages import (
    Stage,
    describe_failures,
    give_back_files,
    limit_report,
    report_of,
    run_stage,
    write_failures,
)
from waybill.record import Record
from waybill.step import Act, Done, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _put_tidy)


def _put_tidy(stage: Stage) -> Outcome:
    if stage.migration_record.state not in ("ON_STORAGE", "DELETING"):
        raise RuntimeError(
            f"{stage.migration_record.ref} is {stage.migration_record.state} and not ON_STORAGE; nothing is removed."
        )
    remove_staged(stage)
    report = report_of(stage)
    if stage.request.kind == "MIGRATE" and stage.files.is_locked:
        report = _remove_originals(stage)
        stage.ctx.save((report,))
    is_all_gone = stage.request.kind == "MIGRATE" and not report.kept
    not_given_back = give_back_files(stage, is_all_gone=is_all_gone)
    with stage.open_tables() as tables:
        tables.release_paths(stage.request.migration_number)
        _, size, _ = tables.sum_archives(stage.request.migration_number)
    report = replace(report, bytes=size)
    remarks = _remarks(report, not_given_back)
    return Done(
        (report,),
        remove=(Progress, Released),
        acts=_settle_quota(stage, size),
        spawn=make_completion_mail(stage.record, report, at=stage.ctx.now(), remarks=remarks),
        message=" ".join(remarks),
    )


def _remove_originals(stage: Stage) -> RequestReport:
    files = stage.files
    assert files.file_set is not None
    failures: list[FileFailure] = []
    # Only what VERIFYING has proven, and only the inode that was packed: what is gone is passed over.
    counts = remove_originals(files.file_set, stage.read_entries(files.locked), limit_report(failures))
    return RequestReport(
        failures=write_failures(stage, failures) if failures else None, kept=counts.stayed, removed=counts.removed
    )


def _settle_quota(stage: Stage, size: int) -> tuple[Act, ...]:
    """What was reserved becomes what is stored. It cannot happen twice: the request leaves PUT_TIDY in the same commit."""
    migration = stage.migration
    charge = stage.migration_record.document(MigrationCharge)
    settled = MigrationCharge(charge.storage, used=charge.used + size)
    return (
        Act(quota_ref(migration.workspace, charge.storage), "settle", {"reserved": charge.reserved, "used": size}),
        stage.act_on_migration("charge", charge=msgspec.to_builtins(settled)),
    )


def _remarks(report: RequestReport, not_given_back: list[FileFailure]) -> tuple[str, ...]:
    remarks = []
    if report.kept:
        remarks.append(
            f"{report.kept} originals were kept, because they changed after they were packed or could not be removed."
        )
    if not_given_back:
        remarks.append(f"Owner and mode could not be given back: {describe_failures(not_given_back)}.")
    return tuple(remarks)
