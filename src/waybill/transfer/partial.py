"""Partial: what has come of a file so far, in the folder of the attempt that fetches it.

    <folder>/.partial/<hash of the name>.part         the bytes
    <folder>/.partial/<hash of the name>.part.json    of which version of what they are: {"url": ..., "version": ...}

A file that is small, and is said to be, does not lie there: it is written when all of it has come, at once under its
name.

It only grows, and only in the attempt that began it: another attempt makes a copy (or, of a finished file, a second
link) and goes on with that. Nothing is synced to the disk: after a crash it counts only if the digest is right, or the
server still has the same version.
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

PARTIAL = ".partial"
PORTION = 1024 * 1024
WORTH_RESUMING = 16 * 1024  # bytes: a smaller file is fetched again sooner than it is noted
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK}


class Taken(Exception):
    """There is another file of this name."""


class Partial:
    """`alive` is called with every portion that is read from the disk, and may raise."""

    def __init__(self, folder: Path, name: str, algorithms: Iterable[str], alive: Callable[[], None]) -> None:
        self._folder, self._name, self._algorithms, self._alive = folder, name, tuple(algorithms), alive
        self.path = folder / PARTIAL / (hashlib.sha256(name.encode()).hexdigest()[:40] + ".part")
        self._about = self.path.with_suffix(".part.json")
        self.came = Digests(self._algorithms)
        self.version: str | None = None  # of the file on the server; without one it cannot be resumed
        self._is_there = self.path.parent.is_dir()  # or may be, and what lies in it

    def open(self) -> BinaryIO:
        """To go on at its end."""
        self._make_place()
        return open(self.path, "ab")

    def _make_place(self) -> None:
        if not self._is_there:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._is_there = True

    def begin_anew(self) -> None:
        if self._is_there:
            self._about.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
        self.came = Digests(self._algorithms)
        self.version = None

    def is_of(self, url: str, version: str | None, size: int | None = None) -> None:
        """Write down of which version the bytes are, for another attempt to resume; not of a file that has only so
        few in all.
        """
        self.version = version
        if size is not None and size < WORTH_RESUMING and not (self._is_there and self._about.exists()):
            return
        if version is None:
            self._about.unlink(missing_ok=True)
        else:
            self._make_place()
            self._about.write_text(json.dumps({"url": url, "version": version}))

    def finished_in(self, folder: Path, is_right: Callable[[Digests], bool]) -> bool:
        """Whether a folder holds the finished file; then this is a link to it, or a copy."""
        self.begin_anew()
        self._make_place()
        if not _link_or_copy(folder / self._name, self.path):
            return False
        self._digest(self.path)
        if is_right(self.came):
            return True
        self.begin_anew()
        return False

    def is_finished(self, is_right: Callable[[Digests], bool]) -> bool | None:
        """Whether the file is in place already; None if nothing is."""
        target = self._folder / self._name
        if not os.path.lexists(target):
            return None
        if not stat.S_ISREG(target.lstat().st_mode):
            return False
        self._digest(target)
        return is_right(self.came)

    def adopt(self, url: str, earlier: Sequence[Path]) -> bool:
        """Go on with what this attempt has from a process that died, or with a copy of what an earlier attempt has."""
        for folder in (self._folder, *earlier) if self._is_there else earlier:
            part = folder / PARTIAL / self.path.name
            # nothing there, or not to be read
            with suppress(FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
                about = json.loads(part.with_suffix(".part.json").read_bytes())
                if about["url"] == url and isinstance(about["version"], str):
                    if folder != self._folder:
                        self._make_place()
                        _copy(part, self.path)
                    self._digest(self.path)
                    self.is_of(url, about["version"])
                    return True
        self.begin_anew()
        return False

    def write_at_once(self, data: memoryview) -> None:
        """Let these bytes be the finished file; Taken if there is one of that name."""
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
            raise Taken from None

    def name_it(self) -> None:
        """Let it be the finished file; Taken if there is one of that name."""
        target = self._folder / self._name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self.path, target, follow_symlinks=False)  # unlike rename, never over another file
        except FileExistsError:
            raise Taken from None
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            os.rename(self.path, target)  # a file system without links
        self.path.unlink(missing_ok=True)
        self._about.unlink(missing_ok=True)

    def _digest(self, path: Path) -> None:
        self.came = Digests(self._algorithms)
        with open(path, "rb", opener=_no_links) as file:
            while portion := file.read(PORTION):
                self._alive()
                self.came.update(portion)


def _no_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _link_or_copy(source: Path, target: Path) -> bool:
    """Have a regular file under a second name; whether there was one."""
    try:
        if not stat.S_ISREG(source.lstat().st_mode):
            return False
        os.link(source, target, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        _copy(source, target)
    return True


def _copy(source: Path, target: Path) -> None:
    with open(source, "rb", opener=_no_links) as original, open(target, "wb") as copy:
        shutil.copyfileobj(original, copy, PORTION)
