"""Downloads one file from an HTTP server into the folder of an attempt, complete and verified or not at all.

Its life in order:

    1. A finished file of an earlier attempt is linked and digested; if it is the expected file, nothing is downloaded.
    2. Bytes are written into the partial file (partial_file.py); those of a small file into memory.
    3. After a cut connection the download resumes where it was cut, with `Range` and `If-Range`, if the server names a version (a strong
       ETag, or a date). Otherwise, or if the file has changed meanwhile, it starts again at the first byte.
    4. When all bytes have arrived, size and digests are compared, and the file gets its name, which must be free.
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
from waybill.transfer.address_policy import TransferError
from waybill.transfer.http_fetcher import HttpFetcher, check_status
from waybill.transfer.partial_file import MIN_RESUMABLE_SIZE, PartialFile


class DownloadStopped(BaseException):  # not an Exception: no handler of errors takes it for one
    """The caller stopped the download."""


@dataclass(frozen=True, slots=True)
class DownloadRequest:
    """One file to download. The name is a path below the folder; the headers go to the first host only."""

    url: str
    name: str
    size: int | None = None
    digests: Mapping[str, str] = field(default_factory=dict)  # {"sha-256": "..."}; in any common spelling
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class DownloadRules:
    """The limits of a download, the same for all its files."""

    timeout: float
    max_size: int | None
    min_rate: int
    stop: Callable[[], bool]
    accept_size: Callable[[str, int], bool] = lambda name, size: True
    monotonic: Callable[[], float] = time.monotonic


class FileDownload:
    """`digests` are the expected ones, by normalized name; `add_bytes` is called with the bytes from the network."""

    def __init__(
        self,
        request: DownloadRequest,
        digests: Mapping[str, str],
        folder: Path,
        rules: DownloadRules,
        add_bytes: Callable[[int], None],
    ) -> None:
        self._request, self._digests, self._rules, self._add_bytes = request, digests, rules, add_bytes
        self._partial = PartialFile(folder, request.name, digests, self._raise_if_stopped)
        self._is_resumed = False

    @property
    def size(self) -> int:
        return self._partial.digests.size

    @property
    def sha256(self) -> str:
        return self._partial.digests.sha256

    def reuse_earlier(self, earlier_folders: Sequence[Path]) -> bool:
        """Step 1: whether a finished file of this or an earlier attempt is the expected one, and is now in place."""
        is_expected = self._partial.check_finished(self._is_expected)
        if is_expected is not None:
            if is_expected and self._digests:
                return True
            raise TransferError(
                "A file of this name exists already, and it cannot be verified to be the expected one.",
                code="transfer-refused",
            )
        self._is_resumed = self._partial.adopt(self._request.url, earlier_folders)
        if self._digests and not self._is_resumed:
            for folder in earlier_folders:
                if self._partial.link_finished_from(folder, self._is_expected):
                    self._put_in_place()
                    return True
        return False

    def try_once(self, fetcher: HttpFetcher) -> None:
        """Steps 2 to 4; raises DownloadStopped, or TransferError: after one that is retryable it may be
        called again.
        """
        headers: dict[str, str] = {}
        if self.size and self._partial.version:
            headers = {"range": f"bytes={self.size}-", "if-range": self._partial.version}
        else:
            self.discard()
        with fetcher.request(
            "GET", self._request.url, first_host_headers=self._request.headers, headers=headers
        ) as response:
            if response.status_code == 416 and self.size:
                self.discard()
                raise TransferError("The server has another version, which is shorter.")
            check_status(response, 200, 206)
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise TransferError(
                    "The server sent it compressed, although the request asked for it uncompressed.",
                    code="transfer-refused",
                )
            if response.status_code == 206:
                self._check_range(response)
            elif self.size:
                self.discard()
            self._check_length(response)
            length = response.headers.get("content-length", "")
            total = self.size + int(length) if length.isdecimal() else None
            small = io.BytesIO() if total is not None and total < MIN_RESUMABLE_SIZE and not self.size else None
            if small is not None:
                self._receive(response, small)
            else:
                self._partial.set_version(self._request.url, _version_of(response), total)
                with self._partial.open() as file:
                    self._receive(response, file)
        self._finish(small)

    def discard(self) -> None:
        """Forget the bytes that have arrived."""
        self._partial.reset()
        self._is_resumed = False

    def _receive(self, response: httpx2.Response, file: BinaryIO) -> None:
        max_size = self._request.size if self._request.size is not None else self._rules.max_size
        since, before = self._rules.monotonic(), self.size
        for chunk in response.iter_raw():  # unbuffered: what is buffered would be lost with a cut
            self._raise_if_stopped()
            if max_size is not None and self.size + len(chunk) > max_size:
                code = "transfer-refused" if self._request.size is None else "content-mismatch"
                raise TransferError(f"More than {max_size} bytes arrived.", code=code)
            file.write(chunk)
            self._partial.digests.update(chunk)
            self._add_bytes(len(chunk))
            now = self._rules.monotonic()
            if now - since >= self._rules.timeout:
                if self.size - before < self._rules.min_rate * (now - since):
                    raise TransferError(f"The server sends less than {self._rules.min_rate} bytes a second.")
                since, before = now, self.size

    def _finish(self, small: io.BytesIO | None) -> None:
        mismatch = self._partial.digests.find_mismatch(self._request.size, self._digests)
        if mismatch and self._is_resumed:
            self.discard()
            raise TransferError(f"It was assembled from responses of different versions: {mismatch}.")
        if mismatch:
            raise TransferError(f"{mismatch[0].upper()}{mismatch[1:]}.", code="content-mismatch")
        self._put_in_place(small)

    def _put_in_place(self, small: io.BytesIO | None = None) -> None:
        if small is not None:
            self._partial.write_at_once(small.getbuffer())
        else:
            self._partial.put_in_place()

    def _check_range(self, response: httpx2.Response) -> None:
        """Check that the server sends the missing bytes, and of the same version."""
        unit, _, rest = response.headers.get("content-range", "").partition(" ")
        version = _version_of(response)
        if unit != "bytes" or rest.partition("-")[0] != str(self.size) or version not in (None, self._partial.version):
            self.discard()
            raise TransferError("The server sent another range than was requested.")
        self._is_resumed = True

    def _check_length(self, response: httpx2.Response) -> None:
        length = response.headers.get("content-length", "")
        if not length.isdecimal():
            return
        total = self.size + int(length)
        if self._request.size is not None and total != self._request.size:
            raise TransferError(
                f"The server offers {total} bytes, and {self._request.size} are expected.", code="content-mismatch"
            )
        if self._rules.max_size is not None and total > self._rules.max_size:
            raise TransferError(
                f"The server offers {total} bytes, and {self._rules.max_size} is the limit.", code="transfer-refused"
            )
        if not self._rules.accept_size(self._request.name, total):
            raise DownloadStopped

    def _is_expected(self, digests: Digests) -> bool:
        return digests.find_mismatch(self._request.size, self._digests) is None

    def _raise_if_stopped(self) -> None:
        if self._rules.stop():
            raise DownloadStopped


def _version_of(response: httpx2.Response) -> str | None:
    """What a later response is compared with: a strong ETag, or else the date of the last change."""
    etag: str = response.headers.get("etag", "")
    if etag and not etag.startswith("W/"):
        return etag
    date: str = response.headers.get("last-modified", "")
    return date or None
