"""A bare loop that does what must be done for each object, and nothing else: no records, no checks, no second look
at anything.

    python -m benchmarks.peers.bare_loop FOLDER URL COUNT SAMPLE THREADS

SAMPLE is the folder of one object as Waybill has stored it. For each object the loop

    asks for the file's size (HEAD), fetches it (GET) and writes a working copy, and the working files of SAMPLE beside
    it, all unsynced writes the files of SAMPLE into a folder of the object's own, each synced, then every folder that
    has got an entry, each once writes the inventory and its sidecar into the object's root, each synced, and syncs that
    folder again removes the working copies

Each thread keeps its connection. Temporary names and reading back, as Waybill has them, are left out.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.peers.report import report
from benchmarks.web import SMALL, name_of

LAST = ("inventory.json", "inventory.json.sha512")  # of an object's root: with these a version is there
MANIFEST = b'{"waybill":"manifest"'  # what storage adds by itself: it has no working copy


class Sample:
    """The files of one object by their paths in it; of its content, which one is the deposit's and which are
    described beside it.
    """

    def __init__(self, folder: Path) -> None:
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        contents = {name: data for name, data in files.items() if name.startswith("v1/content/")}
        (self.deposit,) = (name for name, data in contents.items() if len(data) == SMALL)
        self.working = [
            data for name, data in contents.items() if name != self.deposit and not data.startswith(MANIFEST)
        ]
        self.last = {name: files.pop(name) for name in LAST}
        self.first = files


class Loop:
    """One thread's objects, one after the other."""

    def __init__(self, folder: Path, url: str, sample: Sample) -> None:
        self.folder, self.sample = folder, sample
        parts = urlsplit(url)
        assert parts.hostname
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port)

    def run(self, numbers: range) -> None:
        for number in numbers:
            self.one(number)
        self.connection.close()

    def one(self, number: int) -> None:
        self._ask("HEAD", number)
        data = self._ask("GET", number)
        work = self.folder / "work" / str(number)
        (work / "producer").mkdir(parents=True)
        (work / "system").mkdir()
        (work / "producer" / name_of(number)).write_bytes(data)
        for place, described in enumerate(self.sample.working):
            (work / "system" / str(place)).write_bytes(described)
        self._store(number, data)
        shutil.rmtree(work)

    def _ask(self, method: str, number: int) -> bytes:
        self.connection.request(method, f"/small/{name_of(number)}")
        answer = self.connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{name_of(number)}: {answer.status}")
        return data

    def _store(self, number: int, data: bytes) -> None:
        name = hashlib.sha256(str(number).encode()).hexdigest()
        root = self.folder / "objects" / name[:2] / name[2:4] / name
        changed: dict[Path, None] = {}
        for path, body in self.sample.first.items():
            _make((root / path).parent, changed)
            _write(root / path, data if path == self.sample.deposit else body)
            changed[(root / path).parent] = None
        for folder in changed:
            _sync(folder)
        for path, body in self.sample.last.items():
            _write(root / path, body)
        _sync(root)


def _make(folder: Path, changed: dict[Path, None]) -> None:
    if not folder.exists():
        _make(folder.parent, changed)
        folder.mkdir(exist_ok=True)
        changed[folder.parent] = None


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def main(folder: Path, url: str, count: int, sample: Path, threads: int) -> None:
    (folder / "objects").mkdir(parents=True)
    known = Sample(sample)
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for done in [
            pool.submit(Loop(folder, url, known).run, range(first, count, threads)) for first in range(threads)
        ]:
            done.result()
    report(count, time.perf_counter() - began, cpu=time.process_time())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
