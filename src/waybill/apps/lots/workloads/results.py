"""What came of an attempt, and the upload of what lies in its sinks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from waybill.apps.lots.attempt_data import attempt_prefix
from waybill.apps.lots.lot_manifests import LotEntry, LotManifest, LotManifestWriter, ObjectFacts, encode_manifest
from waybill.apps.lots.machine import SinkPart
from waybill.apps.lots.workloads.part_work import PartWork, WorkloadFailed, iter_files

PARTS_FOLDER = "parts"


@dataclass(frozen=True)
class WorkloadResult:
    """How a workload ended. `message` is empty when it did what it should."""

    message: str = ""
    exit_code: int | None = None
    # by role, the files that are in the lot; a role that is not there: everything in its folder
    files: Mapping[str, list[Path]] = field(default_factory=dict)
    # by role, objects that are where they belong already
    entries: Mapping[str, list[LotEntry]] | None = None

    @property
    def is_success(self) -> bool:
        return not self.message


def store_sinks(work: PartWork, result: WorkloadResult, *, at: str) -> tuple[SinkPart, ...]:
    """Upload what lies in the sinks into the attempt's own folders, and write a manifest of each; returns what is there.

    Raises WorkloadFailed for what cannot be in a lot. Safe to repeat: another attempt has other folders.
    """
    return tuple(_store_sink(work, sink, result, at=at) for sink in work.attempt.sinks)


def _store_sink(work: PartWork, sink: SinkPart, result: WorkloadResult, *, at: str) -> SinkPart:
    dataset = work.sink_datasets[sink.role]
    folder = f"datasets/name={dataset.name}/version={dataset.version}/lot={work.part.lot}/{PARTS_FOLDER}/attempt={work.attempt.id}"
    head = LotManifest("complete", None, work.part.lot, dataset=dataset.title, attempt=work.attempt.id, created=at)
    writer = LotManifestWriter(work.objects, folder, head)
    if result.entries is not None:
        writer.add_all(result.entries.get(sink.role, ()))
    else:
        writer.add_all(_upload(work, sink.role, result.files.get(sink.role)))
    manifest = writer.build()
    if not manifest.count:
        return replace(sink, manifest="", count=0, bytes=0)
    name = f"{folder}/manifest.json"
    body = encode_manifest(manifest)
    work.objects.put(name, body)
    return replace(
        sink,
        manifest=name,
        sha256=hashlib.sha256(body).hexdigest(),
        count=manifest.count or 0,
        bytes=manifest.bytes or 0,
    )


def _upload(work: PartWork, role: str, files: list[Path] | None) -> Iterator[LotEntry]:
    root = work.sink(role)
    dataset = work.sink_datasets[role]
    target = work.locations.find_folder(dataset.path)
    below = f"lot={work.part.lot}/attempt={work.attempt.id}"
    base = attempt_prefix(work.locations, dataset, work.lot, work.attempt.id)
    for path in files if files is not None else iter_files(root):
        if work.must_stop():
            raise InterruptedError("told to stop")
        relative = path.relative_to(root).as_posix()
        if not relative.isprintable():
            raise WorkloadFailed(
                f"{relative!r} in the sink {role} is no name of an object: it has characters that cannot be printed."
            )
        name = "/".join(part for part in (target.name, below, relative) if part)
        size = path.stat().st_size
        with path.open("rb") as file:
            stored = target.objects.put(name, file, size=size)
        yield LotEntry(base + relative, ObjectFacts(stored.size, stored.sha256, format=_format_of(relative)))


FORMATS = {
    "csv": "text/csv",
    "gz": "application/gzip",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "parquet": "application/vnd.apache.parquet",
    "txt": "text/plain",
}


def _format_of(name: str) -> str | None:
    return FORMATS.get(name.rpartition(".")[2].lower())
