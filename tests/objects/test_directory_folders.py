"""Opening below a folder, in one call and step by step: the same answers, and no link is followed."""

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from waybill.objects import directory_folders

READ = os.O_RDONLY | os.O_NONBLOCK


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "in" / "a" / "b").mkdir(parents=True)
    (tmp_path / "in" / "a" / "b" / "file").write_bytes(b"inside")
    (tmp_path / "secret").write_bytes(b"outside")
    (tmp_path / "in" / "up").symlink_to(tmp_path)
    (tmp_path / "in" / "a" / "link").symlink_to("b")
    (tmp_path / "in" / "a" / "file-link").symlink_to(tmp_path / "secret")
    fd = os.open(tmp_path / "in", os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@pytest.fixture(params=["one call", "step by step"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "step by step":
        monkeypatch.setattr(directory_folders, "HAS_OPENAT2", False)
    else:
        assert directory_folders.HAS_OPENAT2, "this kernel should have openat2"


def test_what_is_there_is_opened(folder: int) -> None:
    fd = directory_folders.open_beneath(folder, "a/b/file", READ)
    assert os.read(fd, 10) == b"inside"
    assert not os.get_inheritable(fd)
    os.close(fd)
    os.close(directory_folders.open_beneath(folder, ".", READ | os.O_DIRECTORY))
    os.fstat(folder)  # is still open


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("up/secret", (errno.ELOOP, errno.ENOTDIR)),
        ("a/link/file", (errno.ELOOP, errno.ENOTDIR)),
        ("a/file-link", (errno.ELOOP,)),
        ("a/none", (errno.ENOENT,)),
        ("none/none", (errno.ENOENT,)),
        ("../secret", (errno.EXDEV,)),
        ("a/../../secret", (errno.EXDEV,)),
        ("..", (errno.EXDEV,)),
        ("a/b/file/more", (errno.ENOTDIR,)),
    ],
)
def test_what_is_not_there_or_behind_a_link_is_not(folder: int, path: str, code: tuple[int, ...]) -> None:
    with pytest.raises(OSError, match=r".") as refused:
        directory_folders.open_beneath(folder, path, READ)
    assert refused.value.errno in code
    assert opened_below(folder) == [folder]


def opened_below(folder: int) -> list[int]:
    """What this process has open in the folder; what other threads open and close elsewhere is theirs."""
    top, found = os.readlink(f"/proc/self/fd/{folder}"), []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed since it was listed, as that of the listing is
            if os.readlink(f"/proc/self/fd/{fd}").startswith(top):
                found.append(int(fd))
    return found


def test_what_is_busy_again_and_again_is_said_to_be(folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_folders, "HAS_OPENAT2", True)
    tries: list[int] = []

    def fail(*how: object) -> int:
        tries.append(1)
        return -1

    monkeypatch.setattr(directory_folders, "_syscall", fail)
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EAGAIN)
    with pytest.raises(BlockingIOError):
        directory_folders.open_beneath(folder, "a", READ)
    assert len(tries) == 100
