"""Beneath: a path below an open folder is opened without a symbolic link being followed anywhere on it, nor `..`.

Linux does that in one call (`openat2`, since 5.6). Elsewhere, and where a sandbox does not allow it, every step is
taken from an open descriptor of the folder above.
"""

from __future__ import annotations

import ctypes
import errno
import os

_OPENAT2 = 437  # the same number on every architecture but Alpha
_TRIES = 100
_BENEATH, _NO_SYMLINKS = 0x08, 0x04  # of `resolve`


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(folder: int, path: str, flags: int) -> int:
    """A new descriptor of an entry that is there; OSError as of `os.open`, ELOOP where a link is in the way."""
    if IN_ONE_CALL and _syscall is not None:
        how = _How(flags | os.O_CLOEXEC, 0, _BENEATH | _NO_SYMLINKS)
        code = 0
        for _ in range(_TRIES):
            fd = _syscall(_OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
            if fd >= 0:
                return int(fd)
            code = ctypes.get_errno()
            # a signal; or something was renamed meanwhile, or is just being leased
            if code not in (errno.EINTR, errno.EAGAIN):
                break
        raise OSError(code, os.strerror(code))
    return walk(folder, path, flags)


def walk(folder: int, path: str, flags: int) -> int:
    """The same, step by step."""
    *above, last = path.split("/")
    if ".." in above or last == "..":
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    fd = folder
    try:
        for component in above:
            below = os.open(component, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            if fd != folder:
                os.close(fd)
            fd = below
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    finally:
        if fd != folder:
            os.close(fd)


_syscall = ctypes.CDLL(None, use_errno=True).syscall if hasattr(ctypes.CDLL(None), "syscall") else None


def _is_there() -> bool:
    if _syscall is None:
        return False
    how = _How(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, 0)
    fd = _syscall(_OPENAT2, -100, b"/", ctypes.byref(how), ctypes.sizeof(how))  # -100: AT_FDCWD
    if fd >= 0:
        os.close(fd)
    return bool(fd >= 0)


IN_ONE_CALL = _is_there()
