"""What tasks have put out, made durable and visible together, about once a second.

    outputs gathered -> packed into one object, synced -> their entries -> the part with a line for each task
    -> committed with the chunk's progress -> the row in the log, where the next phase and the lists find it

Each of these may be done twice: an output has the name that its task gives it, the same in every run; a row is written
once for each part that is committed. A crash before the commit leaves entries that the next run writes again.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from waybill.apps.compute.entries import Entry
from waybill.apps.compute.machine import ChunkProgress, PartNote
from waybill.apps.compute.paths import StoragePath
from waybill.apps.compute.storage import ObjectHeaders, Storage, StoredContent, now_ms
from waybill.apps.compute.task_lines import TaskLine, encode_lines

if TYPE_CHECKING:
    from waybill.apps.compute.resources import ComputeResources
    from waybill.step import StepContext

SMALL_OUTPUT = 64 * 1024  # bytes up to which an output is packed
MAX_PACK = 8 * 1024 * 1024
CHUNK = 1024 * 1024


class GatheredOutputs(NamedTuple):
    """What some tasks have put out: their bytes are stored, and nothing names them yet."""

    lines: list[TaskLine]
    entries: list[tuple[StoragePath, Entry]]
    consumed: list[str]  # objects between two phases that the tasks have used up


class OutputGatherer:
    """Stores what tasks put out: small outputs in one object together, large ones as they are."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._clear()

    def _clear(self) -> None:
        self._lines: list[TaskLine] = []
        self._pack: list[bytes] = []
        self._pack_size = 0
        self._packed: list[tuple[StoragePath, Entry]] = []
        self._stored: list[tuple[StoragePath, Entry]] = []
        self._consumed: list[str] = []

    @property
    def size(self) -> int:
        return self._pack_size

    def add_file(self, path: StoragePath, file: Path, content_type: str = "application/octet-stream") -> None:
        """An object with the bytes of a file, visible when it is published."""
        size = file.stat().st_size
        if size <= SMALL_OUTPUT:
            data = file.read_bytes()
            md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
            entry = _make_entry(path, StoredContent("", len(data), md5, self._pack_size), content_type)
            self._packed.append((path, entry))
            self._pack.append(data)
            self._pack_size += len(data)
            return
        with file.open("rb") as opened:
            content = self._storage.store(iter(lambda: opened.read(CHUNK), b""))
        self._stored.append((path, _make_entry(path, content, content_type)))

    def add_line(self, line: TaskLine, consumed: str = "") -> None:
        """What became of one task; `consumed`: an object between two phases that it has used up."""
        self._lines.append(line)
        if consumed:
            self._consumed.append(consumed)

    def take_all(self) -> GatheredOutputs:
        """Sync what was gathered, and begin anew."""
        entries = [*self._stored]
        if self._packed:
            pack = self._storage.store(self._pack or [b""])
            entries += [(path, replace(entry, content=pack.name)) for path, entry in self._packed]
        gathered = GatheredOutputs(self._lines, entries, self._consumed)
        self._clear()
        return gathered


def _make_entry(path: StoragePath, content: StoredContent, content_type: str) -> Entry:
    about = ObjectHeaders(content_type)
    return Entry(path.name, "object", content.name, content.start, str(uuid.uuid4()), content.size, content.md5,
                 about.content_type, about.durability, {}, now_ms())  # fmt: skip


class Publisher(OutputGatherer):
    """Publishes what the tasks of one chunk or reducer put out."""

    def __init__(
        self, resources: ComputeResources, ctx: StepContext, job: str, phase: int, progress: ChunkProgress
    ) -> None:
        super().__init__(resources.storage)
        self._resources, self._ctx, self._job, self._phase = resources, ctx, job, phase
        self.progress = progress
        self._made_directories: set[StoragePath] = set()

    def publish(self, done: int) -> ChunkProgress:
        """Publish all that was gathered. `done`: keys of the chunk that are done with it."""
        return self.publish_gathered(self.take_all(), done) if self._lines else self.progress

    def publish_gathered(self, gathered: GatheredOutputs, done: int) -> ChunkProgress:
        """The same for what was gathered elsewhere."""
        lines = gathered.lines
        self._enter(gathered.entries)
        source = f"{self._ctx.record.id}/{self.progress.done}"
        name = f"{self._resources.job_prefix(self._job)}/{self._phase}/part-{source.replace('/', '-')}-{self._ctx.claim_version}"
        self._ctx.objects.put(name, encode_lines(lines))
        note = PartNote(
            name, source, sum(len(line.outputs) for line in lines), len(lines),
            sum(line.error is not None for line in lines), sum(line.attempts - 1 for line in lines),
        )  # fmt: skip
        self.progress = replace(self.progress, done=done, parts=(note,))
        self._ctx.save((self.progress,))
        self._resources.enter_part(self._job, self._phase + 1, note)
        self._resources.wake_phase(self._ctx, self._job, self._phase + 1)
        # After the commit: what is read again by another run must be there. Missing ones are no error.
        self._resources.remove_intermediates(gathered.consumed)
        return self.progress

    def _enter(self, entries: list[tuple[StoragePath, Entry]]) -> None:
        by_directory: dict[StoragePath, list[Entry]] = {}
        for path, entry in entries:
            by_directory.setdefault(path.parent, []).append(entry)
        for directory, found in by_directory.items():
            if directory not in self._made_directories:
                self._storage.make_directories(directory)
                self._made_directories.add(directory)
            with self._storage.open_entries() as tables:
                tables.put_many(directory, found, now=now_ms())


def find_output_path(account: str, job: str, phase: int, key: str, p0: str, task: str) -> StoragePath:
    """Where the output of a task goes: beside the storage of its job, under the path of the job's own input."""
    base = StoragePath(account, "jobs", (job, "stor"))
    names = tuple(part for part in (p0 or key.rpartition("/")[2]).split("/") if part) or ("output",)
    return _shorten(base.child(*names[:-1], f"{names[-1]}.{phase}.{task}"))


def find_error_path(output: StoragePath, phase: int, task: str) -> StoragePath:
    stem = output.name.removesuffix(f"{phase}.{task}")
    return _shorten(output.parent.child(f"{stem}{phase}.err.{task}"))


def _shorten(path: StoragePath) -> StoragePath:
    """Names that would be too long begin with the digest of what they were."""
    if len(path.name.encode()) <= 1024:
        return path
    digest = hashlib.sha256(path.name.encode()).hexdigest()
    return path.parent.child(f"_{digest}{path.name[-80:]}")
