"""DirectoryStorage: a folder for each container, a file for each archive, on any mounted file system.

    /mnt/archive/migration-12/archive_0000000001.tar
                              archive_0000000002.tar
                              catalogue.jsonl

A batch is done when its calls have returned, so batches are names only. The folder of the storage itself must exist: an
empty mount point where a disk should be is a storage that is away, not a new one. `.waybill-storage` in it says so.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from waybill.apps.archive.storages import archive_folder
from waybill.apps.archive.storages.archive_folder import SideEffectHook, translate_os_errors
from waybill.apps.archive.storages.errors import ArchiveNotFound, StorageUnavailable
from waybill.apps.archive.storages.protocol import (
    DEFAULT_PART_SIZE,
    ArchiveSource,
    Batch,
    BatchKind,
    BatchStatus,
    SaveCheckpoint,
    StorageTraits,
    StoredArchive,
    UploadCheckpoint,
    check_batch,
    check_storage_name,
    open_named_batch,
)

MARKER = ".waybill-storage"


def create_storage_folder(root: Path) -> None:
    """Make a folder a storage. Done once by an operator, never by a transfer."""
    with translate_os_errors(f"making {root}"):
        root.mkdir(parents=True, exist_ok=True)
        (root / MARKER).touch()
        archive_folder.sync_folder(root)


class DirectoryStorage:
    """Archives in a folder that `create_storage_folder` has marked. `on_side_effect` is called after each side effect."""

    def __init__(
        self,
        name: str,
        root: Path,
        *,
        part_size: int = DEFAULT_PART_SIZE,
        on_side_effect: SideEffectHook = lambda _: None,
    ) -> None:
        self.name = name
        self.traits = StorageTraits(part_size=part_size)
        self._root = root
        self._on_side_effect = on_side_effect

    def check(self) -> None:
        with translate_os_errors(f"The storage {self.name}"):
            if not (self._root / MARKER).exists():
                raise StorageUnavailable(
                    f"{self._root} is not a storage: it has no file {MARKER}. Is its disk mounted? A new one is made by "
                    f"`waybill archive create-storage NAME`."
                )
            if not os.access(self._root, os.W_OK | os.X_OK):
                raise StorageUnavailable(f"The folder {self._root} cannot be written to.")

    def open_batch(self, kind: BatchKind, container: str, token: str) -> Batch:
        self.check()
        batch = open_named_batch(kind, container, token)
        if kind == "put":
            archive_folder.make_folder(self._root / container)
            self._on_side_effect("container made")
        return batch

    def put(
        self,
        batch: Batch,
        name: str,
        source: ArchiveSource,
        *,
        resume: UploadCheckpoint | None = None,
        save: SaveCheckpoint = lambda _: None,
    ) -> StoredArchive:
        check_batch(batch, "put", name)
        self.check()
        return archive_folder.write_archive(
            self._root / batch.container,
            name,
            source,
            part_size=self.traits.part_size,
            resume=resume,
            save=save,
            on_side_effect=self._on_side_effect,
        )

    def request(self, batch: Batch, name: str) -> None:
        check_batch(batch, "get", name)
        if not archive_folder.has_archive(self._root / batch.container, name):
            self.check()
            raise ArchiveNotFound(f"There is no archive {name} in {batch.container} on {self.name}.")

    def delete(self, batch: Batch, name: str) -> None:
        check_batch(batch, "delete", name)
        self.check()
        archive_folder.remove_archive(self._root / batch.container, name)
        self._on_side_effect("archive removed")

    def close_batch(self, batch: Batch) -> None:
        """Nothing is left to do."""

    def poll(self, batch: Batch) -> BatchStatus:
        self.check()
        return BatchStatus(is_done=True)

    def read(
        self, batch: Batch, name: str, *, start: int = 0, end: int | None = None
    ) -> Generator[bytes | memoryview, None, None]:
        check_batch(batch, "get", name)
        self.check()
        return archive_folder.read_archive(self._root / batch.container, name, start, end)

    def end_batch(self, batch: Batch) -> None:
        """Nothing is kept of a batch. An unfinished put is resumed by the next one, or removed with its container."""

    def list_archives(self, container: str) -> Iterator[StoredArchive]:
        self.check()
        yield from archive_folder.list_folder(self._root / check_storage_name(container, "a container"))

    def list_containers(self) -> Iterator[str]:
        self.check()
        with translate_os_errors(f"listing {self.name}"), os.scandir(self._root) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        yield from (name for name in names if not name.startswith("."))

    def remove_container(self, container: str) -> None:
        self.check()
        archive_folder.remove_folder(self._root / check_storage_name(container, "a container"))
        self._on_side_effect("container removed")

    def close(self) -> None:
        """Nothing is open between calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
