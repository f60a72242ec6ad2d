"""Usage reports: what the jobs of an account have used, one object an hour, as Manta's metering wrote them.

    a job is archived: its tasks, counted by the hour in which they began, go into the catalogue with the word `done`
    -> a maintenance routine writes /ACCOUNT/reports/usage/compute/2026/11/19/03/h03.json anew, with all jobs of the hour

`mjob cost` runs a job over these reports, with a program and prices below /manta/public, which the same routine writes
where they are missing. Both are safe to repeat: a report is replaced by one that holds as much or more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import resources as package_files
from typing import TYPE_CHECKING, Any

from waybill.apps.compute.manifest import JobManifest
from waybill.apps.compute.paths import StoragePath
from waybill.apps.compute.storage import ObjectHeaders
from waybill.apps.compute.task_lines import TaskLine
from waybill.index import CatalogueTables, Row

if TYPE_CHECKING:
    from waybill.apps.compute.resources import ComputeResources

MEMORY, DISK = 1024, 8  # what Manta counts for a phase that asks for nothing: megabytes and gigabytes
KEEP_DAYS = 30  # for which the rows are kept after their report is written
PAGE = 500
COST_ACCOUNT = "manta"
COST_FOLDER = ("jobs", "mjob-cost", "1.0.0")  # below its public storage; mjob knows the place
COST_FILES = {
    "jobcost.js": "text/plain",
    "pricing.json": "application/json",
    "billingComputeTable.json": "application/json",
}


@dataclass
class Usage:
    """What the tasks of one phase used that began in one hour."""

    milliseconds: int = 0
    tasks: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass
class JobUsage:
    """Counts tasks. As many entries as phases times hours."""

    _used: dict[tuple[str, int], Usage] = field(default_factory=dict)

    def add(self, task: TaskLine) -> TaskLine:
        if task.wall > 0:
            usage = self._used.setdefault((hour_of(task.start), task.phase), Usage())
            usage.milliseconds += round(task.wall * 1000)
            usage.tasks += 1
            usage.bytes_in += task.bytes_in
            usage.bytes_out += task.bytes_out
        return task

    def write(self, tables: CatalogueTables, account: str, job: str, manifest: JobManifest) -> None:
        """Inside a transaction. Safe to repeat: a row is written once."""
        for (hour, number), usage in self._used.items():
            phase = manifest.phases[number]
            tables.execute(
                "write_usage", account=account, hour=hour, job=job, phase=number, memory=phase.memory or MEMORY,
                disk=phase.disk or DISK, milliseconds=usage.milliseconds, tasks=usage.tasks, bytes_in=usage.bytes_in,
                bytes_out=usage.bytes_out,
            )  # fmt: skip


def hour_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y/%m/%d/%H")


def report_path(account: str, hour: str) -> StoragePath:
    names = hour.split("/")
    return StoragePath(account, "reports", ("usage", "compute", *names, f"h{names[-1]}.json"))


def write_report(resources: ComputeResources, account: str, hour: str) -> None:
    """Write the report of an hour, and note which jobs it holds: one that is archived meanwhile makes it due again."""
    reported: list[str] = []
    path = report_path(account, hour)
    resources.storage.make_directories(path.parent)
    resources.storage.put(path, _iter_report(resources, account, hour, reported), ObjectHeaders("application/json"))
    with resources.connections.open() as tables:
        for job in reported:
            tables.execute("mark_usage", account=account, hour=hour, job=job)


def _iter_report(resources: ComputeResources, account: str, hour: str, reported: list[str]) -> Iterator[bytes]:
    year, month, day, number = hour.split("/")
    yield f'{{"date": "{year}-{month}-{day}T{number}", "jobs": {{'.encode()
    job, phases, lead = "", dict[str, Any](), ""
    for row in _iter_rows(resources, account, hour):
        if row["job"] != job and phases:
            yield f"{lead}\n{json.dumps(job)}: {json.dumps(phases)}".encode()
            phases, lead = {}, ","
        job = row["job"]
        if not phases:
            reported.append(job)
        phases[str(row["phase"])] = {
            "memory": str(row["memory"]), "disk": str(row["disk"]), "seconds": str(-(-row["milliseconds"] // 1000)),
            "milliseconds": str(row["milliseconds"]), "ntasks": str(row["tasks"]),
            "bandwidth": {"in": str(row["bytes_in"]), "out": str(row["bytes_out"])},
        }  # fmt: skip
    if phases:
        yield f"{lead}\n{json.dumps(job)}: {json.dumps(phases)}".encode()
    yield b"\n}}\n"


def _iter_rows(resources: ComputeResources, account: str, hour: str) -> Iterator[Row]:
    job, phase = "", -1
    while True:
        with resources.connections.open() as tables:
            rows = tables.query("usage_of_hour", account=account, hour=hour, job=job, phase=phase, row_limit=PAGE)
        yield from rows
        if len(rows) < PAGE:
            return
        job, phase = rows[-1]["job"], rows[-1]["phase"]


def install_cost_files(resources: ComputeResources) -> None:
    """What the job of `mjob cost` needs. An operator's own prices stay."""
    folder = StoragePath(COST_ACCOUNT, "public", COST_FOLDER)
    for name, content_type in COST_FILES.items():
        if resources.storage.find(folder.child(name)) is None:
            data = package_files.files("waybill.apps.compute").joinpath("cost", name).read_bytes()
            resources.storage.make_directories(folder)
            resources.storage.put(folder.child(name), [data], ObjectHeaders(content_type))
