"""A copy with filters: each object of the sources goes into each sink of its role, under the same name below the path.

Objects that cannot be copied are counted. Up to `fail_share` of all the others are copied all the same, so that the manifest
of the attempt has them; above it the copy ends at once. Either way the attempt has failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from waybill.apps.lots.attempt_data import attempt_prefix
from waybill.apps.lots.lot_manifests import LotEntry, ObjectFacts
from waybill.apps.lots.path_filters import PathFilter
from waybill.apps.lots.workloads.part_work import PartWork, WorkloadFailed
from waybill.apps.lots.workloads.results import WorkloadResult
from waybill.errors import InputError
from waybill.objects import ContentMismatch, ObjectNotFound, ObjectRequestRefused

PERMANENT = (ObjectNotFound, ContentMismatch, ObjectRequestRefused, InputError, PermissionError)


def run_copy(work: PartWork) -> WorkloadResult:
    declared = work.arc.workload
    allowed = math.ceil(work.part.count * declared.fail_share)
    failures: list[str] = []
    copied: dict[str, list[LotEntry]] = {role: [] for role in work.sink_datasets}
    for source_role, sink_role in _pair_roles(work):
        for entry in _iter_kept(work, source_role):
            if work.must_stop():
                raise InterruptedError("told to stop")
            try:
                copied[sink_role].append(_copy_one(work, source_role, sink_role, entry))
            except PERMANENT as error:
                failures.append(str(error))
                if len(failures) > allowed:
                    return WorkloadResult(_describe(source_role, failures), None, entries=copied)
    return WorkloadResult(_describe("main", failures) if failures else "", None, entries=copied)


def _describe(role: str, failures: list[str]) -> str:
    return f"copy failed on role: {role}, num: {len(failures)} with messages: [{'; '.join(failures[:3])}]"


def _pair_roles(work: PartWork) -> Iterator[tuple[str, str]]:
    """A source goes to the sink of its role; the only source goes to all sinks, and to the only sink go all sources."""
    for source in work.datasets:
        if source in work.sink_datasets:
            yield source, source
        elif len(work.datasets) == 1:
            yield from ((source, sink) for sink in work.sink_datasets)
        elif len(work.sink_datasets) == 1:
            yield source, next(iter(work.sink_datasets))
        else:
            raise WorkloadFailed(f"No sink has the role of the source {source}; a copy goes from role to role.")


def _iter_kept(work: PartWork, role: str) -> Iterator[LotEntry]:
    declared = work.arc.workload
    root = work.locations.absolute(work.datasets[role].path)
    chosen = PathFilter("/", declared.include, declared.exclude)
    whole = PathFilter(root, declared.include, declared.exclude)
    for entry in work.iter_entries(role):
        # relative patterns are meant below the dataset's path, whatever folders a lot and an attempt have there
        relative = work.relative_name(role, entry.uri)
        if (chosen.keeps(f"/{relative}") and (whole.keeps(entry.uri) or not entry.uri.startswith(root))) or (
            chosen.keeps(f"/{relative}") and not any(p.startswith("/") for p in (*declared.include, *declared.exclude))
        ):
            yield entry


def _copy_one(work: PartWork, source_role: str, sink_role: str, entry: LotEntry) -> LotEntry:
    dataset = work.sink_datasets[sink_role]
    target = work.locations.find_folder(dataset.path)
    relative = work.relative_name(source_role, entry.uri)
    below = f"lot={work.part.lot}/attempt={work.attempt.id}"
    name = "/".join(part for part in (target.name, below, relative) if part)
    with work.locations.read(entry.uri) as chunks:
        stored = target.objects.put(name, chunks, size=entry.facts.size, sha256=entry.facts.sha256)
    base = attempt_prefix(work.locations, dataset, work.lot, work.attempt.id)
    return LotEntry(base + relative, ObjectFacts(stored.size, stored.sha256, format=entry.facts.format))
