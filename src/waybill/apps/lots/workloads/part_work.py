"""A part as its workload sees it.

    work/sources/ROLE/…     the objects of its entries, as files, under their names below the dataset's path
    work/sinks/ROLE/…       what lies here when it succeeds is the part's
    work/manifests/…        the manifests of its sources, whose uris are those files
    work/stdout, stderr

Nothing is staged before somebody asks for it: a function that only looks at names reads no object.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from waybill.apps.lots.declaration.documents import ArcDeclaration, DatasetDeclaration
from waybill.apps.lots.locations import Locations
from waybill.apps.lots.lot_manifests import LotEntry, LotManifest, UriType, encode_manifest, iter_entries, read_manifest
from waybill.apps.lots.machine import PartAttempt, PartDocument
from waybill.apps.lots.naming import ManifestKey
from waybill.apps.lots.run_parts import relative_name
from waybill.apps.lots.units import Lot
from waybill.errors import WaybillError
from waybill.objects import Objects

MAX_NAME = 200  # bytes of one folder or file


class WorkloadFailed(WaybillError):
    """The workload did not do its work. The text says why, for the person who wrote it."""

    code = "workload-failed"


@dataclass
class PartWork:
    """One attempt of a part."""

    arc: ArcDeclaration
    part: PartDocument
    attempt: PartAttempt
    folder: Path
    objects: Objects
    locations: Locations
    datasets: Mapping[str, DatasetDeclaration]  # of sources, by role
    sink_datasets: Mapping[str, DatasetDeclaration]
    must_stop: Callable[[], bool]
    _staged: dict[str, Path] = field(default_factory=dict)

    @property
    def lot(self) -> Lot:
        return Lot.parse(self.part.lot)

    @property
    def partition(self) -> str:
        return self.part.partition

    @property
    def props(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.arc.workload.props)
        return found

    @property
    def stdout(self) -> Path:
        return self.folder / "stdout"

    @property
    def stderr(self) -> Path:
        return self.folder / "stderr"

    def iter_entries(self, role: str = "main") -> Iterator[LotEntry]:
        """Yield the entries of a source, each of one object: prefixes and paths are looked up."""
        for name in self._manifests_of(role):
            root = read_manifest(self.objects, name)
            for entry in iter_entries(self.objects, name, root):
                yield from self._resolve(entry, root.uriType)

    def _manifests_of(self, role: str) -> list[str]:
        if role not in self.datasets:
            raise WorkloadFailed(f"The arc has no source {role!r}; it has {', '.join(self.datasets)}.")
        return [manifest for each, manifest in self.part.inputs if each == role]

    def _resolve(self, entry: LotEntry, uri_type: UriType) -> Iterator[LotEntry]:
        if uri_type == "identifier":
            yield entry
        elif uri_type == "path":
            for found in self.locations.list(entry.uri):
                yield LotEntry(found.uri)
        else:
            folder, _, stem = entry.uri.rpartition("/")
            matching = [
                each
                for each in self.locations.list(f"{folder}/")
                if each.uri.startswith(f"{folder}/{stem}") and "/" not in each.uri[len(folder) + 1 :]
            ]
            if len(matching) != 1:
                raise WorkloadFailed(f"The prefix {entry.uri} means {len(matching)} objects; it must mean one.")
            yield LotEntry(matching[0].uri)

    def relative_name(self, role: str, uri: str) -> str:
        return relative_name(uri, self.locations.absolute(self.datasets[role].path))

    def source(self, role: str = "main") -> Path:
        """Return the folder with the files of a source; they are fetched when it is first asked for."""
        if role in self._staged:
            return self._staged[role]
        folder = self.folder / "sources" / role
        folder.mkdir(parents=True, exist_ok=True)
        self._check_space()
        uris: list[str] = []
        for entry in self.iter_entries(role):
            if self.must_stop():
                raise InterruptedError("told to stop")
            place = self._place(folder, self.relative_name(role, entry.uri))
            with self.locations.read(entry.uri) as chunks, place.open("xb") as file:
                for chunk in chunks:
                    file.write(chunk)
            if entry.facts.size is not None and place.stat().st_size != entry.facts.size:
                raise WorkloadFailed(
                    f"{entry.uri} has {place.stat().st_size} bytes, and its manifest says {entry.facts.size}: "
                    "it was changed after it arrived."
                )
            uris.append(str(place.relative_to(folder)))
        self._write_source_manifest(role, uris)
        self._staged[role] = folder
        return folder

    def files(self, role: str = "main") -> Iterator[Path]:
        """Yield the files of a source, in order."""
        return iter(sorted(path for path in self.source(role).rglob("*") if path.is_file()))

    def sink(self, role: str = "main") -> Path:
        """Return the folder of a sink: what lies there in the end is in its lot."""
        if role not in self.sink_datasets:
            raise WorkloadFailed(f"The arc has no sink {role!r}; it has {', '.join(self.sink_datasets)}.")
        folder = self.folder / "sinks" / role
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _check_space(self) -> None:
        free = shutil.disk_usage(self.folder).free
        if self.part.bytes > free:
            raise OSError(f"The part needs {self.part.bytes} bytes on disk, and {free} are free.")

    def _place(self, folder: Path, name: str) -> Path:
        """Return where an object is staged; of two that would be one file the later gets a number."""
        parts = [
            part if part not in ("", ".", "..") and len(part.encode()) <= MAX_NAME else f"_{abs(hash(part)):x}"
            for part in name.split("/")
        ]
        place = folder.joinpath(*parts)
        number = 1
        while place.exists() or any(parent.is_file() for parent in place.parents if folder in parent.parents):
            place = (
                folder.joinpath(*parts[:-1], f"{number}-{parts[-1]}")
                if not any(p.is_file() for p in place.parents)
                else folder / f"{number}-{parts[-1]}"
            )
            number += 1
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _write_source_manifest(self, role: str, names: list[str]) -> None:
        """Written for readers of the five keys, with the uris as the workload sees them."""
        name = self.source_manifest_name(role)
        place = self.folder / "manifests" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        base = f"file://{self.seen_folder}/sources/{role}/"
        uris = tuple(base + quote(each) for each in names)
        place.write_bytes(
            encode_manifest(LotManifest("complete" if uris else "empty", None, self.part.lot, "identifier", uris))
        )

    def source_manifest_name(self, role: str) -> str:
        dataset = self.datasets[role]
        return ManifestKey(dataset.name, dataset.version, self.part.lot, "complete").key

    # where the workload sees the folder; a sandbox and a container see it elsewhere than the host does
    seen_folder: str = ""

    @contextmanager
    def make_folders(self) -> Iterator[None]:
        """Make the folders that commands and containers see; all of them are removed afterwards."""
        for name in ("sources", "sinks", "manifests", "sink-manifests"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        try:
            for role in self.datasets:
                self.source(role)
            for role in self.sink_datasets:
                self.sink(role)
            yield
        finally:
            shutil.rmtree(self.folder / "sources", ignore_errors=True)


def iter_files(folder: Path) -> Iterator[Path]:
    """Yield the plain files below a folder, in order. Raises WorkloadFailed for a link, a socket or a device: what they
    name is not in the folder.
    """
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from iter_files(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)
        else:
            raise WorkloadFailed(f"{entry.name} in the sink is no plain file; only plain files can be in a lot.")
