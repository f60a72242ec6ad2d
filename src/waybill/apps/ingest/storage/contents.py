"""Content on its way into an object: taken into memory where it is small and written with the rest, or kept file by
file and read back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from waybill.apps.ingest.storage import ocfl_inventory as ocfl
from waybill.apps.ingest.storage.holding import Write, read_back
from waybill.apps.ingest.storage.ocfl_inventory import Algorithm, Content
from waybill.apps.ingest.storage.planning import Wanted
from waybill.apps.ingest.storage.protocol import Sources
from waybill.objects import Damaged, NotFound, Objects
from waybill.objects.streams import portions

IN_FLIGHT = 2  # files waiting for each thread


class Contents:
    """Of one version of the object at `root`."""

    def __init__(
        self,
        objects: Objects,
        root: str,
        sources: Sources,
        *,
        algorithm: Algorithm,
        threads: int,
        check: Callable[[], None],
    ) -> None:
        self._objects, self._root, self._sources = objects, root, sources
        self._algorithm, self._threads, self._check = algorithm, threads, check

    def take_all(
        self, files: dict[str, Wanted], missing: dict[bytes, str], number: int, writes: list[Write]
    ) -> list[Content]:
        self._check()
        return [
            self._take(path, files[path], f"v{number}/content/{sha256.hex()}", writes)
            for sha256, path in missing.items()
        ]

    def _take(self, path: str, wanted: Wanted, place: str, writes: list[Write]) -> Content:
        """Read a small file, to be written with the others."""
        with self._sources(wanted.source) as data:
            content = b"".join(portions(data))
        if (len(content), hashlib.sha256(content).digest()) != (wanted.size, wanted.sha256):
            raise Damaged(
                f"{path}: it is not the {wanted.size} bytes of SHA-256 {wanted.sha256.hex()} that were promised."
            )
        writes.append(Write(f"{self._root}/{place}", lambda: [content], wanted.size, wanted.sha256.hex()))
        digest = hashlib.new(self._algorithm, content).digest() if self._algorithm != "sha256" else wanted.sha256
        return Content(place, digest, wanted.sha256)

    def keep_all(self, files: dict[str, Wanted], missing: dict[bytes, str], folder: str, left: bool) -> list[Content]:
        """Keep what the object does not have yet, some at a time; in the order of the digests, so that a second try
        does the same.
        """

        def keep(sha256: bytes) -> Content:
            return self._keep(missing[sha256], files[missing[sha256]], f"{folder}/{sha256.hex()}", left)

        order = list(missing)
        if len(order) < 2 or self._threads < 2:
            return [keep(sha256) for sha256 in self._watched(order)]
        kept: list[Content] = []
        running: set[Future[Content]] = set()
        with ThreadPoolExecutor(min(self._threads, len(order))) as pool:
            try:
                for sha256 in self._watched(order):
                    running.add(pool.submit(keep, sha256))
                    if len(running) >= self._threads * IN_FLIGHT:
                        done, running = wait(running, return_when=FIRST_COMPLETED)
                        kept.extend(future.result() for future in done)
                kept.extend(future.result() for future in running)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return sorted(kept)

    def _watched(self, order: list[bytes]) -> Iterator[bytes]:
        for count, sha256 in enumerate(order):
            if count % 100 == 0:
                self._check()
            yield sha256

    def _keep(self, path: str, wanted: Wanted, place: str, left: bool) -> Content:
        name = f"{self._root}/{place}"
        sha256 = wanted.sha256.hex()
        if left and (found := self._measured(name)) and found[:2] == (wanted.size, sha256):
            return Content(place, bytes.fromhex(found[2]), wanted.sha256)
        tee = _Tee(self._algorithm)
        with self._sources(wanted.source) as data:
            try:
                self._objects.put(name, tee.through(portions(data)), size=wanted.size, sha256=sha256)
            except Damaged as error:
                raise Damaged(f"{path}: {error}") from error
        read_back(self._objects, name, wanted.size, sha256)
        return Content(place, tee.digest or wanted.sha256, wanted.sha256)

    def _measured(self, name: str) -> tuple[int, str, str] | None:
        try:
            with self._objects.get(name) as body:
                return ocfl.digest_of(body, self._algorithm)
        except NotFound:
            return None


class _Tee:
    """The digest that OCFL wants, taken from bytes on their way; none if it is the SHA-256 that is known already."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._hash = hashlib.new(algorithm) if algorithm != "sha256" else None

    @property
    def digest(self) -> bytes:
        return self._hash.digest() if self._hash else b""

    def through(self, data: Iterable[bytes]) -> Iterator[bytes]:
        for portion in data:
            if self._hash:
                self._hash.update(portion)
            yield portion
