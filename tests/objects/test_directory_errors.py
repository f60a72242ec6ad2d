"""What a file system can do to a directory: full, read-only, no attributes, changed by hand, in the way."""

import errno
import hashlib
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from waybill.objects.directory import DirectoryObjects
from waybill.objects.protocol import (
    ContentMismatch,
    ObjectRequestRefused,
    ObjectsError,
    ObjectStoreUnavailable,
    PreconditionFailed,
    is_permanent,
)


def in_a_child(work: Callable[[], None]) -> str:
    """Run in a process of its own (for limits and rights that cannot be taken back); what it raised, or nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        output = ""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the parent
            output = f"{getattr(error, 'code', type(error).__name__)}: {error}"
        finally:
            os.write(writer, output.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        output = pipe.read().decode()
    os.waitpid(child, 0)
    return output


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of a quarter of a megabyte; where nobody may mount one, a `write` that behaves like it."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    if mount("-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mounted)):
        yield mounted
        subprocess.run(["umount", "-l", mounted], check=True)
        return
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if os.fstat(fd).st_size + len(data) > 200_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    yield mounted


def mount(*arguments: str) -> bool:
    return os.getuid() == 0 and subprocess.run(["mount", *arguments], capture_output=True).returncode == 0


def test_a_full_disk_keeps_the_old_object_and_says_so(small_disk: Path) -> None:
    with DirectoryObjects(small_disk / "objects") as objects:
        objects.put("a", b"old")
        for name in ("a", "b/c"):
            with pytest.raises(ObjectsError, match="no space left") as raised:
                objects.put(name, b"x" * 1_000_000)
            assert raised.value.code == "objects-full"
            assert not is_permanent(raised.value)
        with objects.upload("d") as upload:
            with pytest.raises(ObjectsError, match="no space left"):
                upload.put_part(1, b"x" * 1_000_000)
        assert [info.name for info in objects.list()] == ["a"]
        with objects.get("a") as body:
            assert body.read() == b"old"
        assert os.listdir(small_disk / "objects/.waybill/tmp") == []
        objects.put("a", b"x" * 100_000)  # what fits still goes


def test_a_limit_on_file_sizes_is_like_a_full_disk(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        objects.put("a", b"old")

        def work() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
            objects.put("a", b"x" * 100_000)

        assert "objects-full: Could not write 'a': there is no space left" in in_a_child(work)
        with objects.get("a") as body:
            assert body.read() == b"old"
        assert os.listdir(tmp_path / ".waybill/tmp") == []


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        objects.put("a/b", b"old")
        for folder in (tmp_path, tmp_path / "a", *(tmp_path / ".waybill").iterdir(), tmp_path / ".waybill"):
            if folder.is_dir():
                folder.chmod(0o555)

        def work() -> None:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            with objects.get("a/b") as body:
                assert body.read() == b"old"
            assert [info.name for info in objects.list()] == ["a/b"]
            objects.put("a/b", b"new")

        assert in_a_child(work).startswith(
            "objects-denied: Could not write 'a/b': the operating system does not allow it"
        )
        for folder in (tmp_path / ".waybill", *(tmp_path / ".waybill").iterdir()):
            if folder.is_dir():
                folder.chmod(0o777)

        assert in_a_child(work).startswith("objects-denied: Could not write 'a/b'")
        assert os.listdir(tmp_path / ".waybill/tmp") == []
        with objects.get("a/b") as body:
            assert body.read() == b"old"


def test_a_read_only_file_system_can_be_read(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DirectoryObjects(small_disk) as objects:
        objects.put("a", b"old")
    if not mount("-o", "remount,ro", str(small_disk)):
        real = os.open

        def read_only(path: str, flags: int, mode: int = 0o777, **options: int | None) -> int:
            if flags & os.O_CREAT:
                raise OSError(errno.EROFS, "Read-only file system")
            return real(path, flags, mode, **options)

        monkeypatch.setattr(os, "open", read_only)
    with DirectoryObjects(small_disk) as objects:
        with objects.get("a") as body:
            assert body.read() == b"old"
        with pytest.raises(ObjectsError, match="Read-only"):
            objects.put("a", b"new")


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ObjectRequestRefused, match="not a folder"):
        DirectoryObjects(tmp_path / "file")


def test_another_file_system_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(*args: object, **options: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    with DirectoryObjects(tmp_path, fsync=False) as objects:
        monkeypatch.setattr(os, "rename", rename)
        with pytest.raises(ObjectRequestRefused, match="another file system"):
            objects.put("a", b"")
        assert os.listdir(tmp_path / ".waybill/tmp") == []


def test_a_bad_disk_is_worth_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        objects.put("a", b"x")

        def pread(fd: int, size: int, at: int) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "pread", pread)
        with (
            objects.get("a") as body,
            pytest.raises(ObjectStoreUnavailable, match="read 'a': Input/output error") as raised,
        ):
            body.read()
        assert not is_permanent(raised.value)


def test_a_file_that_shrinks_under_its_reader_is_no_short_object(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        objects.put("a", b"0123456789")
        with objects.get("a") as body:
            os.truncate(tmp_path / "a", 3)
            with pytest.raises(ObjectStoreUnavailable, match="shorter"):
                body.read()


def test_a_file_edited_by_hand_loses_its_digest(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        before = objects.put("a", b"one")
        assert objects.head("a").sha256 == before.sha256
        (tmp_path / "a").write_bytes(b"two")
        os.utime(tmp_path / "a", ns=(1, 1))
        after = objects.head("a")
        assert after.sha256 is None
        assert after.etag != before.etag
        with pytest.raises(PreconditionFailed):
            objects.put("a", b"three", if_match=before.etag)


def test_bit_rot_is_found_when_copying(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        info = objects.put("a", b"one")
        (tmp_path / "a").write_bytes(b"onE")
        os.utime(tmp_path / "a", ns=(1, int(os.getxattr(tmp_path / "a", "user.waybill").split()[2])))
        assert objects.head("a").sha256 == info.sha256  # time and size say that nothing happened
        with pytest.raises(ContentMismatch, match="SHA-256"):
            objects.copy("a", "b")
        assert [found.name for found in objects.list()] == ["a"]


def test_without_attributes_nothing_is_kept_and_versions_still_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def setxattr(*args: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", setxattr)
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        first = objects.put("a", b"one")
        assert first.sha256 == hashlib.sha256(b"one").hexdigest()
        assert objects.head("a").sha256 is None
        head = objects.head("a")
        second = objects.put("a", b"two", if_match=head.etag)
        assert objects.head("a").etag == second.etag
        with pytest.raises(PreconditionFailed):
            objects.put("a", b"three", if_match=head.etag)
        assert first.etag == head.etag
