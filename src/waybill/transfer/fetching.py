"""Fetching: one file from an HTTP server into the folder of an attempt, whole and verified or not at all.

Its life in order:

    1. A finished file of an earlier attempt is linked and digested; if it is what was promised, that was all.
    2. Bytes come into the partial file (partial.py); those of a small one into memory.
    3. A cut connection is taken up again where it was cut, with `Range` and `If-Range`, if the server names a version (a strong ETag, or a
       date). Otherwise, or if the file has changed meanwhile, it begins again at the first byte.
    4. When all has come, size and digests are compared, and the file gets its name, which must be free.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import httpx2

from waybill.digests import Digests
from waybill.transfer.asking import Again, Asker, Failed, check_status
from waybill.transfer.partial import WORTH_RESUMING, Partial, Taken


class Stopped(Exception):
    """It was asked to stop."""


class Mismatch(Failed):
    """What came, or is offered, is not what was promised."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """One file to download. The name is a path below the folder; the headers go to the first host only."""

    url: str
    name: str
    size: int | None = None
    digests: Mapping[str, str] = field(default_factory=dict)  # {"sha-256": "..."}; names as people write them
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for all files of a download."""

    timeout: float
    largest: int | None
    slowest: int
    stop: Callable[[], bool]
    offered: Callable[[str, int], bool] = lambda name, size: True
    monotonic: Callable[[], float] = time.monotonic


class OneFile:
    """A file on its way. `digests` are the promised ones, by plain name; `count` is told of bytes from the network."""

    def __init__(
        self, fetch: Fetch, digests: Mapping[str, str], into: Path, rules: Rules, count: Callable[[int], None]
    ) -> None:
        self._fetch, self._digests, self._rules, self._count = fetch, digests, rules, count
        self._partial = Partial(into, fetch.name, digests, self._go_on)
        self._resumed = False

    @property
    def size(self) -> int:
        return self._partial.came.size

    @property
    def sha256(self) -> str:
        return self._partial.came.sha256

    def take_over(self, earlier: Sequence[Path]) -> bool:
        """Step 1: whether a finished file of this or an earlier attempt is what is wanted, and is now in place."""
        there = self._partial.is_finished(self._is_right)
        if there is not None:
            if there and self._digests:
                return True
            raise Failed("A file of this name is there already, and it cannot be told to be the one that was promised.")
        self._resumed = self._partial.adopt(self._fetch.url, earlier)
        if self._digests and not self._resumed:
            for folder in earlier:
                if self._partial.finished_in(folder, self._is_right):
                    self._name_it()
                    return True
        return False

    def try_once(self, asker: Asker) -> None:
        """Steps 2 to 4; raises Again, Failed or Stopped, and can be called again after Again."""
        headers: dict[str, str] = {}
        if self.size and self._partial.version:
            headers = {"range": f"bytes={self.size}-", "if-range": self._partial.version}
        else:
            self.drop()
        with asker.ask("GET", self._fetch.url, private=self._fetch.headers, headers=headers) as answer:
            if answer.status_code == 416 and self.size:
                self.drop()
                raise Again("The server has another version, which is shorter.")
            check_status(answer, 200, 206)
            if answer.headers.get("content-encoding", "identity").lower() != "identity":
                raise Failed("The server sent it compressed, though it was asked not to.")
            if answer.status_code == 206:
                self._check_range(answer)
            elif self.size:
                self.drop()
            self._check_length(answer)
            length = answer.headers.get("content-length", "")
            total = self.size + int(length) if length.isdecimal() else None
            small = io.BytesIO() if total is not None and total < WORTH_RESUMING and not self.size else None
            if small is not None:
                self._receive(answer, small)
            else:
                self._partial.is_of(self._fetch.url, _version(answer), total)
                with self._partial.open() as file:
                    self._receive(answer, file)
        self._finish(small)

    def drop(self) -> None:
        """Forget what has come."""
        self._partial.begin_anew()
        self._resumed = False

    def _receive(self, answer: httpx2.Response, into: BinaryIO) -> None:
        most = self._fetch.size if self._fetch.size is not None else self._rules.largest
        since, before = self._rules.monotonic(), self.size
        for portion in answer.iter_raw():  # as it comes: what is held back would be lost with a cut
            self._go_on()
            if most is not None and self.size + len(portion) > most:
                kind = Failed if self._fetch.size is None else Mismatch
                raise kind(f"More than {most} bytes came.")
            into.write(portion)
            self._partial.came.update(portion)
            self._count(len(portion))
            now = self._rules.monotonic()
            if now - since >= self._rules.timeout:
                if self.size - before < self._rules.slowest * (now - since):
                    raise Again(f"The server sends less than {self._rules.slowest} bytes a second.")
                since, before = now, self.size

    def _finish(self, small: io.BytesIO | None) -> None:
        fault = self._partial.came.fault(self._fetch.size, self._digests)
        if fault and self._resumed:
            self.drop()
            raise Again(f"It was put together from answers that do not belong together: {fault}.")
        if fault:
            raise Mismatch(f"{fault[0].upper()}{fault[1:]}.")
        self._name_it(small)

    def _name_it(self, small: io.BytesIO | None = None) -> None:
        try:
            if small is not None:
                self._partial.write_at_once(small.getbuffer())
            else:
                self._partial.name_it()
        except Taken:
            raise Failed("A file of this name is there already: two requests have the same name.") from None

    def _check_range(self, answer: httpx2.Response) -> None:
        """That the server sends what is missing, and of the same version."""
        unit, _, rest = answer.headers.get("content-range", "").partition(" ")
        version = _version(answer)
        if unit != "bytes" or rest.partition("-")[0] != str(self.size) or version not in (None, self._partial.version):
            self.drop()
            raise Again("The server sent another range than it was asked for.")
        self._resumed = True

    def _check_length(self, answer: httpx2.Response) -> None:
        length = answer.headers.get("content-length", "")
        if not length.isdecimal():
            return
        total = self.size + int(length)
        if self._fetch.size is not None and total != self._fetch.size:
            raise Mismatch(f"The server offers {total} bytes, and {self._fetch.size} were promised.")
        if self._rules.largest is not None and total > self._rules.largest:
            raise Failed(f"The server offers {total} bytes, and {self._rules.largest} is the most.")
        if not self._rules.offered(self._fetch.name, total):
            raise Stopped

    def _is_right(self, came: Digests) -> bool:
        return came.fault(self._fetch.size, self._digests) is None

    def _go_on(self) -> None:
        if self._rules.stop():
            raise Stopped


def _version(answer: httpx2.Response) -> str | None:
    """What to hold against a later answer: a strong ETag, or else the date of the last change."""
    etag: str = answer.headers.get("etag", "")
    if etag and not etag.startswith("W/"):
        return etag
    date: str = answer.headers.get("last-modified", "")
    return date or None
