"""The test suite that every storage passes. Run it with pytest, in a test file like this:

import pytest
pytest.register_assert_rewrite("waybill.apps.archive.storages.conformance")
from waybill.apps.archive.storages.conformance import StorageSuite

class TestMine(StorageSuite):
    @pytest.fixture
    def storage(self): ...            # empty, and used by this test only

    @pytest.fixture
    def other_process(self): ...      # the same storage, opened once more

    def pass_time(self): ...          # if batches are done later: let them become due
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from waybill.apps.archive.storages.errors import (
    ArchiveNotFound,
    ArchiveNotReady,
    ExternalStorageError,
    SourceChanged,
    StorageRefused,
)
from waybill.apps.archive.storages.protocol import Batch, Storage, StoredArchive, UploadCheckpoint
from waybill.apps.archive.storages.sources import read_back

BAD_NAMES = ["", ".", "..", "a/b", "../a", ".hidden", "a b", "a\0b", "é", "-rf", "a" * 129, "a.unfinished"]


class Killed(BaseException):
    """The process that sends ends here."""


class MadeSource:
    """Bytes that look random, as a file, which can end or be killed on the way. `content` is what it promises."""

    def __init__(
        self, folder: Path, content: bytes, *, sent: bytes | None = None, killed_at: int | None = None
    ) -> None:
        self.path: Path | None = folder / "source"
        self.path.write_bytes(content)
        self.size = len(content)
        self._sent = content if sent is None else sent
        self._killed_at = killed_at

    def iter_chunks(self) -> Iterator[bytes]:
        for at in range(0, len(self._sent), 10_000):  # never the size of a part
            if self._killed_at is not None and at >= self._killed_at:
                raise Killed
            yield self._sent[at : at + 10_000]


def make_content(size: int, seed: int = 0) -> bytes:
    block = b"".join(hashlib.sha256(b"%d %d" % (seed, number)).digest() for number in range(512))
    return (block * (size // len(block) + 1))[:size]


class StorageSuite:
    def pass_time(self) -> None:
        """Nothing has to be waited for."""

    def finish(self, storage: Storage, batch: Batch) -> None:
        storage.close_batch(batch)
        self.pass_time()
        status = storage.poll(batch)
        assert status.is_done
        assert not status.failures

    def put(self, storage: Storage, folder: Path, token: str = "put-1", **contents: bytes) -> None:
        batch = storage.open_batch("put", "migration-1", token)
        for name, content in contents.items():
            storage.put(batch, name, MadeSource(folder, content))
        self.finish(storage, batch)
        storage.end_batch(batch)

    def get(self, storage: Storage, *names: str, token: str = "get-1") -> Batch:
        batch = storage.open_batch("get", "migration-1", token)
        for name in names:
            storage.request(batch, name)
        self.finish(storage, batch)
        return batch

    def read(self, storage: Storage, batch: Batch, name: str, **range: int) -> bytes:
        with closing(storage.read(batch, name, **range)) as chunks:
            return b"".join(bytes(chunk) for chunk in chunks)

    def content_of(self, storage: Storage) -> dict[str, bytes]:
        names = [archive.name for archive in storage.list_archives("migration-1")]
        batch = self.get(storage, *names, token="content")
        found = {name: self.read(storage, batch, name) for name in names}
        storage.end_batch(batch)
        return found

    def test_what_was_put_is_read_back(self, storage: Storage, other_process: Storage, tmp_path: Path) -> None:
        part = storage.traits.part_size
        for name, size in [("empty", 0), ("one-byte", 1), ("a.part", part), ("2.5", part * 5 // 2), ("just", part + 1)]:
            content = make_content(size)
            batch = storage.open_batch("put", "migration-1", name)
            sent = storage.put(batch, name, MadeSource(tmp_path, content))
            assert sent == StoredArchive(name, size, hashlib.sha256(content).hexdigest())
            self.finish(storage, batch)
            storage.end_batch(batch)
            gotten = self.get(other_process, name, token=name)
            assert read_back(other_process, gotten, name) == sent
            other_process.end_batch(gotten)

    def test_parts_of_an_archive_can_be_read(self, storage: Storage, tmp_path: Path) -> None:
        content = make_content(300_000)
        self.put(storage, tmp_path, a=content)
        batch = self.get(storage, "a")
        for start, end in [(0, 1), (1, 299_999), (299_999, 300_000), (100_000, 100_000), (300_000, 300_000), (5, 9)]:
            assert self.read(storage, batch, "a", start=start, end=end) == content[start:end]
        assert self.read(storage, batch, "a", start=299_000) == content[299_000:]
        assert self.read(storage, batch, "a", start=299_000, end=400_000) == content[299_000:]

    def test_archives_are_listed_in_order_with_their_sizes(
        self, storage: Storage, other_process: Storage, tmp_path: Path
    ) -> None:
        assert list(storage.list_archives("migration-1")) == []
        assert list(storage.list_containers()) == []
        self.put(storage, tmp_path, b=b"12", a=b"1", c=b"")
        assert list(other_process.list_archives("migration-1")) == [
            StoredArchive("a", 1),
            StoredArchive("b", 2),
            StoredArchive("c", 0),
        ]
        assert list(other_process.list_containers()) == ["migration-1"]
        assert list(storage.list_archives("migration-2")) == []

    def test_a_batch_is_opened_once_for_each_token(
        self, storage: Storage, other_process: Storage, tmp_path: Path
    ) -> None:
        first = storage.open_batch("put", "migration-1", "token")
        storage.put(first, "a", MadeSource(tmp_path, b"one"))
        again = other_process.open_batch("put", "migration-1", "token")
        assert again == first
        other_process.put(again, "b", MadeSource(tmp_path, b"two"))
        self.finish(storage, first)
        self.finish(other_process, again)
        storage.end_batch(first)
        other_process.end_batch(again)
        assert self.content_of(storage) == {"a": b"one", "b": b"two"}

    def test_an_archive_is_replaced_by_another_put(self, storage: Storage, tmp_path: Path) -> None:
        self.put(storage, tmp_path, "put-1", a=b"the first", b=b"another")
        self.put(storage, tmp_path, "put-2", a=b"second")
        assert self.content_of(storage) == {"a": b"second", "b": b"another"}

    def test_a_killed_put_goes_on_after_the_last_part_that_was_stored(
        self, storage: Storage, other_process: Storage, tmp_path: Path
    ) -> None:
        part = storage.traits.part_size
        content = make_content(part * 3 + part // 2)
        batch, saved = self.kill_put(storage, tmp_path, content, killed_at=part * 5 // 2)
        assert [each.parts for each in saved] == [1, 2]
        assert list(storage.list_archives("migration-1")) == []

        later: list[UploadCheckpoint] = []
        sent = other_process.put(batch, "a", MadeSource(tmp_path, content), resume=saved[-1], save=later.append)
        assert [each.parts for each in later] == [3]  # the first two were not sent again
        assert later[0].upload == saved[-1].upload
        assert sent.sha256 == hashlib.sha256(content).hexdigest()
        self.finish(other_process, batch)
        assert self.content_of(storage) == {"a": content}

    def kill_put(
        self, storage: Storage, folder: Path, content: bytes, *, killed_at: int
    ) -> tuple[Batch, list[UploadCheckpoint]]:
        batch = storage.open_batch("put", "migration-1", "put-1")
        saved: list[UploadCheckpoint] = []
        with pytest.raises(Killed):
            storage.put(batch, "a", MadeSource(folder, content, killed_at=killed_at), save=saved.append)
        return batch, saved

    def test_a_put_whose_source_changed_meanwhile_begins_anew(self, storage: Storage, tmp_path: Path) -> None:
        part = storage.traits.part_size
        before, after = make_content(part * 5 // 2), make_content(part * 5 // 2, seed=1)
        batch, saved = self.kill_put(storage, tmp_path, before, killed_at=part * 2)
        later: list[UploadCheckpoint] = []
        storage.put(batch, "a", MadeSource(tmp_path, after), resume=saved[-1], save=later.append)
        assert [each.parts for each in later] == [1, 2]
        self.finish(storage, batch)
        assert self.content_of(storage) == {"a": after}

    def test_a_put_whose_upload_is_gone_begins_anew(
        self, storage: Storage, other_process: Storage, tmp_path: Path
    ) -> None:
        part = storage.traits.part_size
        content = make_content(part * 5 // 2)
        batch, saved = self.kill_put(storage, tmp_path, content, killed_at=part * 2)
        storage.put(batch, "a", MadeSource(tmp_path, content), resume=saved[-1])
        # the step was killed after the put and before its commit: the same put, with the same checkpoint
        other_process.put(batch, "a", MadeSource(tmp_path, content), resume=saved[-1])
        self.finish(storage, batch)
        assert self.content_of(storage) == {"a": content}

    @pytest.mark.parametrize("change", [b"", b"shorter", None], ids=["nothing", "less", "more"])
    def test_a_source_of_another_length_is_an_error_and_nothing_is_stored(
        self, storage: Storage, tmp_path: Path, change: bytes | None
    ) -> None:
        content = make_content(50_000)
        sent = content + b"x" if change is None else change
        batch = storage.open_batch("put", "migration-1", "put-1")
        with pytest.raises(SourceChanged):
            storage.put(batch, "a", MadeSource(tmp_path, content, sent=sent))
        self.finish(storage, batch)
        assert list(storage.list_archives("migration-1")) == []

    def test_what_is_not_there_cannot_be_read(self, storage: Storage, tmp_path: Path) -> None:
        self.put(storage, tmp_path, a=b"1")
        batch = storage.open_batch("get", "migration-1", "get-1")
        with pytest.raises(ArchiveNotFound, match="b"):
            storage.request(batch, "b")
        with pytest.raises((ArchiveNotFound, ArchiveNotReady), match="b"):
            self.read(storage, batch, "b")
        elsewhere = storage.open_batch("get", "migration-2", "get-2")
        with pytest.raises(ArchiveNotFound):
            storage.request(elsewhere, "a")

    def test_archives_are_deleted_as_often_as_asked(
        self, storage: Storage, other_process: Storage, tmp_path: Path
    ) -> None:
        self.put(storage, tmp_path, a=b"1", b=b"2")
        for each, token in [(storage, "1"), (other_process, "1"), (storage, "2")]:
            batch = each.open_batch("delete", "migration-1", token)
            if each is not other_process:
                each.delete(batch, "a")
                each.delete(batch, "never-there")
            self.finish(each, batch)
            assert [archive.name for archive in each.list_archives("migration-1")] == ["b"]
        assert self.content_of(storage) == {"b": b"2"}

    def test_a_container_is_removed_with_all_in_it(
        self, storage: Storage, other_process: Storage, tmp_path: Path
    ) -> None:
        self.put(storage, tmp_path, "put-0", a=b"1", b=b"2")
        elsewhere = storage.open_batch("put", "migration-10", "put-10")
        storage.put(elsewhere, "a", MadeSource(tmp_path, b"stays"))
        self.finish(storage, elsewhere)
        part = storage.traits.part_size
        self.kill_put(storage, tmp_path, make_content(part * 3), killed_at=part * 2)
        for each in (storage, other_process, storage):
            each.remove_container("migration-1")
            assert list(each.list_archives("migration-1")) == []
        assert list(other_process.list_containers()) == ["migration-10"]
        assert [archive.name for archive in storage.list_archives("migration-10")] == ["a"]
        self.put(storage, tmp_path, "put-11", c=b"3")
        assert self.content_of(storage) == {"c": b"3"}

    def test_ending_a_batch_removes_nothing_that_is_stored(
        self, storage: Storage, other_process: Storage, tmp_path: Path
    ) -> None:
        self.put(storage, tmp_path, a=b"1")
        batch = self.get(storage, "a")
        for each in (storage, other_process):
            each.end_batch(batch)
        assert self.content_of(storage) == {"a": b"1"}

    def test_a_batch_is_for_one_thing(self, storage: Storage, tmp_path: Path) -> None:
        self.put(storage, tmp_path, a=b"1")
        put, get = storage.open_batch("put", "migration-1", "x"), storage.open_batch("get", "migration-1", "x")
        assert put.id != get.id
        refused: list[Callable[[], object]] = [
            lambda: storage.put(get, "a", MadeSource(tmp_path, b"2")),
            lambda: storage.request(put, "a"),
            lambda: storage.delete(get, "a"),
            lambda: self.read(storage, put, "a"),
        ]
        for call in refused:
            with pytest.raises(StorageRefused):
                call()

    def test_names_that_could_lead_elsewhere_are_refused(self, storage: Storage, tmp_path: Path) -> None:
        batch = storage.open_batch("put", "migration-1", "put-1")
        for name in BAD_NAMES:
            calls: list[Callable[[], object]] = [
                lambda name=name: storage.put(batch, name, MadeSource(tmp_path, b"1")),  # type: ignore[misc]
                lambda name=name: storage.open_batch("get", name, "get-1"),  # type: ignore[misc]
                lambda name=name: storage.open_batch("get", "migration-1", name),  # type: ignore[misc]
                lambda name=name: storage.remove_container(name),  # type: ignore[misc]
                lambda name=name: list(storage.list_archives(name)),  # type: ignore[misc]
            ]
            for call in calls:
                with pytest.raises(StorageRefused):
                    call()

    def test_a_storage_that_is_there_can_be_used(self, storage: Storage) -> None:
        storage.check()

    def make_unavailable(self) -> None:
        """Take the storage away."""
        raise NotImplementedError

    def test_a_storage_that_is_away_says_so_and_is_not_an_empty_one(self, storage: Storage, tmp_path: Path) -> None:
        self.put(storage, tmp_path, a=b"1")
        batch = storage.open_batch("get", "migration-1", "get-1")
        self.make_unavailable()
        calls: list[Callable[[], object]] = [
            storage.check,
            lambda: storage.open_batch("put", "migration-1", "put-2"),
            lambda: storage.request(batch, "a"),
            lambda: storage.poll(batch),
            lambda: self.read(storage, batch, "a"),
            lambda: list(storage.list_archives("migration-1")),
            lambda: list(storage.list_containers()),
            lambda: storage.remove_container("migration-1"),
        ]
        for call in calls:
            with pytest.raises(ExternalStorageError) as raised:
                call()
            assert not isinstance(raised.value, ArchiveNotFound)
