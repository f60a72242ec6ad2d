"""A partial file: the bytes of a download that have arrived so far, in the folder of its attempt.

    <folder>/.partial/<hash of the name>.part         the bytes
    <folder>/.partial/<hash of the name>.part.json    the version that they belong to: {"url": ..., "version": ...}

A file whose length is known to be small is not written there: when all of it has arrived, it is written at once under
its name.

A partial file only grows, and only in the attempt that started it: another attempt makes a copy (or, of a finished file,
a second link) and continues with that. Nothing is synced to the disk: after a crash a file counts only if its digest is
right, or the server still has the same version.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from waybill.digests import Digests
from waybill.transfer.address_policy import TransferError

PARTIAL_FOLDER = ".partial"
CHUNK_SIZE = 1024 * 1024
MIN_RESUMABLE_SIZE = 16 * 1024  # bytes: a smaller file is downloaded again faster than its version is written
_NO_LINK_ERRORS = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK}


class PartialFile:
    """`check_alive` is called with every chunk that is read from the disk, and may raise."""

    def __init__(self, folder: Path, name: str, algorithms: Iterable[str], check_alive: Callable[[], None]) -> None:
        self._folder, self._name, self._algorithms, self._check_alive = folder, name, tuple(algorithms), check_alive
        self.path = folder / PARTIAL_FOLDER / (hashlib.sha256(name.encode()).hexdigest()[:40] + ".part")
        self._info_path = self.path.with_suffix(".part.json")
        self.digests = Digests(self._algorithms)
        self.version: str | None = None  # of the file on the server; without one the download cannot be resumed
        self._has_folder = self.path.parent.is_dir()  # otherwise nothing of it exists

    def open(self) -> BinaryIO:
        """Open it for appending."""
        self._make_folder()
        return open(self.path, "ab")

    def _make_folder(self) -> None:
        if not self._has_folder:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._has_folder = True

    def reset(self) -> None:
        if self._has_folder:
            self._info_path.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
        self.digests = Digests(self._algorithms)
        self.version = None

    def set_version(self, url: str, version: str | None, size: int | None = None) -> None:
        """Record the version of the bytes, so that another attempt can resume; not for a file that is small in all."""
        self.version = version
        if size is not None and size < MIN_RESUMABLE_SIZE and not (self._has_folder and self._info_path.exists()):
            return
        if version is None:
            self._info_path.unlink(missing_ok=True)
        else:
            self._make_folder()
            self._info_path.write_text(json.dumps({"url": url, "version": version}))

    def link_finished_from(self, folder: Path, is_expected: Callable[[Digests], bool]) -> bool:
        """Whether a folder holds the finished file; then the partial file is a link to it, or a copy."""
        self.reset()
        self._make_folder()
        if not _link_or_copy(folder / self._name, self.path):
            return False
        self._compute_digests(self.path)
        if is_expected(self.digests):
            return True
        self.reset()
        return False

    def check_finished(self, is_expected: Callable[[Digests], bool]) -> bool | None:
        """Whether the file that is in place is the expected one; None when there is none."""
        target = self._folder / self._name
        if not os.path.lexists(target):
            return None
        if not stat.S_ISREG(target.lstat().st_mode):
            return False
        self._compute_digests(target)
        return is_expected(self.digests)

    def adopt(self, url: str, earlier: Sequence[Path]) -> bool:
        """Continue with the partial file of this attempt, left by a process that died, or with a copy of an earlier one's."""
        for folder in (self._folder, *earlier) if self._has_folder else earlier:
            part = folder / PARTIAL_FOLDER / self.path.name
            # missing or unreadable
            with suppress(FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
                info = json.loads(part.with_suffix(".part.json").read_bytes())
                if info["url"] == url and isinstance(info["version"], str):
                    if folder != self._folder:
                        self._make_folder()
                        _copy_file(part, self.path)
                    self._compute_digests(self.path)
                    self.set_version(url, info["version"])
                    return True
        self.reset()
        return False

    def write_at_once(self, data: memoryview) -> None:
        """Write these bytes as the finished file; raises TransferError when there is one of that name."""
        target = self._folder / self._name
        if "/" in self._name:
            target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(target, "xb", buffering=0) as file:
                try:
                    if file.write(data) != len(data):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError:
                    target.unlink()
                    raise
        except FileExistsError:
            raise _name_taken() from None

    def put_in_place(self) -> None:
        """Make it the finished file; raises TransferError when there is one of that name."""
        target = self._folder / self._name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self.path, target, follow_symlinks=False)  # unlike rename, never over another file
        except FileExistsError:
            raise _name_taken() from None
        except OSError as error:
            if error.errno not in _NO_LINK_ERRORS:
                raise
            os.rename(self.path, target)  # a file system without links
        self.path.unlink(missing_ok=True)
        self._info_path.unlink(missing_ok=True)

    def _compute_digests(self, path: Path) -> None:
        self.digests = Digests(self._algorithms)
        with open(path, "rb", opener=_open_nofollow) as file:
            while chunk := file.read(CHUNK_SIZE):
                self._check_alive()
                self.digests.update(chunk)


def _open_nofollow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _link_or_copy(source: Path, target: Path) -> bool:
    """Give a regular file a second name; returns whether there was one."""
    try:
        if not stat.S_ISREG(source.lstat().st_mode):
            return False
        os.link(source, target, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno not in _NO_LINK_ERRORS:
            raise
        _copy_file(source, target)
    return True


def _name_taken() -> TransferError:
    sentence = "A file of this name exists already: two requests have the same name."
    return TransferError(sentence, code="transfer-refused")


def _copy_file(source: Path, target: Path) -> None:
    with open(source, "rb", opener=_open_nofollow) as original, open(target, "wb") as copy:
        shutil.copyfileobj(original, copy, CHUNK_SIZE)
