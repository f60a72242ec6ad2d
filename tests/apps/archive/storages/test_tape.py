"""The tape storage passes the suite; what is asked of it is done when a drive is free and its tape is mounted."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("waybill.apps.archive.storages.conformance")

from waybill.apps.archive.storages import ArchiveNotReady, Batch, BytesSource, FileSource, StorageRefused, TapeStorage  # noqa: E402
from waybill.apps.archive.storages.conformance import StorageSuite  # noqa: E402

PART = 64 * 1024


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class TestTape(StorageSuite):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[TapeStorage]:
        self.root, self.clock = tmp_path / "library", Clock()
        TapeStorage.create(self.root)
        with TapeStorage("tape", self.root, clock=self.clock, part_size=PART) as storage:
            yield storage

    @pytest.fixture
    def other_process(self, storage: TapeStorage) -> TapeStorage:
        return TapeStorage("tape", self.root, clock=self.clock, part_size=PART)

    def pass_time(self) -> None:
        self.clock.now += 1_000_000

    def make_unavailable(self) -> None:
        self.root.rename(self.root.with_name("elsewhere"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tape(tmp_path: Path, clock: Clock) -> TapeStorage:
    TapeStorage.create(tmp_path / "library")
    return TapeStorage("tape", tmp_path / "library", clock=clock, mount_delay=300)


def open_put(tape: TapeStorage, folder: Path, token: str, *names: str) -> Batch:
    batch = tape.open_batch("put", "migration-1", token)
    for name in names:
        path = folder / name
        path.write_text(name)
        tape.put(batch, name, FileSource.of(path))
    return batch


def names_on(tape: TapeStorage) -> list[str]:
    return [archive.name for archive in tape.list_archives("migration-1")]


def test_a_batch_is_done_when_its_tape_is_mounted(tape: TapeStorage, clock: Clock, tmp_path: Path) -> None:
    batch = open_put(tape, tmp_path, "put", "a", "b")
    clock.now += 10_000
    assert tape.poll(batch).waiting == 2  # it is not closed
    assert not tape.poll(batch).is_done
    tape.close_batch(batch)
    clock.now += 299
    assert not tape.poll(batch).is_done
    assert names_on(tape) == []
    tape.close_batch(batch)  # again: it does not begin anew
    clock.now += 1
    assert tape.poll(batch).is_done
    assert names_on(tape) == ["a", "b"]


def test_one_drive_takes_one_batch_after_the_other(tape: TapeStorage, clock: Clock, tmp_path: Path) -> None:
    first, second = open_put(tape, tmp_path, "1", "a"), open_put(tape, tmp_path, "2", "b")
    tape.close_batch(second)
    tape.close_batch(first)
    clock.now += 300
    assert [tape.poll(first).is_done, tape.poll(second).is_done] == [False, True]
    clock.now += 300
    assert tape.poll(first).is_done


def test_two_drives_take_two(tmp_path: Path, clock: Clock) -> None:
    TapeStorage.create(tmp_path / "library")
    tape = TapeStorage("tape", tmp_path / "library", clock=clock, mount_delay=300, drives=2)
    batches = [open_put(tape, tmp_path, str(number), f"a{number}") for number in range(3)]
    for batch in batches:
        tape.close_batch(batch)
    clock.now += 300
    assert [tape.poll(batch).is_done for batch in batches] == [True, True, False]
    clock.now += 300
    assert tape.poll(batches[2]).is_done


def test_nothing_is_read_before_it_was_brought_back(tape: TapeStorage, clock: Clock, tmp_path: Path) -> None:
    put = open_put(tape, tmp_path, "put", "a", "b")
    tape.close_batch(put)
    clock.now += 300
    tape.poll(put)
    tape.end_batch(put)
    get = tape.open_batch("get", "migration-1", "get")
    tape.request(get, "a")
    with pytest.raises(ArchiveNotReady, match="poll the batch"):
        tape.read(get, "a")
    tape.close_batch(get)
    clock.now += 300
    tape.poll(get)
    assert b"".join(bytes(chunk) for chunk in tape.read(get, "a")) == b"a"
    with pytest.raises(ArchiveNotReady, match="b was not requested"):
        tape.read(get, "b")


def test_a_stream_is_refused_where_whole_files_are_wanted(tape: TapeStorage) -> None:
    batch = tape.open_batch("put", "migration-1", "put")
    assert tape.traits.wants_whole_files
    with pytest.raises(StorageRefused, match="must be staged first"):
        tape.put(batch, "a", BytesSource(b"1"))


def test_a_closed_batch_takes_nothing_more(tape: TapeStorage, tmp_path: Path) -> None:
    batch = open_put(tape, tmp_path, "put", "a")
    tape.close_batch(batch)
    with pytest.raises(StorageRefused, match="is closed"):
        tape.put(batch, "b", FileSource.of(tmp_path / "a"))


def test_a_removed_container_does_not_come_back_from_a_batch_under_way(
    tape: TapeStorage, clock: Clock, tmp_path: Path
) -> None:
    batch = open_put(tape, tmp_path, "put", "a")
    tape.close_batch(batch)
    tape.remove_container("migration-1")
    other = tape.open_batch("delete", "migration-1", "delete")
    tape.close_batch(other)
    clock.now += 10_000
    assert tape.poll(other).is_done
    assert names_on(tape) == []


def test_a_batch_that_is_carried_out_by_a_process_that_dies_is_carried_out_by_the_next(
    tmp_path: Path, clock: Clock
) -> None:
    for number in range(1, 20):
        root = tmp_path / f"library-{number}"
        TapeStorage.create(root)
        tape = TapeStorage("tape", root, clock=clock, mount_delay=300)
        put, delete = open_put(tape, tmp_path, "put", "a", "b", "c"), tape.open_batch("delete", "migration-1", "delete")
        tape.delete(delete, "b")
        tape.close_batch(put)
        tape.close_batch(delete)
        clock.now += 600
        lived = poll_and_die(root, clock, put, number)
        assert tape.poll(delete).is_done
        assert tape.poll(put).is_done
        assert names_on(tape) == ["a", "c"]
        if lived:
            assert number == 7  # three archives on the tape, one off, two batches done
            return
    pytest.fail("it dies at every side effect")


def poll_and_die(root: Path, clock: Clock, batch: Batch, number: int) -> bool:
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
            TapeStorage("tape", root, clock=clock, mount_delay=300, on_side_effect=count).poll(batch)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0
