"""What the stages of a GET share: what was chosen, where it goes, and the bytes of an archive as they are checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from waybill.apps.archive.catalogue import ArchiveRow, decode_path
from waybill.apps.archive.files import FileAccess, FileEntry, FileSet, RestoreOptions, Selection, find_link_sources
from waybill.apps.archive.machine import GetRequest
from waybill.apps.archive.storages import ExternalStorageDamaged
from waybill.manifests.record_lists import read_list
from waybill.step import Fail

if TYPE_CHECKING:
    from waybill.apps.archive.stages import Stage


class Restore:
    """What a GET restores, and where to."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.asked = stage.record.document(GetRequest)
        if stage.files.file_set is None:
            raise Fail(f"The list of files of migration {stage.migration.number} is missing.")
        self.folder = stage.files.file_set.folder

    @cached_property
    def selection(self) -> Selection | None:
        chosen = self.asked.selection
        if not (chosen.globs or chosen.regexes or chosen.paths is not None):
            return None
        paths = read_list(self._stage.ctx.objects, chosen.paths, str) if chosen.paths is not None else ()
        relative = [self._to_relative(decode_path(path)) for path in paths]
        return Selection(globs=chosen.globs, regexes=chosen.regexes, paths=relative)

    def _to_relative(self, path: str) -> str:
        """A path as it was on disk, or below the folder of the set."""
        if not path.startswith("/"):
            return path
        folder = self.folder.rstrip("/") + "/"
        return "." if path.rstrip("/") + "/" == folder else path.removeprefix(folder)

    @cached_property
    def link_sources(self) -> dict[str, str]:
        return {} if self.selection is None else find_link_sources(self.iter_all_entries(), self.selection)

    @cached_property
    def options(self) -> RestoreOptions:
        settings = self._stage.resources.settings
        selection = self.selection
        return RestoreOptions(
            globs=selection.globs if selection is not None else (),
            regexes=selection.regexes if selection is not None else (),
            paths=selection.paths if selection is not None else (),
            link_sources=self.link_sources,
            overwrite=self.asked.overwrite,
            foreign_owners="keep" if settings.restore_owners else "drop",
            setuid="keep" if settings.restore_setuid else "drop",
            token=self._stage.record.id,
        )

    def is_needed(self, entry: FileEntry) -> bool:
        return self.selection is None or self.selection.has_path(entry.path) or entry.path in self.link_sources

    def iter_all_entries(self) -> Iterator[FileEntry]:
        return self._stage.read_entries(self._stage.files.locked)

    def make_target(self, access: FileAccess) -> FileSet:
        """The folder to restore into; "": the one where the files were."""
        return access.make_target(self.asked.target or self.folder)


def hashed_chunks(
    stage: Stage, chunks: Iterable[bytes | memoryview], row: ArchiveRow, passed: int
) -> Iterator[bytes | memoryview]:
    """The bytes of an archive. Raises ExternalStorageDamaged at their end, unless they are those that were put there."""
    digest, size, ctx = hashlib.sha256(), 0, stage.ctx
    total = stage.files.bytes
    for chunk in chunks:
        ctx.check()
        digest.update(chunk)
        size += len(chunk)
        ctx.report_progress(passed + size, total, "bytes")
        yield chunk
    if (size, digest.hexdigest()) != (row.size, row.sha256):
        raise ExternalStorageDamaged(
            f"{row.name} of migration {row.migration} is damaged on the storage: it is not what was put there."
        )
