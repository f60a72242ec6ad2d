"""Reading archives of migrations that are on storage again, and comparing them with what was put there.

One archive at a time: asked for, polled, read through SHA-256. What is right gets a new date; what is not becomes a finding, and
an event is sent. Nothing is changed on the storage. A scrub and a `verify` of the same archive do no harm to each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from waybill.apps.archive.storages import ArchiveNotFound, ExternalStorageDamaged, read_back

if TYPE_CHECKING:
    from waybill.apps.archive.resources import ArchiveResources


@dataclass(frozen=True, slots=True)
class ArchiveCheck:
    """What a check has found. `problem` is empty for an archive that is right; `is_pending`: the storage is fetching it."""

    problem: str = ""
    is_pending: bool = False

    @property
    def is_right(self) -> bool:
        return not self.problem and not self.is_pending


def check_archive(
    resources: ArchiveResources,
    *,
    storage_name: str,
    container: str,
    migration: int,
    number: int,
    name: str,
    size: int,
    sha256: str,
    now: float,
    on_chunk: Callable[[int], object] = lambda _: None,
) -> ArchiveCheck:
    """Read an archive and write down what was found. Raises StorageUnavailable when nothing can be said."""
    storage = resources.open_storage(storage_name)
    # The same token opens the same batch: a check that was interrupted goes on with it.
    batch = storage.open_batch("get", container, f"check-{migration}-{number}")
    try:
        storage.request(batch, name)
        storage.close_batch(batch)
        if not storage.poll(batch).is_done:
            return ArchiveCheck(is_pending=True)
        read = read_back(storage, batch, name, on_chunk)
        problem = "" if (read.size, read.sha256) == (size, sha256) else "It is not what was put there."
    except ArchiveNotFound:
        problem = "The storage has no such archive any more."
    except ExternalStorageDamaged as error:
        problem = str(error)
    storage.end_batch(batch)
    with resources.connections.open() as tables:
        if problem:
            tables.enter_finding(migration, number, storage_name, now, f"{name}: {problem}")
        else:
            tables.note_checked(migration, number, now)
    return ArchiveCheck(problem)
