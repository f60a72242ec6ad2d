"""Folder: new files below one folder, and nowhere else.

Every step down is taken from an open descriptor of the folder above and never through a link, and every file must be
new: whatever lies or is planted below the folder, nothing outside it is touched and nothing in it overwritten.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IN_THE_WAY = {errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ}


class InTheWay(Exception):
    """The disk cannot keep a file of this name here; the text goes on with the name."""


class Folder:
    """An existing folder. The way to the folder of the last file stays open, since the next file is often beside it."""

    def __init__(self, path: Path) -> None:
        self._open: list[tuple[str, int]] = [("", os.open(path, _FOLDER & ~os.O_NOFOLLOW))]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(0)

    def create(self, name: str) -> BinaryIO:
        """A new file to be written; InTheWay if there is something of this name."""
        *folders, last = name.split("/")
        try:
            return open(os.open(last, _NEW, 0o666, dir_fd=self._enter(folders)), "wb", buffering=0)
        except OSError as error:
            if error.errno in _IN_THE_WAY:
                raise InTheWay(f"cannot be kept under this name: {error.strerror}") from error
            raise

    def _enter(self, folders: list[str]) -> int:
        same = 0
        while same < len(folders) and same + 1 < len(self._open) and self._open[same + 1][0] == folders[same]:
            same += 1
        self._leave(same + 1)
        for folder in folders[same:]:
            above = self._open[-1][1]
            with suppress(FileExistsError):  # if it is no folder, opening it says so
                os.mkdir(folder, dir_fd=above)
            self._open.append((folder, os.open(folder, _FOLDER, dir_fd=above)))
        return self._open[-1][1]

    def _leave(self, keep: int) -> None:
        while len(self._open) > keep:
            os.close(self._open.pop()[1])
