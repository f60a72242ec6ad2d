"""An external storage, and the interface that every driver implements.

A storage keeps archives: named, immutable sequences of bytes, in containers. A migration has one container, with its
archives and one catalogue file. All work is done in batches, because the storage may work later: a tape is mounted when
there is something to do for it, and what was put is on it some time after the call has returned. The life of a batch:

    open_batch     a kind (put, get or delete), a container, and a token of the caller: the same token opens the same
                   batch again, so a step that was killed between the call and its commit opens no second one
    put            (of a put batch) sends one archive, which may go on where an earlier process stopped
    request        (of a get batch) asks for one archive
    delete         (of a delete batch) asks that one archive is removed
    close_batch    says that nothing more follows; from now on the storage carries it out
    poll           says how far it is; what was requested can be read, and what was put is listed, when `is_done`
    read           (of a get batch that is done) yields the bytes of an archive, or of a part of it
    end_batch      forgets the batch; ends what is unfinished, never what was stored

Every call may be repeated: a second run finds what the first did, and does the rest. `read` after `put` and `poll`
returns what the medium holds, not what a cache remembers.

Terms:

    container     the place of one migration on a storage: a directory, a prefix in a bucket
    archive       a name in a container, with a size and, when the driver sent it, the SHA-256 of its bytes
    checkpoint    how far an unfinished put has got; the caller keeps it durably and passes it to the next put
    source        what is sent: its size is known before, and it can be read from its start again and again
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias

import msgspec

from waybill.apps.archive.storages.errors import StorageRefused

BatchKind: TypeAlias = Literal["put", "get", "delete"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MAX_REPORTED_FAILURES = 100
DEFAULT_PART_SIZE = 64 * 1024 * 1024


class Batch(msgspec.Struct, frozen=True):
    """A batch, as a record keeps it."""

    id: str
    kind: BatchKind
    container: str


class UploadCheckpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far an unfinished put has got: what is counted here is stored durably."""

    upload: str  # the driver's own name of the upload
    part_size: int
    parts: int  # whole parts that are stored
    sha256: str  # of the bytes of these parts together


SaveCheckpoint: TypeAlias = Callable[[UploadCheckpoint], None]


class StoredArchive(msgspec.Struct, frozen=True, omit_defaults=True):
    """An archive on a storage. A listing does not know the digest."""

    name: str
    size: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """How far a batch is. Where `failures` is not empty the batch is done, and has not done these archives."""

    is_done: bool
    waiting: int = 0  # archives that the storage has not dealt with
    failures: tuple[tuple[str, str], ...] = ()  # the name of an archive and a sentence, the first hundred


@dataclass(frozen=True, slots=True)
class StorageTraits:
    """What a caller must know of a storage."""

    wants_whole_files: bool = False  # a put needs a source with a path: the archive is made in a staging folder first
    is_asynchronous: bool = False  # batches are done some time after they were closed
    part_size: int = DEFAULT_PART_SIZE  # a put that is killed repeats at most this much
    max_transfers: int = 4  # puts and reads at the same time, of one process: see transfer_limit.py


class ArchiveSource(Protocol):
    """The bytes of an archive, always the same ones."""

    @property
    def size(self) -> int: ...

    @property
    def path(self) -> Path | None:
        """The file that holds exactly these bytes, if there is one."""
        ...

    def iter_chunks(self) -> Iterable[bytes | memoryview]:
        """Yield the bytes from the start. Raises SourceChanged if they are not what was planned.

        A chunk is valid until the next one is asked for.
        """
        ...


class Storage(Protocol):
    """An external storage. All methods may be called from several threads, for different batches or archives."""

    @property
    def name(self) -> str: ...

    @property
    def traits(self) -> StorageTraits: ...

    def check(self) -> None:
        """Raise a ExternalStorageError, saying why, if the storage cannot be used with these credentials now."""
        ...

    def open_batch(self, kind: BatchKind, container: str, token: str) -> Batch:
        """Open a batch, or find the one that was opened with this token."""
        ...

    def put(
        self,
        batch: Batch,
        name: str,
        source: ArchiveSource,
        *,
        resume: UploadCheckpoint | None = None,
        save: SaveCheckpoint = lambda _: None,
    ) -> StoredArchive:
        """Send an archive; it replaces one of the same name. Returns its size and the SHA-256 of what was sent.

        `save` is called with a checkpoint whenever another part is stored durably. With `resume` the parts that are
        stored are not sent again, if the source still begins with them; otherwise the put begins anew. Nothing is
        visible under the name before the put is complete.
        """
        ...

    def request(self, batch: Batch, name: str) -> None:
        """Ask for an archive. Raises ArchiveNotFound."""
        ...

    def delete(self, batch: Batch, name: str) -> None:
        """Ask that an archive is removed. One that does not exist is removed already."""
        ...

    def close_batch(self, batch: Batch) -> None: ...

    def poll(self, batch: Batch) -> BatchStatus: ...

    def read(
        self, batch: Batch, name: str, *, start: int = 0, end: int | None = None
    ) -> Generator[bytes | memoryview, None, None]:
        """Yield the bytes from `start` up to but not including `end`, as the medium holds them now.

        A chunk is valid until the next one is asked for. Ends early only by raising.
        """
        ...

    def end_batch(self, batch: Batch) -> None: ...

    def list_archives(self, container: str) -> Iterator[StoredArchive]:
        """Yield what is stored in a container, in the order of names; nothing if there is no such container."""
        ...

    def list_containers(self) -> Iterator[str]: ...

    def remove_container(self, container: str) -> None:
        """Remove a container with all that is left in it, unfinished puts too."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def check_storage_name(name: str, what: str) -> str:
    """Return the name of a container, an archive or a token: such as every storage takes and none can misread."""
    if not _NAME.fullmatch(name) or name.endswith(UNFINISHED_SUFFIX):
        raise StorageRefused(
            f"{name[:140]!r} cannot be the name of {what}: use up to 128 letters, digits, dots, dashes and underscores, "
            f"beginning with a letter or a digit, and not ending in {UNFINISHED_SUFFIX}."
        )
    return name


UNFINISHED_SUFFIX = ".unfinished"  # of the files that hold puts under way


def open_named_batch(kind: BatchKind, container: str, token: str) -> Batch:
    """A batch whose id is made of its token."""
    check_storage_name(container, "a container")
    return Batch(f"{kind}-{check_storage_name(token, 'a batch')}", kind, container)


def check_batch(batch: Batch, kind: BatchKind, name: str) -> None:
    if batch.kind != kind:
        raise StorageRefused(f"The batch {batch.id} is for {batch.kind}, not for {kind}.")
    check_storage_name(name, "an archive")
