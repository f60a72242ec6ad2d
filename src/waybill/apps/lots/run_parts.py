"""The parts of a run: how the entries of its sources are divided, and what each part gets to work on.

    one         all entries are one part
    partition   one part for each partition: the folders NAME=VALUE in which an object lies, as in year=2023/month=01
    size        parts of so many bytes, in the order of the entries

Each part of several has a manifest of its own for each role, written before the parts are made. The entries are read twice at most and
never held: the first pass finds the partitions, and the second writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from waybill.apps.lots.declaration.documents import ArcDeclaration, DatasetDeclaration
from waybill.apps.lots.locations import Locations
from waybill.apps.lots.lot_manifests import (
    LotEntry,
    LotManifest,
    LotManifestWriter,
    encode_manifest,
    iter_entries,
    read_manifest,
)
from waybill.apps.lots.machine import PartDocument, RunDocument, RunSources
from waybill.objects import Objects

WORK_PREFIX = "lots/parts"
MAX_INPUTS = 100  # manifests that one part names
MAX_PARTS = 100_000  # of one run
OWN_FOLDERS = ("lot", "attempt")  # of the names that Waybill gives, NAME=VALUE too


class SourceEntry(NamedTuple):
    """An entry of a source, and what it is called below the dataset's path."""

    role: str
    entry: LotEntry
    relative: str

    @property
    def partition(self) -> str:
        return "/".join(part for part in self.relative.split("/")[:-1] if "=" in part)


def work_folder_of(run_id: str) -> str:
    return f"{WORK_PREFIX}/{run_id}"


def digest_workload(arc: ArcDeclaration) -> str:
    """Return what a part is equal by: the same workload, with the same parameters, dividing in the same way."""
    body = msgspec.json.encode((arc.workload, arc.parts, arc.part_bytes, arc.sinks))
    return hashlib.sha256(body).hexdigest()[:16]


def relative_name(uri: str, root: str) -> str:
    """Return the name of an object below its dataset's path, without the folders of a lot and an attempt. Of one that lies
    elsewhere it begins with the first partition.
    """
    decode = unquote if uri.startswith("file:") else str
    if uri.startswith(root):
        parts = decode(uri[len(root) :]).split("/")
        while len(parts) > 1 and parts[0].partition("=")[0] in OWN_FOLDERS and "=" in parts[0]:
            parts = parts[1:]
        return "/".join(parts)
    parts = decode(uri.rstrip("/").partition("://")[2]).split("/")
    first = next((place for place, part in enumerate(parts[:-1]) if "=" in part), len(parts) - 1)
    return "/".join(parts[first:])


def iter_source_entries(
    objects: Objects, locations: Locations, sources: RunSources, datasets: dict[str, DatasetDeclaration]
) -> Iterator[SourceEntry]:
    """Yield everything that a run reads, in order. `datasets`: by role."""
    for role, _, _, manifest in sources.read:
        root = locations.absolute(datasets[role].path)
        for entry in iter_entries(objects, manifest):
            yield SourceEntry(role, entry, relative_name(entry.uri, root))


class PartPlanner:
    """Writes the manifests of the parts of a run. A second run writes the same under the same names."""

    def __init__(self, objects: Objects, locations: Locations, arc: ArcDeclaration, run_id: str, about: RunDocument,
                 sources: RunSources, datasets: dict[str, DatasetDeclaration]) -> None:  # fmt: skip
        self._objects, self._locations, self._arc = objects, locations, arc
        self._run_id, self._about, self._sources, self._datasets = run_id, about, sources, datasets
        self._digest = digest_workload(arc)

    def iter_parts(self) -> Iterator[PartDocument]:
        """Yield the parts, each after its manifests are there."""
        if self._arc.parts == "partition":
            yield from self._iter_partitions()
        elif self._arc.parts == "size":
            yield from self._iter_chunks()
        elif len(self._sources.read) <= MAX_INPUTS:
            yield self._take_whole()
        else:
            yield self._write(0, "", self._iter_all())

    def _take_whole(self) -> PartDocument:
        """All entries are one part: the manifests of the sources are its own, and nothing is written."""
        count, size = 0, 0
        for _, _, _, manifest in self._sources.read:
            root = read_manifest(self._objects, manifest)
            count, size = count + (root.count or len(root.uris)), size + (root.bytes or 0)
        inputs = tuple((role, manifest) for role, _, _, manifest in self._sources.read)
        about = self._about
        return PartDocument(about.arc, about.lot, about.generation, 0, "", inputs, self._digest, count, size)

    def _iter_all(self) -> Iterator[SourceEntry]:
        return iter_source_entries(self._objects, self._locations, self._sources, self._datasets)

    def _iter_partitions(self) -> Iterator[PartDocument]:
        partitions: dict[str, None] = {}
        for each in self._iter_all():
            if each.partition not in partitions:
                if len(partitions) >= MAX_PARTS:
                    raise ValueError(f"The lot has more than {MAX_PARTS} partitions; divide it by size instead.")
                partitions[each.partition] = None
        names = sorted(partitions) or [""]
        for number, name in enumerate(names):
            # one more pass for each partition: entries are never held, and a lot has few partitions
            yield self._write(number, name, (each for each in self._iter_all() if each.partition == name))

    def _iter_chunks(self) -> Iterator[PartDocument]:
        number, size, chunk = 0, 0, list[SourceEntry]()
        for each in self._iter_all():
            length = each.entry.facts.size or 0
            if chunk and (size + length > self._arc.part_bytes or len(chunk) >= 100_000):
                yield self._write(number, "", iter(chunk))
                number, size, chunk = number + 1, 0, []
            chunk.append(each)
            size += length
        yield self._write(number, "", iter(chunk))

    def _write(self, number: int, partition: str, entries: Iterator[SourceEntry]) -> PartDocument:
        folder = f"{work_folder_of(self._run_id)}/{number:05}"
        writers: dict[str, LotManifestWriter] = {}
        for source in self._arc.sources:
            head = LotManifest("complete", None, self._about.lot, dataset=self._datasets[source.role].title)
            writers[source.role] = LotManifestWriter(self._objects, f"{folder}/{source.role}", head)
        for each in entries:
            writers[each.role].add(each.entry)
        inputs, count, size = [], 0, 0
        for role, writer in writers.items():
            manifest = writer.build()
            name = f"{folder}/{role}/manifest.json"
            self._objects.put(name, encode_manifest(manifest))  # the same again, if it runs again
            inputs.append((role, name))
            count, size = count + (manifest.count or 0), size + (manifest.bytes or 0)
        return PartDocument(
            self._about.arc,
            self._about.lot,
            self._about.generation,
            number,
            partition,
            tuple(inputs),
            self._digest,
            count,
            size,
        )
