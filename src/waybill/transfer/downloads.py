"""Downloads many files from HTTP servers into the folder of an attempt, several at a time, each with its own result.

    for result in download(requests, folder, earlier_folders=[folder of attempt 6]):
        if not result.ok: print(result.name, result.reason)

A file that fails does not stop the others. A transient error of the server or the network (5xx, 408, 429, silence, a cut
connection) is tried again, after a pause that doubles, up to `tries` times in all; a permanent error (4xx, a wrong
digest, an address that is not public) fails at once. file_download.py downloads one file, http_fetcher.py sends one
request, address_policy.py says where it may go.
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

from waybill.digests import normalize_digests
from waybill.errors import InputError
from waybill.objects.protocol import ObjectRequestRefused, check_name
from waybill.transfer.address_policy import AddressPolicy, TransferError
from waybill.transfer.file_download import DownloadRequest, DownloadRules, DownloadStopped, FileDownload
from waybill.transfer.http_fetcher import FetcherCache, HttpFetcher, ThreadFetchers, check_status
from waybill.transfer.partial_file import PARTIAL_FOLDER

_LONGEST_PAUSE = 60.0
_PROGRESS_THAT_RESETS_TRIES = 16 * 1024 * 1024
_BAD_PATH_ERRORS = {errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EINVAL}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class DownloadResult:
    """The result of one file: it is in place, or why not."""

    name: str
    ok: bool
    size: int = 0
    sha256: str = ""
    reason: str = ""  # a sentence, if it is not ok
    permanent: bool = False  # another attempt, unchanged, would fail again
    mismatch: bool = False  # it arrived, or was offered, and is not the expected file
    is_stopped: bool = False  # it neither finished nor failed, but was stopped
    is_reused: bool = False  # from an earlier attempt, not from the network
    tries: int = 0


@dataclass(frozen=True, slots=True)
class RemoteFileInfo:
    """What a server says of a file before it is downloaded."""

    name: str
    size: int | None = None  # None when the server does not say, or cannot be reached
    reason: str = ""  # a sentence, if the file is not available
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """The progress of a download."""

    files: int  # finished, downloaded or failed
    bytes: int  # from the network


def download(
    requests: Iterable[DownloadRequest],
    folder: Path,
    *,
    earlier_folders: Sequence[Path] = (),
    parallel: int = 4,
    tries: int = 5,
    timeout: float = 30.0,
    max_size: int | None = None,
    min_rate: int = 100,
    redirects: int = 5,
    policy: AddressPolicy | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[DownloadProgress], None] = lambda progress: None,
    accept_size: Callable[[str, int], bool] = lambda name, size: True,
    make_client: Callable[[], httpx2.Client] | None = None,
    connections: FetcherCache | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[DownloadResult]:
    """Download the files; yields a result for each as it finishes, in that order.

    `earlier_folders`: folders of earlier attempts, from which finished files are linked and unfinished ones copied.
    `max_size`: bytes of one file. `min_rate`: bytes a second, over `timeout` seconds, below which a server counts as
    silent. `stop` and `progress` are called often, from several threads, `progress` from one at a time. `accept_size` is
    called, from several threads, before the body of a file is read, with its name and the number of bytes that the server
    says it has; False: it counts as stopped. `connections`: a cache of connections to use and to fill. Memory does not
    grow with the number of requests.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counter = _DownloadCounter(progress)
    halted = threading.Event()  # set when the caller has stopped reading the results
    rules = DownloadRules(timeout, max_size, min_rate, lambda: halted.is_set() or stop(), accept_size)
    with ThreadFetchers(policy or AddressPolicy(), timeout, redirects, make_client, connections) as fetchers:

        def run_download(wanted: DownloadRequest) -> DownloadResult:
            if not counter.try_begin(wanted.name):
                result = DownloadResult(
                    wanted.name, False, reason="Another request of the same name is running.", permanent=True
                )
            else:
                try:
                    result = _download_one(
                        wanted, folder, earlier_folders, fetchers.get_fetcher(), rules, counter, tries, pause
                    )
                finally:
                    counter.end(wanted.name)
            counter.add_file()
            return result

        yield from _run_in_parallel(run_download, requests, parallel, halted)


def probe_sizes(
    requests: Iterable[DownloadRequest],
    *,
    parallel: int = 4,
    tries: int = 2,
    timeout: float = 30.0,
    redirects: int = 5,
    policy: AddressPolicy | None = None,
    stop: Callable[[], bool] = lambda: False,
    make_client: Callable[[], httpx2.Client] | None = None,
    connections: FetcherCache | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[RemoteFileInfo]:
    """Request the size of each file without downloading it, as an estimate: servers may be wrong, or not say."""
    halted = threading.Event()
    with ThreadFetchers(policy or AddressPolicy(), timeout, redirects, make_client, connections) as fetchers:

        def probe(wanted: DownloadRequest) -> RemoteFileInfo:
            return _probe_one(wanted, fetchers.get_fetcher(), lambda: halted.is_set() or stop(), tries, pause)

        yield from _run_in_parallel(probe, requests, parallel, halted)


def _download_one(
    wanted: DownloadRequest,
    folder: Path,
    earlier_folders: Sequence[Path],
    fetcher: HttpFetcher,
    rules: DownloadRules,
    counter: _DownloadCounter,
    tries: int,
    pause: Callable[[float], None],
) -> DownloadResult:
    file_download: FileDownload | None = None
    tried = 0
    try:
        if check_name(wanted.name).split("/")[0] == PARTIAL_FOLDER:
            raise TransferError(
                f"A name cannot begin with {PARTIAL_FOLDER}/, which holds unfinished files.", code="transfer-refused"
            )
        file_download = FileDownload(wanted, normalize_digests(wanted.digests), folder, rules, counter.add_bytes)
        if file_download.reuse_earlier(earlier_folders):
            return DownloadResult(wanted.name, True, file_download.size, file_download.sha256, is_reused=True)
        left, best = tries, 0
        while True:
            if rules.stop():
                raise DownloadStopped
            tried, left = tried + 1, left - 1
            try:
                file_download.try_once(fetcher)
                return DownloadResult(wanted.name, True, file_download.size, file_download.sha256, tries=tried)
            except TransferError as error:
                if not error.is_retryable:
                    raise
                if file_download.size >= best + _PROGRESS_THAT_RESETS_TRIES:
                    best, left = file_download.size, tries  # a long file may be cut more often than a short one
                if left <= 0:
                    return DownloadResult(wanted.name, False, reason=f"{error} ({tried} tries.)", tries=tried)
                _wait_or_stop(_pause_before_try(tries - left, error.retry_after), rules.stop, pause)
    except DownloadStopped:
        return DownloadResult(wanted.name, False, reason="It was stopped.", is_stopped=True, tries=tried)
    except (TransferError, ObjectRequestRefused, InputError) as error:
        if file_download is not None:
            file_download.discard()
        return DownloadResult(
            wanted.name,
            False,
            reason=str(error),
            permanent=True,
            mismatch=error.code == "content-mismatch",
            tries=tried,
        )
    except OSError as error:
        reason = f"The file could not be written: {error.strerror or error}."
        return DownloadResult(wanted.name, False, reason=reason, permanent=error.errno in _BAD_PATH_ERRORS, tries=tried)


def _probe_one(
    wanted: DownloadRequest, fetcher: HttpFetcher, stop: Callable[[], bool], tries: int, pause: Callable[[float], None]
) -> RemoteFileInfo:
    for tried in range(1, tries + 1):
        if stop():
            break
        try:
            size = _request_size(wanted, fetcher)
            return RemoteFileInfo(wanted.name, size)
        except TransferError as error:
            if not error.is_retryable or tried == tries:
                return RemoteFileInfo(wanted.name, reason=str(error), permanent=not error.is_retryable)
            _wait_or_stop(_pause_before_try(tried, error.retry_after), stop, pause)
    return RemoteFileInfo(wanted.name, reason="It was stopped.")


def _request_size(wanted: DownloadRequest, fetcher: HttpFetcher) -> int | None:
    for method in ("HEAD", "GET"):
        with fetcher.request(method, wanted.url, first_host_headers=wanted.headers) as response:
            if method == "HEAD":
                response.read()  # empty; but only then can the connection be used again
            if method == "HEAD" and response.status_code in (403, 405, 501):
                continue  # some servers, and URLs that are signed for one method, only allow GET
            check_status(response, 200)
            length: str = response.headers.get("content-length", "")
            return int(length) if length.isdecimal() else None
    return None


def _run_in_parallel(
    run: Callable[[DownloadRequest], _T], requests: Iterable[DownloadRequest], parallel: int, halted: threading.Event
) -> Iterator[_T]:
    """The results as they finish; only a few requests are read ahead."""
    rest = iter(requests)
    first = list(islice(rest, 2))
    if len(first) < 2:
        yield from map(run, first)  # for one request a thread costs more than it gains
        return
    running: set[Future[_T]] = set()
    with ThreadPoolExecutor(parallel, thread_name_prefix="transfer") as pool:
        try:
            for request in chain(first, rest):
                running.add(pool.submit(run, request))
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


def _pause_before_try(tried: int, retry_after: float | None) -> float:
    """Seconds: what the server's Retry-After says, or doubling from half a second; at most a minute."""
    return min(
        _LONGEST_PAUSE,
        retry_after if retry_after is not None else 0.5 * 2.0 ** (tried - 1) * (0.75 + random.random() / 2),
    )


def _wait_or_stop(seconds: float, stop: Callable[[], bool], pause: Callable[[float], None]) -> None:
    while seconds > 0 and not stop():
        pause(min(seconds, 0.25))
        seconds -= 0.25


class _DownloadCounter:
    """The downloads that are running, and the progress so far."""

    def __init__(self, progress: Callable[[DownloadProgress], None]) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._files = 0
        self._bytes = 0
        self._running: set[str] = set()

    def try_begin(self, name: str) -> bool:
        """False when a file of this name is being downloaded: two would write into the same partial file."""
        with self._lock:
            if name in self._running:
                return False
            self._running.add(name)
            return True

    def end(self, name: str) -> None:
        with self._lock:
            self._running.remove(name)

    def add_bytes(self, count: int) -> None:
        with self._lock:
            self._bytes += count
            self._progress(DownloadProgress(self._files, self._bytes))

    def add_file(self) -> None:
        with self._lock:
            self._files += 1
            self._progress(DownloadProgress(self._files, self._bytes))
