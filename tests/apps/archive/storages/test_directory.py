"""The directory storage passes the suite; what only it promises; and it survives a death at every side effect."""

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

pytest.register_assert_rewrite("waybill.apps.archive.storages.conformance")

from waybill.apps.archive.storages import (  # noqa: E402
    BytesSource,
    DirectoryStorage,
    StorageFull,
    StorageUnavailable,
    UploadCheckpoint,
    create_storage_folder,
    read_back,
)
from waybill.apps.archive.storages.conformance import MadeSource, StorageSuite, make_content  # noqa: E402

PART = 64 * 1024


class TestDirectory(StorageSuite):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[DirectoryStorage]:
        self.root = tmp_path / "storage"
        create_storage_folder(self.root)
        with DirectoryStorage("disk", self.root, part_size=PART) as storage:
            yield storage

    @pytest.fixture
    def other_process(self, storage: DirectoryStorage) -> DirectoryStorage:
        return DirectoryStorage("disk", self.root, part_size=PART)

    def make_unavailable(self) -> None:
        self.root.rename(self.root.with_name("unmounted"))
        self.root.mkdir()  # the empty mount point


def cached_bytes(path: Path) -> int:
    listed = subprocess.run(
        ["fincore", "--bytes", "--noheadings", "--output", "RES", path], check=True, capture_output=True
    )
    return int(listed.stdout)


def test_what_was_written_is_read_from_the_disk_and_not_from_memory(tmp_path: Path) -> None:
    create_storage_folder(tmp_path / "storage")
    storage = DirectoryStorage("disk", tmp_path / "storage", part_size=PART)
    batch = storage.open_batch("put", "migration-1", "put")
    content = make_content(4_000_000)
    storage.put(batch, "a", BytesSource(content))
    path = tmp_path / "storage/migration-1/a"
    assert cached_bytes(path) == 0

    path.read_bytes()  # somebody else brings it into memory
    assert cached_bytes(path) >= 4_000_000
    with closing(storage.read(storage.open_batch("get", "migration-1", "get"), "a")) as chunks:
        next(chunks)
        assert cached_bytes(path) < 3_000_000  # what was there is gone; the kernel reads ahead a little
        for _ in chunks:  # to the end: what is being read ahead cannot be dropped
            pass
    assert cached_bytes(path) == 0


def test_only_an_operator_makes_a_storage(tmp_path: Path) -> None:
    (tmp_path / "mount-point").mkdir()
    with pytest.raises(StorageUnavailable, match=r"Is its disk mounted\?"):
        DirectoryStorage("disk", tmp_path / "mount-point").open_batch("put", "migration-1", "put")
    assert list((tmp_path / "mount-point").iterdir()) == []


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    """Out of space in the middle: the put fails with a transient error, and goes on when there is room again."""
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], check=True)
    try:
        create_storage_folder(mount)
        storage = DirectoryStorage("small", mount, part_size=PART)
        (mount / "other-data").write_bytes(bytes(500_000))
        batch = storage.open_batch("put", "migration-1", "put")
        content, saved = make_content(900_000), list[UploadCheckpoint]()
        with pytest.raises(StorageFull, match="No space left on device"):
            storage.put(batch, "a", MadeSource(tmp_path, content), save=saved.append)
        assert 1 < len(saved) < 10
        (mount / "other-data").unlink()
        storage.put(batch, "a", MadeSource(tmp_path, content), resume=saved[-1])
        got = storage.open_batch("get", "migration-1", "get")
        assert read_back(storage, got, "a").sha256 == hashlib.sha256(content).hexdigest()
    finally:
        subprocess.run(["umount", mount], check=True)


def note(saved: Path, each: UploadCheckpoint) -> None:
    saved.write_text(f"{each.upload} {each.part_size} {each.parts} {each.sha256}")


def put_and_die(root: Path, folder: Path, content: bytes, number: int, saved: Path) -> bool:
    """Put in a process that dies at its side effect of this number. Returns whether it lived to the end."""
    child = os.fork()
    if child == 0:
        seen = 0

        def count(_: str) -> None:
            nonlocal seen
            seen += 1
            if seen == number:
                os._exit(9)

        code = 1
        try:
            storage = DirectoryStorage("disk", root, part_size=PART, on_side_effect=count)
            resume = None
            if saved.exists():
                upload, part_size, parts, sha256 = saved.read_text().split()
                resume = UploadCheckpoint(upload, int(part_size), int(parts), sha256)
            batch = storage.open_batch("put", "migration-1", "put")
            storage.put(batch, "a", MadeSource(folder, content), resume=resume, save=partial(note, saved))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9)
    return code == 0


def test_a_put_that_dies_anywhere_is_finished_by_the_next(tmp_path: Path) -> None:
    content = make_content(PART * 3 + 100)
    points = 0
    for number in range(1, 100):
        root, folder = tmp_path / f"storage-{number}", tmp_path / f"work-{number}"
        create_storage_folder(root)
        folder.mkdir()
        lived = put_and_die(root, folder, content, number, folder / "saved")
        archive = root / "migration-1/a"
        assert not archive.exists() or archive.read_bytes() == content  # whole or not there
        assert put_and_die(root, folder, content, 0, folder / "saved")
        assert [path.name for path in (root / "migration-1").iterdir()] == ["a"]
        assert archive.read_bytes() == content
        if lived:
            break
        points += 1
    assert points == 7  # the container, three parts, synced, renamed, written
