"""What is removed and mended without anybody asking: bytes that no entry names, jobs that were left half done.

An entry that is replaced or removed notes its bytes as garbage in the same transaction; they are removed a few minutes
later, unless a link names them still. Bytes that were stored and never named, because the server ended in between, are
found by a walk over all of them, a day later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar

from waybill.apps.compute.entries import Entries
from waybill.apps.compute.jobs import Jobs, job_path
from waybill.apps.compute.resources import ComputeResources, job_ref
from waybill.apps.compute.storage import CONTENT_PREFIX, now_ms
from waybill.apps.compute.usage import KEEP_DAYS, hour_of, install_cost_files, write_report
from waybill.files.unneeded_objects import UnneededObjectRoutine
from waybill.maintenance import MaintenanceContext
from waybill.objects import ObjectInfo
from waybill.record import Finding

ROUND_SIZE = 1000
DAY = 86400.0
START_GRACE = 60_000  # milliseconds that a server has to start what it has made


def _resources_of(context: MaintenanceContext) -> ComputeResources:
    found: ComputeResources = context.resources_of("compute")
    return found


@dataclass(frozen=True)
class GarbageRemovalRoutine:
    """Safe to repeat and to interrupt: the bytes are removed first, and the note about them last."""

    name: str = "compute-garbage"
    description: str = "Removes bytes of objects that were replaced or removed."
    poll_interval: float = 60.0
    per_host: bool = False
    has_routine_findings: bool = True
    rule: ClassVar[str] = "bytes of a removed object"

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        resources = _resources_of(context)
        before = now_ms() - int(resources.settings.garbage_seconds * 1000)
        with resources.connections.open() as tables:
            rows = tables.query("garbage", before=before, row_limit=ROUND_SIZE)
        for row in rows:
            yield Finding(self.rule, row["content"], f"No entry needs {row['content']} any more.", "remove it")

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        resources = _resources_of(context)
        with resources.connections.open() as tables:
            if not Entries(tables).is_named(finding.where):
                resources.storage.objects.delete(finding.where)
            tables.execute("forget_garbage", content=finding.where)
        return True


@dataclass(frozen=True)
class UnnamedContentRoutine(UnneededObjectRoutine):
    name: str = "compute-unnamed"
    description: str = "Removes bytes of objects whose server ended before it had named them."
    age: float = DAY
    rule: ClassVar[str] = "bytes without an entry"
    prefixes: ClassVar[tuple[str, ...]] = (CONTENT_PREFIX,)

    def explain_unneeded(self, context: MaintenanceContext, info: ObjectInfo) -> str | None:
        if not self.is_old(context, info):
            return None
        with _resources_of(context).connections.open() as tables:
            return None if Entries(tables).is_named(info.name) else "is named by no entry"


@dataclass(frozen=True)
class JobRepairRoutine:
    """The zombie cleaner: what a crash, or somebody who removed a job, has left half done. Safe to repeat."""

    name: str = "compute-jobs"
    description: str = (
        "Starts jobs that were half made, forgets those whose directory is gone, ends inputs that are idle."
    )
    poll_interval: float = 30.0
    per_host: bool = False
    has_routine_findings: bool = True
    unstarted: ClassVar[str] = "job without a record"
    removed: ClassVar[str] = "job without a directory"
    idle: ClassVar[str] = "idle input"

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        """Each round goes on where the last one stopped."""
        resources, now = _resources_of(context), now_ms()
        before = now - int(resources.settings.input_idle * 1000)
        with resources.connections.open() as tables:
            idle = tables.query("list_idle_input", before=before, row_limit=ROUND_SIZE)
            rows = tables.query("list_jobs", after=str(context.memory.get("after", "")), row_limit=ROUND_SIZE)
            entries = Entries(tables)
            gone = {
                row["job"]
                for row in rows
                if row["archived"] and entries.find(job_path(row["account"], row["job"])) is None
            }
        for row in idle:
            yield Finding(
                self.idle, row["job"], f"The job {row['job']} has had no new input for long.", "end its input"
            )
        for row in rows:
            if row["job"] in gone:
                yield Finding(
                    self.removed, row["job"], f"The directory of the job {row['job']} was removed.", "forget it"
                )
            elif (
                row["state"] == "running"
                and now - row["created"] > START_GRACE
                and not context.has_record(job_ref(row["job"]))
            ):
                yield Finding(
                    self.unstarted, row["job"], f"The job {row['job']} was made and never started.", "start it"
                )
        context.memory["after"] = rows[-1]["job"] if len(rows) == ROUND_SIZE else ""

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        resources = _resources_of(context)
        jobs = Jobs(resources, lambda: nullcontext(context.engine))
        row = resources.find_job(finding.where)
        if row is None:
            return False
        if finding.rule == self.idle:
            jobs.end_input(row)
        elif finding.rule == self.removed:
            jobs.forget(row.job, who=context.who)
        else:
            jobs.start(row.job, row.account, row.read_manifest(), who=context.who)
        return True


@dataclass(frozen=True)
class UsageReportRoutine:
    """Safe to repeat: a report is written anew from all that is known of its hour."""

    name: str = "compute-usage"
    description: str = "Writes the hourly usage reports of jobs that are done."
    poll_interval: float = 5.0
    per_host: bool = False
    has_routine_findings: bool = True
    rule: ClassVar[str] = "usage that no report holds"

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        with _resources_of(context).connections.open() as tables:
            rows = tables.query("unreported_usage", row_limit=ROUND_SIZE)
        for row in rows:
            where = f"{row['account']} {row['hour']}"
            yield Finding(self.rule, where, f"The usage report of {where} lacks a job.", "write it")

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        resources = _resources_of(context)
        install_cost_files(resources)
        account, _, hour = finding.where.partition(" ")
        write_report(resources, account, hour)
        with resources.connections.open() as tables:
            tables.execute("remove_usage", before=hour_of(now_ms() / 1000 - KEEP_DAYS * DAY))
        return True


ROUTINES = (GarbageRemovalRoutine(), UnnamedContentRoutine(), JobRepairRoutine(), UsageReportRoutine())
