"""One lot of one arc, run here and now, without a store, a worker or a published lot: for whoever writes a workload.

    sources   folders of this host, one for each role
    output    where what it leaves in its sinks is put, one folder for each role

It is the same workload in the same sandbox, with the same variables; nothing is uploaded and nothing is noted.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from waybill.apps.lots.declaration.documents import ArcDeclaration, DatasetDeclaration
from waybill.apps.lots.locations import Locations
from waybill.apps.lots.lot_manifests import LotEntry, LotManifest, LotManifestWriter, ObjectFacts, encode_manifest
from waybill.apps.lots.machine import PartAttempt, PartDocument, SinkPart
from waybill.apps.lots.units import Lot
from waybill.apps.lots.workloads.command import run_command
from waybill.apps.lots.workloads.container import run_container
from waybill.apps.lots.workloads.function import run_function
from waybill.apps.lots.workloads.own_manifests import read_own_manifests
from waybill.apps.lots.workloads.part_work import PartWork, WorkloadFailed, iter_files
from waybill.apps.lots.workloads.results import WorkloadResult
from waybill.errors import InputError
from waybill.objects import DirectoryObjects
from waybill.sandbox import SandboxSupport


class LocalRun(NamedTuple):
    """What came of it."""

    message: str  # empty: it did what it should
    exit_code: int | None
    files: tuple[Path, ...]
    stdout: str
    stderr: str


def run_locally(
    arc: ArcDeclaration, lot: Lot, sources: Mapping[str, Path], output: Path, support: SandboxSupport, container_program: str
) -> LocalRun:  # fmt: skip
    """Run it once. Raises InputError for a role that has no folder, and for a copy, which needs objects."""
    if arc.workload.type == "copy":
        raise InputError(f"{arc.title} is a copy; there is no workload to try.")
    for role in (source.role for source in arc.sources):
        if role not in sources or not sources[role].is_dir():
            raise InputError(f"Name the folder of the source {role}: --source {role}=FOLDER.")
    with _make_work(arc, lot, sources) as work:
        try:
            result = _run(work, support, container_program)
            files = _collect(work, result, output) if result.is_success else ()
        except WorkloadFailed as error:
            result, files = WorkloadResult(str(error)), ()
        streams = [path.read_text(errors="replace") if path.exists() else "" for path in (work.stdout, work.stderr)]
    return LocalRun(result.message, result.exit_code, tuple(files), streams[0], streams[1])


@contextmanager
def _make_work(arc: ArcDeclaration, lot: Lot, sources: Mapping[str, Path]) -> Iterator[PartWork]:
    with (
        tempfile.TemporaryDirectory(prefix="waybill-run-local-") as name,
        DirectoryObjects(f"{name}/objects", fsync=False) as objects,
    ):
        folder = Path(name) / "work"
        folder.mkdir()
        inputs, count, size = [], 0, 0
        datasets = {}
        for source in arc.sources:
            root = sources[source.role].absolute()
            datasets[source.role] = _dataset_of(source.dataset, f"{root.as_uri()}/", source.unit)
            writer = LotManifestWriter(objects, f"pages/{source.role}", LotManifest("complete", None, str(lot)))
            for path in iter_files(root):
                writer.add(LotEntry(path.as_uri(), ObjectFacts(path.stat().st_size)))
            manifest = writer.build()
            objects.put(f"{source.role}/manifest.json", encode_manifest(manifest))
            inputs.append((source.role, f"{source.role}/manifest.json"))
            count, size = count + (manifest.count or 0), size + (manifest.bytes or 0)
        part = PartDocument(arc.id, str(lot), 1, 0, "", tuple(inputs), "", count, size)
        attempt = PartAttempt("local", "running", "", tuple(SinkPart(sink.role, "") for sink in arc.sinks), 0.0)
        sinks = {sink.role: _dataset_of(sink.dataset, "sink/", arc.unit) for sink in arc.sinks}
        yield PartWork(
            arc, part, attempt, folder, objects, Locations(objects, f"{name}/objects"), datasets, sinks, lambda: False
        )


def _dataset_of(id: str, path: str, unit: str) -> DatasetDeclaration:
    name, _, version = id.partition(":")
    return DatasetDeclaration("local", name, version, path, unit, "")


def _run(work: PartWork, support: SandboxSupport, container_program: str) -> WorkloadResult:
    if work.arc.workload.type == "command":
        result = run_command(work, support)
    elif work.arc.workload.type == "container":
        result = run_container(work, container_program)
    else:
        result = run_function(work)
    if result.is_success and work.arc.workload.manifest == "own":
        return WorkloadResult("", result.exit_code, read_own_manifests(work))
    return result


def _collect(work: PartWork, result: WorkloadResult, output: Path) -> list[Path]:
    found: list[Path] = []
    for role in work.sink_datasets:
        root = work.sink(role)
        for path in result.files.get(role) or iter_files(root):
            target = output / role / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            found.append(target)
    return found
