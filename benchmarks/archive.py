"""What the archive's files cost: packed, stored, read back and compared, beside the same done by hand; and restored.

archive.small.tar        20,000 files of 4 KiB
archive.large.tar        8 files of 256 MiB, two archives at a time
archive.small.untar      the small ones restored, durably, beside `tar -x` of the same archive and `sync -f`
archive.large.untar

By hand is `tar` through `tee` into a file that is synced and dropped from the cache, and `openssl dgst -sha256` of what
went in and of what is read back; it has no digests of files, no catalogue, no lock, and restores without comparing
anything. Ours lists, plans, digests every file and every archive, stores on a directory storage and reads back; the
owner's bits are not touched, and there is no record.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.effort import Effort
from benchmarks.figure import Figure
from waybill.apps.archive.files import (
    ArchiveLimits,
    FileEntry,
    PlannedArchive,
    RestoreOptions,
    TarSource,
    open_access,
    plan_archives,
)
from waybill.apps.archive.storages import DirectoryStorage, create_storage_folder, read_back

ROUNDS = 5
JOBS = 2
MIB = 1024 * 1024

PUT_BY_HAND = """
set -eu -o pipefail
tar -C "$1" -cf - -T "$2" | tee >(openssl dgst -sha256 -r | cut -d' ' -f1 > "$3.sent") |
    dd of="$3" bs=1M iflag=fullblock conv=fsync status=none
dd of="$3" oflag=nocache conv=notrunc,fdatasync count=0 status=none
openssl dgst -sha256 -r "$3" | cut -d' ' -f1 > "$3.read"
while [ ! -s "$3.sent" ]; do :; done
cmp "$3.sent" "$3.read"
"""
GET_BY_HAND = 'set -eu; mkdir "$2"; tar -C "$2" -xf "$1"; sync -f "$2"'


def small(effort: Effort) -> Iterator[Figure]:
    count = effort.pick(20_000, 50)
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as name:
        folder = Path(name)
        for number in range(count):
            path = folder / f"source/d{number // 100:03}/file-{number:05}.dat"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(4096))
        limits = ArchiveLimits(min_size=32 * MIB, max_size=4096 * MIB, max_count=20_000)
        yield from _compare("archive.small", folder, ["."], limits, count, "files/s", 0.6)


def large(effort: Effort) -> Iterator[Figure]:
    size = effort.pick(256, 1) * MIB
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as name:
        folder = Path(name)
        (folder / "source").mkdir()
        names = [f"file-{number}" for number in range(8)]
        for each in names:
            with (folder / "source" / each).open("wb") as file:
                for _ in range(size // MIB):
                    file.write(os.urandom(MIB))
        limits = ArchiveLimits(min_size=size // 2, max_size=size + size // 2, max_count=20_000)
        yield from _compare("archive.large", folder, names, limits, 8 * size / 1e6, "MB/s", 1.0)


def _compare(
    name: str, folder: Path, names: list[str], limits: ArchiveLimits, amount: float, unit: str, goal: float
) -> Iterator[Figure]:
    rates: dict[str, list[float]] = {"put": [], "tar": [], "get": [], "untar": []}

    def note(what: str, work: Callable[[], object]) -> None:
        os.sync()  # nobody pays for the writes of another
        began = time.perf_counter()
        work()
        rates[what].append(amount / (time.perf_counter() - began))

    create_storage_folder(folder / "storage")
    (folder / "tars").mkdir()
    for number in range(ROUNDS):
        note("tar", partial(_put_by_hand, folder, names))
        stored: list[tuple[PlannedArchive, tuple[FileEntry, ...]]] = []
        note("put", partial(_put, folder, limits, stored))
        note("untar", partial(_get_by_hand, folder, number))
        note("get", partial(_get, folder, stored, folder / f"target-{number}"))
        subprocess.run(["rm", "-rf", folder / f"target-{number}", *folder.glob("hand-*")], check=True)
    ours, hand = statistics.median(rates["put"]), statistics.median(rates["tar"])
    about = f"medians of {ROUNDS} rounds; at best {max(rates['put']):,.0f} and {max(rates['tar']):,.0f}"
    yield Figure(f"{name}.tar", ours, unit, hand, goal, note=about)
    ours, hand = statistics.median(rates["get"]), statistics.median(rates["untar"])
    about = f"medians of {ROUNDS} rounds; at best {max(rates['get']):,.0f} and {max(rates['untar']):,.0f}"
    yield Figure(f"{name}.untar", ours, unit, hand, note=about)


def _put(folder: Path, limits: ArchiveLimits, stored: list[tuple[PlannedArchive, tuple[FileEntry, ...]]]) -> None:
    storage = DirectoryStorage("disk", folder / "storage")
    batch = storage.open_batch("put", "migration", "put")
    gotten = storage.open_batch("get", "migration", "get")

    def refuse(failure: object) -> None:
        raise RuntimeError(f"{failure} cannot be archived.")

    with open_access(None) as access, ThreadPoolExecutor(JOBS) as threads:
        file_set, paths = access.find_file_set([str(folder / "source")])

        def send(archive: PlannedArchive) -> tuple[PlannedArchive, tuple[FileEntry, ...]]:
            source = TarSource(file_set, archive.entries)
            sent = storage.put(batch, archive.name, source)
            if read_back(storage, gotten, archive.name) != sent:
                raise RuntimeError(f"{archive.name} is not what was sent.")
            return archive, source.entries

        stored += threads.map(send, plan_archives(access.list_files(file_set, paths, refuse), limits))


def _get(folder: Path, stored: list[tuple[PlannedArchive, tuple[FileEntry, ...]]], target: Path) -> None:
    storage = DirectoryStorage("disk", folder / "storage")
    gotten = storage.open_batch("get", "migration", "get")
    failures: list[object] = []
    with open_access(None) as access:
        made = access.make_target(str(target))
        for archive, entries in stored:
            access.unpack_archive(storage.read(gotten, archive.name), entries, made, RestoreOptions(), failures.append)
        access.finish_restore(made, [entry for _, each in stored for entry in each], RestoreOptions(), failures.append)
    if failures:
        raise RuntimeError(f"{failures[0]} was not restored.")


def _put_by_hand(folder: Path, names: list[str]) -> None:
    """One archive, or one for each of two jobs."""
    running = []
    for number in range(min(JOBS, len(names))):
        chosen = folder / f"names-{number}"
        chosen.write_text("".join(f"{name}\n" for name in names[number::JOBS]))
        running.append(
            subprocess.Popen(
                ["bash", "-c", PUT_BY_HAND, "put", folder / "source", chosen, folder / f"tars/{number}.tar"]
            )
        )
    for process in running:
        if process.wait():
            raise RuntimeError("tar, tee and openssl failed.")


def _get_by_hand(folder: Path, number: int) -> None:
    running = [
        subprocess.Popen(["bash", "-c", GET_BY_HAND, "get", tar, folder / f"hand-{number}-{tar.stem}"])
        for tar in sorted((folder / "tars").glob("*.tar"))
    ]
    for process in running:
        if process.wait():
            raise RuntimeError("tar -x failed.")


PARTS = {"archive.small": small, "archive.large": large}
