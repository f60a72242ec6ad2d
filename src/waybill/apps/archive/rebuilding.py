"""Rebuilding what was lost from the catalogue file that every container holds.

    for each container: its catalogue file is read to its end and checked -> each archive that it names is there, with its size
    -> lists of entries -> rows of archives and files -> the migration, ON_STORAGE, and its quota: one commit

A migration that is known, with its archives, is left as it is, so a rebuild that was interrupted is run again. One whose record
is there gets its rows back. One whose record is lost counts as an only copy: nobody knows whether originals are left.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from waybill.apps.archive.catalogue import ArchiveRow, FileRow, MigrationRow, decode_path, encode_path
from waybill.apps.archive.files import FileEntry, FileSet, from_manifest_entry, read_entry_list, write_entry_list
from waybill.apps.archive.machine import MIGRATION, MigrationCharge, MigrationDocument, MigrationFiles
from waybill.apps.archive.packed_archives import CATALOGUE_NAME, list_file_rows
from waybill.apps.archive.service.quotas import ensure_quota, quota_ref
from waybill.apps.archive.service.requests import migration_ref
from waybill.apps.archive.storages import ExternalStorageError
from waybill.engine import Engine
from waybill.manifests import ManifestError, ManifestReader
from waybill.manifests.record_lists import RecordList
from waybill.step import Act, New

if TYPE_CHECKING:
    from waybill.apps.archive.resources import ArchiveResources


class RebuildResult(NamedTuple):
    container: str
    state: Literal["known", "restored", "pending", "damaged"]
    message: str = ""


class ContainerAbout(msgspec.Struct, frozen=True):
    """What the first line of a catalogue file says."""

    migration: int
    owner: str
    workspace: str
    label: str
    folder: str
    archives: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class _ReadContainer:
    about: ContainerAbout
    lists: dict[int, RecordList]  # the entries of each archive


class Rebuild:
    def __init__(self, resources: ArchiveResources, engine: Engine, storage: str, *, who: str) -> None:
        self._resources = resources
        self._engine = engine
        self._name = storage
        self._storage = resources.open_storage(storage)
        self._who = who

    def iter_results(self) -> Iterator[RebuildResult]:
        for container in self._storage.list_containers():
            try:
                yield self._rebuild(container)
            except (ExternalStorageError, ManifestError, msgspec.ValidationError) as error:
                yield RebuildResult(container, "damaged", str(error))

    def _rebuild(self, container: str) -> RebuildResult:
        with self._resources.connections.open() as tables:
            known = tables.find_migration(_number_of(container))
            if known is not None and (known.removed or tables.sum_archives(known.number)[0]):
                return RebuildResult(container, "known")
        batch = self._storage.open_batch("get", container, f"rebuild-{container}")
        self._storage.request(batch, CATALOGUE_NAME)
        self._storage.close_batch(batch)
        if not self._storage.poll(batch).is_done:
            return RebuildResult(container, "pending", "The storage is fetching its catalogue file; run this again.")
        with closing(self._storage.read(batch, CATALOGUE_NAME)) as chunks:
            found = self._read(container, map(bytes, chunks))
        self._storage.end_batch(batch)
        stored = {archive.name: archive.size for archive in self._storage.list_archives(container)}
        for name, size, _ in found.about.archives:
            if stored.get(name) != size:
                return RebuildResult(container, "damaged", f"{name} is missing, or has another size.")
        self._enter(container, found)
        return RebuildResult(container, "restored", f"migration {found.about.migration}, {found.about.label}")

    def _read(self, container: str, chunks: Iterable[bytes]) -> _ReadContainer:
        """Read the whole catalogue file; it counts only when its last line was right."""
        objects, lists = self._resources.objects, dict[int, RecordList]()
        prefix = f"archive/rebuilt/{container}/{uuid.uuid4().hex}"
        with ManifestReader(chunks, loose=True) as reader:
            about = msgspec.convert(reader.header.about, ContainerAbout)
            if about.migration != _number_of(container):
                raise ManifestError(f"The catalogue file is that of migration {about.migration}.")
            for number, entries in groupby(map(from_manifest_entry, reader), key=lambda entry: entry.archive):
                # The lists of a run that does not get to its end are named by nothing.
                lists[number] = write_entry_list(objects, f"{prefix}/{number:010d}", entries)
        if sorted(lists) != list(range(1, len(about.archives) + 1)):
            raise ManifestError("The catalogue file does not name the archives that it lists.")
        return _ReadContainer(about, lists)

    def _enter(self, container: str, found: _ReadContainer) -> None:
        about, number = found.about, found.about.migration
        size = sum(each for _, each, _ in about.archives)
        folder = decode_path(about.folder)
        with self._resources.connections.open() as tables:
            tables.raise_number("migration", number)
            if tables.find_migration(number) is None:
                ref = migration_ref(number)
                tables.enter_migration(
                    MigrationRow(
                        number,
                        ref.id,
                        "",
                        about.owner,
                        about.workspace,
                        self._name,
                        about.label,
                        about.folder,
                        self._engine.store.now(),
                    )
                )
            rows = [
                ArchiveRow(
                    number,
                    n,
                    name,
                    "rebuilt",
                    each,
                    found.lists[n].count,
                    msgspec.json.encode(found.lists[n]).decode(),
                    sha256,
                )
                for n, (name, each, sha256) in enumerate(about.archives, start=1)
            ]
            for row in rows:
                tables.enter_archives([row])
                tables.note_sent(row, row.size, row.sha256, row.entry_list, self._iter_rows(row, folder))
                tables.note_checked(number, row.number, 0.0)  # the scrub reads it soon
        self._make_record(container, found, size, folder)

    def _iter_rows(self, row: ArchiveRow, folder: str) -> Iterator[FileRow]:
        return list_file_rows(row, read_entry_list(self._resources.objects, row.entry_list), folder)

    def _make_record(self, container: str, found: _ReadContainer, size: int, folder: str) -> None:
        """Make the migration, and count its bytes: one commit. A record that is there already is left."""
        about, ref = found.about, migration_ref(found.about.migration)
        if self._engine.store.get_many([ref]):
            return
        locked = write_entry_list(
            self._resources.objects, f"archive/rebuilt/{container}/{uuid.uuid4().hex}/all", self._iter_all(found)
        )
        documents: tuple[Any, ...] = (
            MigrationDocument(
                number=about.migration, workspace=about.workspace, storage=self._name, container=container, request="",
                label=about.label, common_path=encode_path(folder), is_only_copy=True,
            ),
            MigrationCharge(self._name, used=size),
            MigrationFiles(
                file_set=FileSet(folder_bytes=os.fsencode(folder), device=0, inode=0), locked=locked, plan="rebuilt",
                archives=len(about.archives), files=locked.count, bytes=size,
            ),
        )  # fmt: skip
        ensure_quota(self._engine, self._resources, about.workspace, self._name, who=self._who)
        self._engine.submit_all(
            [New(MIGRATION.name, documents, id=ref.id, owner=about.owner, state="ON_STORAGE")],
            acts=(Act(quota_ref(about.workspace, self._name), "settle", {"reserved": 0, "used": size}),),
            who=self._who,
            why="rebuilt from its container",
        )

    def _iter_all(self, found: _ReadContainer) -> Iterator[FileEntry]:
        for number in sorted(found.lists):
            yield from read_entry_list(self._resources.objects, found.lists[number])


def _number_of(container: str) -> int:
    """The number of the migration whose container this is. Raises ManifestError for one that is not ours."""
    digits = container.removeprefix("migration-")
    if not digits.isdecimal() or container != f"migration-{int(digits):010d}":
        raise ManifestError("It is no container of a migration.")
    return int(digits)
