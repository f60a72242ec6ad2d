"""Downloading: many files from HTTP servers into the folder of an attempt, several at a time, each with its own answer.

    for fetched in download(requests, into, earlier=[folder of attempt 6]):
        if not fetched.ok: print(fetched.name, fetched.reason)

A file that fails does not stop the others. What the server or the network is to blame for (5xx, 408, 429, silence,
cuts) is tried again, after a pause that doubles, up to `tries` times in all; what another try cannot mend (4xx, a wrong
digest, an address that is not public) fails at once. fetching.py says how one file comes, asking.py how one request
goes, reach.py where to it may go.
"""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import httpx2

from waybill.digests import UnknownDigest, promised
from waybill.objects.names import check_name
from waybill.objects.protocol import Refused
from waybill.transfer.asking import Again, Asker, Failed, check_status
from waybill.transfer.connections import Askers, Connections
from waybill.transfer.fetching import Fetch, Mismatch, OneFile, Rules, Stopped
from waybill.transfer.partial import PARTIAL
from waybill.transfer.reach import Reach

_LONGEST_PAUSE = 60.0
_REAL_PROGRESS = 16 * 1024 * 1024
_BAD_PLACE = {errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EINVAL}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Fetched:
    """What became of one file: it is there, or why not."""

    name: str
    ok: bool
    size: int = 0
    sha256: str = ""
    reason: str = ""  # a sentence, if it is not ok
    permanent: bool = False  # another try, unchanged, would fail again
    mismatch: bool = False  # it came, or was offered, and is not what was promised
    stopped: bool = False  # it was neither finished nor failed, but asked to stop
    taken_over: bool = False  # it came from an earlier attempt, not from the network
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server says of a file before it is fetched."""

    name: str
    size: int | None = None  # None if the server does not say, or cannot be asked
    reason: str = ""  # a sentence, if it cannot be had
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a download has come."""

    files: int  # finished, well or not
    bytes: int  # from the network


def download(
    requests: Iterable[Fetch],
    into: Path,
    *,
    earlier: Sequence[Path] = (),
    parallel: int = 4,
    tries: int = 5,
    timeout: float = 30.0,
    largest: int | None = None,
    slowest: int = 100,
    redirects: int = 5,
    reach: Reach | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[Progress], None] = lambda progress: None,
    offered: Callable[[str, int], bool] = lambda name, size: True,
    client: Callable[[], httpx2.Client] | None = None,
    connections: Connections | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Fetched]:
    """Download the files, and tell of each as it is finished; the order is that of finishing.

    `earlier`: folders of earlier attempts, from which finished files are linked and unfinished ones copied. `largest`:
    bytes of one file. `slowest`: bytes a second, over `timeout` seconds, below which a server counts as silent. `stop`
    is asked often, `progress` told often; both from several threads, one at a time. `offered` is asked, from several
    threads, before the body of a file is taken: its name, and how many bytes the server now says that it has; False: it
    counts as stopped. `connections`: to use again, and to keep. Memory does not grow with the number of requests.
    """
    into.mkdir(parents=True, exist_ok=True)
    tally = _Tally(progress)
    halted = threading.Event()  # set when nobody takes the answers any more
    rules = Rules(timeout, largest, slowest, lambda: halted.is_set() or stop(), offered)
    with Askers(reach or Reach(), timeout, redirects, client, connections) as askers:

        def fetch(wanted: Fetch) -> Fetched:
            if not tally.begins(wanted.name):
                fetched = Fetched(
                    wanted.name, False, reason="Another request of the same name is under way.", permanent=True
                )
            else:
                try:
                    fetched = _fetch(wanted, into, earlier, askers.mine(), rules, tally, tries, pause)
                finally:
                    tally.ends(wanted.name)
            tally.finished()
            return fetched

        yield from _in_parallel(fetch, requests, parallel, halted)


def look(
    requests: Iterable[Fetch],
    *,
    parallel: int = 4,
    tries: int = 2,
    timeout: float = 30.0,
    redirects: int = 5,
    reach: Reach | None = None,
    stop: Callable[[], bool] = lambda: False,
    client: Callable[[], httpx2.Client] | None = None,
    connections: Connections | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Offer]:
    """Ask for the size of each file without fetching it, as an estimate: servers may lie, or not say."""
    halted = threading.Event()
    with Askers(reach or Reach(), timeout, redirects, client, connections) as askers:

        def ask(wanted: Fetch) -> Offer:
            return _look(wanted, askers.mine(), lambda: halted.is_set() or stop(), tries, pause)

        yield from _in_parallel(ask, requests, parallel, halted)


def _fetch(
    wanted: Fetch,
    into: Path,
    earlier: Sequence[Path],
    asker: Asker,
    rules: Rules,
    tally: _Tally,
    tries: int,
    pause: Callable[[float], None],
) -> Fetched:
    one: OneFile | None = None
    tried = 0
    try:
        if check_name(wanted.name).split("/")[0] == PARTIAL:
            raise Failed(f"A name cannot begin with {PARTIAL}/, where unfinished files lie.")
        one = OneFile(wanted, promised(wanted.digests), into, rules, tally.came)
        if one.take_over(earlier):
            return Fetched(wanted.name, True, one.size, one.sha256, taken_over=True)
        left, best = tries, 0
        while True:
            if rules.stop():
                raise Stopped
            tried, left = tried + 1, left - 1
            try:
                one.try_once(asker)
                return Fetched(wanted.name, True, one.size, one.sha256, tries=tried)
            except Again as error:
                if one.size >= best + _REAL_PROGRESS:
                    best, left = one.size, tries  # a long file may be cut more often than a short one
                if left <= 0:
                    return Fetched(wanted.name, False, reason=f"{error} ({tried} tries.)", tries=tried)
                _wait(_pause_before(tries - left, error.after), rules.stop, pause)
    except Stopped:
        return Fetched(wanted.name, False, reason="It was stopped.", stopped=True, tries=tried)
    except (Failed, Refused, UnknownDigest) as error:
        if one is not None:
            one.drop()
        return Fetched(
            wanted.name, False, reason=str(error), permanent=True, mismatch=isinstance(error, Mismatch), tries=tried
        )
    except OSError as error:
        reason = f"The file could not be written: {error.strerror or error}."
        return Fetched(wanted.name, False, reason=reason, permanent=error.errno in _BAD_PLACE, tries=tried)


def _look(wanted: Fetch, asker: Asker, stop: Callable[[], bool], tries: int, pause: Callable[[float], None]) -> Offer:
    for tried in range(1, tries + 1):
        if stop():
            break
        try:
            size = _ask_size(wanted, asker)
            return Offer(wanted.name, size)
        except Again as error:
            if tried == tries:
                return Offer(wanted.name, reason=str(error))
            _wait(_pause_before(tried, error.after), stop, pause)
        except Failed as error:
            return Offer(wanted.name, reason=str(error), permanent=True)
    return Offer(wanted.name, reason="It was stopped.")


def _ask_size(wanted: Fetch, asker: Asker) -> int | None:
    for method in ("HEAD", "GET"):
        with asker.ask(method, wanted.url, private=wanted.headers) as answer:
            if method == "HEAD":
                answer.read()  # nothing comes; but only then the connection can be used again
            if method == "HEAD" and answer.status_code in (403, 405, 501):
                continue  # some servers, and addresses that are signed for one method, only know GET
            check_status(answer, 200)
            length: str = answer.headers.get("content-length", "")
            return int(length) if length.isdecimal() else None
    return None


def _in_parallel(
    work: Callable[[Fetch], _T], requests: Iterable[Fetch], parallel: int, halted: threading.Event
) -> Iterator[_T]:
    """The answers as they come; only a few requests are taken ahead."""
    rest = iter(requests)
    first = list(islice(rest, 2))
    if len(first) < 2:
        yield from map(work, first)  # threads would cost more than they give
        return
    running: set[Future[_T]] = set()
    with ThreadPoolExecutor(parallel, thread_name_prefix="transfer") as pool:
        try:
            for request in chain(first, rest):
                running.add(pool.submit(work, request))
                while len(running) >= 2 * parallel:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield future.result()
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            halted.set()
            for future in running:
                future.cancel()


def _pause_before(tried: int, asked: float | None) -> float:
    """Seconds: what the server asked for, or doubling from half a second; never more than a minute."""
    return min(_LONGEST_PAUSE, asked if asked is not None else 0.5 * 2.0 ** (tried - 1) * (0.75 + random.random() / 2))


def _wait(seconds: float, stop: Callable[[], bool], pause: Callable[[float], None]) -> None:
    while seconds > 0 and not stop():
        pause(min(seconds, 0.25))
        seconds -= 0.25


class _Tally:
    """What is under way, and how much has come."""

    def __init__(self, progress: Callable[[Progress], None]) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._files = 0
        self._bytes = 0
        self._under_way: set[str] = set()

    def begins(self, name: str) -> bool:
        """Whether nobody else is fetching a file of this name: two would write into the same partial file."""
        with self._lock:
            if name in self._under_way:
                return False
            self._under_way.add(name)
            return True

    def ends(self, name: str) -> None:
        with self._lock:
            self._under_way.remove(name)

    def came(self, count: int) -> None:
        with self._lock:
            self._bytes += count
            self._progress(Progress(self._files, self._bytes))

    def finished(self) -> None:
        with self._lock:
            self._files += 1
            self._progress(Progress(self._files, self._bytes))
