"""TapeStorage: archives on a medium that must be mounted, so that what is asked for is done later.

It keeps files, as DirectoryStorage does, and behaves like a tape library: a batch is carried out after it was closed,
when a drive is free and its tape is mounted; until then nothing of it is on the medium, and nothing can be read. For
tests and demonstrations of the stages that poll, and for disks that are slow to wake.

    media/<container>/<archive>       what is on the medium
    batches/<id>/batch.json           a batch: what it is for, when it was closed, whether it is done
    batches/<id>/archives/<archive>   what was put and is not on the medium yet; or, empty, what was asked for

Time comes from the clock that is passed in. Drives take the closed batches in the order in which they were closed; each
is busy with a batch for `mount_delay` seconds. `poll` carries out what is due: every process that polls any batch does,
one at a time, and a second run of a batch finds which of its archives are on the medium already.
"""

from __future__ import annotations

import fcntl
import heapq
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from waybill.apps.archive.storages import archive_folder
from waybill.apps.archive.storages.archive_folder import SideEffectHook, translate_os_errors
from waybill.apps.archive.storages.errors import (
    ArchiveNotFound,
    ArchiveNotReady,
    ExternalStorageDamaged,
    StorageRefused,
    StorageUnavailable,
)
from waybill.apps.archive.storages.protocol import (
    DEFAULT_PART_SIZE,
    UNFINISHED_SUFFIX,
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


class _BatchFile(msgspec.Struct, frozen=True):
    kind: BatchKind
    container: str
    closed_at: float | None = None
    number: int = 0  # the order of batches closed at the same moment
    is_done: bool = False


class TapeStorage:
    """Archives on tapes in the folder `root`. `create` makes it."""

    def __init__(
        self,
        name: str,
        root: Path,
        *,
        clock: Callable[[], float],
        mount_delay: float = 300.0,
        drives: int = 1,
        part_size: int = DEFAULT_PART_SIZE,
        on_side_effect: SideEffectHook = lambda _: None,
    ) -> None:
        self.name = name
        self.traits = StorageTraits(wants_whole_files=True, is_asynchronous=True, part_size=part_size)
        self._media, self._batches = root / "media", root / "batches"
        self._clock, self._mount_delay, self._drives = clock, mount_delay, drives
        self._on_side_effect = on_side_effect

    @staticmethod
    def create(root: Path) -> None:
        with translate_os_errors(f"making {root}"):
            for folder in ("media", "batches"):
                (root / folder).mkdir(parents=True, exist_ok=True)
            archive_folder.sync_folder(root)

    def check(self) -> None:
        if not self._media.is_dir() or not self._batches.is_dir():
            raise StorageUnavailable(f"The tape library of {self.name} is not there.")

    def open_batch(self, kind: BatchKind, container: str, token: str) -> Batch:
        self.check()
        batch = open_named_batch(kind, container, token)
        with self._lock():
            known = self._find(batch)
            if known is None:
                archive_folder.make_folder(self._batches / batch.id)
                archive_folder.make_folder(self._archives_of(batch))
                self._write(batch.id, _BatchFile(kind, container))
                self._on_side_effect("batch opened")
            elif (known.kind, known.container) != (kind, container):
                raise StorageRefused(f"The batch {batch.id} is for another container.")
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
        self._check_open(batch, "put", name)
        if source.path is None:
            raise StorageRefused(f"{self.name} takes whole files only: {name} must be staged first.")
        return archive_folder.write_archive(
            self._archives_of(batch),
            name,
            source,
            part_size=self.traits.part_size,
            resume=resume,
            save=save,
            on_side_effect=self._on_side_effect,
        )

    def request(self, batch: Batch, name: str) -> None:
        self._check_open(batch, "get", name)
        if not archive_folder.has_archive(self._media / batch.container, name):
            raise ArchiveNotFound(f"There is no archive {name} in {batch.container} on {self.name}.")
        self._note_name(batch, name)

    def delete(self, batch: Batch, name: str) -> None:
        self._check_open(batch, "delete", name)
        self._note_name(batch, name)

    def _note_name(self, batch: Batch, name: str) -> None:
        with translate_os_errors(f"asking for {name}"):
            (self._archives_of(batch) / name).touch()
            archive_folder.sync_folder(self._archives_of(batch))
        self._on_side_effect("archive asked for")

    def close_batch(self, batch: Batch) -> None:
        with self._lock():
            known = self._get(batch)
            if known.closed_at is None:
                number = sum(1 for each in self._list_batches().values() if each.closed_at is not None)
                self._write(batch.id, msgspec.structs.replace(known, closed_at=self._clock(), number=number))
                self._on_side_effect("batch closed")

    def poll(self, batch: Batch) -> BatchStatus:
        self.check()
        with self._lock():
            for due, each in self._list_due_batches():
                self._carry_out(due, each)
            known = self._get(batch)
        if known.is_done:
            return BatchStatus(is_done=True)
        return BatchStatus(is_done=False, waiting=len(archive_folder.list_folder(self._archives_of(batch))))

    def read(
        self, batch: Batch, name: str, *, start: int = 0, end: int | None = None
    ) -> Generator[bytes | memoryview, None, None]:
        check_batch(batch, "get", name)
        if not self._get(batch).is_done:
            raise ArchiveNotReady(f"The tape with {name} has not been mounted yet: poll the batch {batch.id}.")
        if not (self._archives_of(batch) / name).exists():
            raise ArchiveNotReady(f"{name} was not requested in the batch {batch.id}.")
        return archive_folder.read_archive(self._media / batch.container, name, start, end)

    def end_batch(self, batch: Batch) -> None:
        with self._lock():
            archive_folder.remove_folder(self._batches / batch.id)
            self._on_side_effect("batch ended")

    def list_archives(self, container: str) -> Iterator[StoredArchive]:
        self.check()
        yield from archive_folder.list_folder(self._media / check_storage_name(container, "a container"))

    def list_containers(self) -> Iterator[str]:
        self.check()
        with translate_os_errors(f"listing {self.name}"):
            yield from sorted(entry.name for entry in self._media.iterdir() if entry.is_dir())

    def remove_container(self, container: str) -> None:
        """Remove a container, and the batches that would put something into it again."""
        self.check()
        check_storage_name(container, "a container")
        with self._lock():
            for id, each in self._list_batches().items():
                if each.container == container and each.kind == "put":
                    archive_folder.remove_folder(self._batches / id)
            archive_folder.remove_folder(self._media / container)
            self._on_side_effect("container removed")

    def close(self) -> None:
        """Nothing is open between calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _list_due_batches(self) -> list[tuple[str, _BatchFile]]:
        """The batches whose tape has been mounted by now and that are not done, in the order of their tapes."""
        closed = [
            (each.closed_at, each.number, id, each)
            for id, each in self._list_batches().items()
            if each.closed_at is not None
        ]
        free_at = [float("-inf")] * self._drives
        due = []
        for closed_at, _, id, each in sorted(closed, key=lambda row: row[:3]):
            mounted_at = max(closed_at, heapq.heappop(free_at)) + self._mount_delay
            heapq.heappush(free_at, mounted_at)
            if mounted_at <= self._clock() and not each.is_done:
                due.append((id, each))
        return due

    def _carry_out(self, id: str, batch: _BatchFile) -> None:
        """Do what a batch is for. It is repeated from its start after a crash: what was moved or removed is gone from
        the list, or gone from the medium.
        """
        archives, medium = self._batches / id / "archives", self._media / batch.container
        names = [archive.name for archive in archive_folder.list_folder(archives)]
        if batch.kind == "put":
            archive_folder.make_folder(medium)
            for name in names:
                with translate_os_errors(f"writing {name}"):
                    os.rename(archives / name, medium / name)
                self._on_side_effect("archive on tape")
            archive_folder.sync_folder(medium)
        elif batch.kind == "delete":
            for name in names:
                archive_folder.remove_archive(medium, name)
                self._on_side_effect("archive off tape")
        self._write(id, msgspec.structs.replace(batch, is_done=True))
        self._on_side_effect("batch done")

    def _check_open(self, batch: Batch, kind: BatchKind, name: str) -> None:
        check_batch(batch, kind, name)
        if self._get(batch).closed_at is not None:
            raise StorageRefused(f"The batch {batch.id} is closed.")

    def _get(self, batch: Batch) -> _BatchFile:
        known = self._find(batch)
        if known is None:
            raise StorageUnavailable(f"{self.name} has no batch {batch.id}.")
        return known

    def _find(self, batch: Batch) -> _BatchFile | None:
        return self._read(check_storage_name(batch.id, "a batch"))

    def _read(self, id: str) -> _BatchFile | None:
        with translate_os_errors(f"reading the batch {id}"):
            try:
                content = (self._batches / id / "batch.json").read_bytes()
            except FileNotFoundError:
                return None
        try:
            return msgspec.json.decode(content, type=_BatchFile)
        except msgspec.DecodeError as error:
            raise ExternalStorageDamaged(f"The file of the batch {id} on {self.name} is damaged: {error}.") from error

    def _write(self, id: str, batch: _BatchFile) -> None:
        path = self._batches / id / "batch.json"
        with translate_os_errors(f"writing the batch {id}"):
            unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
            with unfinished.open("wb") as file:
                file.write(msgspec.json.encode(batch))
                file.flush()
                os.fsync(file.fileno())
            os.rename(unfinished, path)
            archive_folder.sync_folder(path.parent)

    def _list_batches(self) -> dict[str, _BatchFile]:
        with translate_os_errors(f"listing the batches of {self.name}"):
            ids = sorted(entry.name for entry in self._batches.iterdir() if entry.is_dir())
        return {id: batch for id in ids if (batch := self._read(id)) is not None}

    def _archives_of(self, batch: Batch) -> Path:
        return self._batches / batch.id / "archives"

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One process and thread at a time changes batches."""
        with translate_os_errors(f"locking {self.name}"):
            file = os.open(self._batches / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)
