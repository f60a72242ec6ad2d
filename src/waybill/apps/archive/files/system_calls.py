"""Two calls of Linux that Python does not offer."""

from __future__ import annotations

import ctypes
import errno
import os

_libc = ctypes.CDLL(None, use_errno=True)
_RENAME_NOREPLACE = 1
_NOT_OFFERED = {errno.ENOSYS, errno.EINVAL}


def rename_without_replacing(from_folder: int, from_name: str, to_folder: int, to_name: str) -> None:
    """Rename, relative to descriptors. Raises FileExistsError if there is something under the new name."""
    old, new = os.fsencode(from_name), os.fsencode(to_name)
    if _libc.renameat2(from_folder, old, to_folder, new, _RENAME_NOREPLACE) == 0:
        return
    number = ctypes.get_errno()
    if number not in _NOT_OFFERED:
        raise OSError(number, os.strerror(number), to_name)
    # a file system without it: a link is never made over another file
    os.link(from_name, to_name, src_dir_fd=from_folder, dst_dir_fd=to_folder, follow_symlinks=False)
    os.unlink(from_name, dir_fd=from_folder)


def sync_file_system(descriptor: int) -> None:
    """Bring all that was written to a file system to its disk: one flush for many files."""
    if _libc.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
