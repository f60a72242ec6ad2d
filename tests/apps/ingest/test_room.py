"""The ledger of room: who is admitted, who waits, and that several processes agree."""

import errno
import fcntl
import multiprocessing
import os
import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waybill.apps.ingest.journal import Journal
from waybill.apps.ingest.room import Disk, Entry, Ledger, disk_of
from waybill.apps.ingest.settings import Room


class Plate:
    """A disk that a test fills."""

    def __init__(self, total: int, free: int) -> None:
        self.total, self.free = total, free

    def __call__(self, root: Path) -> Disk:
        return Disk(self.total, self.free)


def ledger(root: Path, plate: Plate, **more: object) -> Ledger:
    chosen: dict[str, object] = {"keep_free": 0, "unknown": 500, "every": 30.0, "patience": 3600.0, **more}
    return Ledger(root, Room(**chosen), plate)  # type: ignore[arg-type]


def test_what_admitted_jobs_still_need_is_not_free_for_others(tmp_path: Path) -> None:
    plate = Plate(10_000, 1000)
    room = ledger(tmp_path, plate)
    assert room.admit("a", 600, 0.0).granted
    second = room.admit("b", 500, 0.0)
    assert (second.granted, second.missing, second.never) == (False, 100, False)
    assert second.reason == "It waits for room: it needs 500 bytes, and 400 are free for it."
    assert room.admit("c", 400, 0.0).granted
    room.leave("a")
    assert room.admit("b", 500, 1.0).granted


def test_what_lies_on_the_disk_is_counted_once(tmp_path: Path) -> None:
    plate = Plate(10_000, 1000)
    room = ledger(tmp_path, plate)
    assert room.admit("a", 600, 0.0).granted
    plate.free -= 600  # all of it has come
    assert not room.admit("b", 400, 0.0).granted
    assert room.update("a", 600, 0.0)
    assert room.admit("b", 400, 0.0).granted


def test_asking_twice_is_asking_once(tmp_path: Path) -> None:
    room = ledger(tmp_path, Plate(10_000, 1000))
    assert room.admit("a", 800, 0.0).granted
    assert room.admit("a", 800, 5.0).granted
    assert room.entries() == [Entry("a", need=800)]


def test_asking_for_more_takes_only_the_difference(tmp_path: Path) -> None:
    plate = Plate(10_000, 1000)
    room = ledger(tmp_path, plate)
    assert room.admit("a", 400, 0.0).granted
    assert room.admit("a", 1000, 0.0).granted
    assert not room.admit("a", 1001, 0.0).granted
    assert room.admit("a", 1001, 0.0, have=1).granted


def test_some_bytes_are_kept_free_from_all(tmp_path: Path) -> None:
    room = ledger(tmp_path, Plate(10_000, 1000), keep_free=300)
    assert not room.admit("a", 701, 0.0).granted
    assert room.admit("a", 700, 0.0).granted


def test_an_unknown_size_waits_below_the_threshold(tmp_path: Path) -> None:
    plate = Plate(10_000, 499)
    room = ledger(tmp_path, plate)
    assert "not known" in room.admit("a", None, 0.0).reason
    plate.free = 500
    assert room.admit("a", None, 0.0).granted


def test_a_disk_that_is_too_full_refuses_even_nothing_and_goes_on_refusing(tmp_path: Path) -> None:
    room = ledger(tmp_path, Plate(10_000, 10), keep_free=100, unknown=0)
    assert [room.admit("a", None, 0.0).granted for _ in range(3)] == [False, False, False]


def test_who_has_waited_long_gets_the_next_room(tmp_path: Path) -> None:
    plate = Plate(10_000, 100)
    room = ledger(tmp_path, plate, patience=60.0)
    assert not room.admit("large", 900, 0.0).granted
    assert room.admit("small", 100, 30.0).granted  # it may overtake, as long as nobody is out of patience
    room.leave("small")
    plate.free = 500
    assert not room.admit("later", 100, 61.0).granted
    plate.free = 1000
    assert room.admit("later", 100, 62.0).granted  # enough is left for the large one
    assert room.admit("large", 900, 63.0).granted


def test_of_two_that_waited_long_the_older_is_first(tmp_path: Path) -> None:
    plate = Plate(10_000, 100)
    room = ledger(tmp_path, plate, patience=60.0)
    assert not room.admit("first", 900, 0.0).granted
    assert not room.admit("second", 800, 1.0).granted
    plate.free = 950
    assert not room.admit("second", 800, 100.0).granted
    assert room.admit("first", 900, 101.0).granted


def test_what_can_never_fit_says_so_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    room = ledger(tmp_path, Plate(10_000, 5000), keep_free=1000, patience=60.0)
    answer = room.admit("giant", 9001, 0.0)
    assert (answer.granted, answer.never) == (False, True)
    assert (
        answer.reason
        == "It can never fit: it needs 9,001 bytes, and the working disk has 9,000 at most. Give it a larger disk."
    )
    assert room.admit("other", 4000, 100.0).granted


def test_more_than_was_granted_is_taken_as_long_as_there_is_room(tmp_path: Path) -> None:
    plate = Plate(10_000, 1000)
    room = ledger(tmp_path, plate)
    assert room.admit("a", 100, 0.0).granted
    plate.free = 400
    assert room.update("a", 600, 0.0)
    plate.free = 0
    assert not room.update("a", 1000, 0.0)


def test_what_is_given_back_is_free_and_its_owner_keeps_his_place(tmp_path: Path) -> None:
    plate = Plate(10_000, 500)
    room = ledger(tmp_path, plate, patience=60.0)
    assert room.admit("a", 400, 0.0).granted
    assert room.admit("a", 900, 10.0).since == 10.0
    room.give_back("a")
    assert room.entries() == [Entry("a", wants=900, since=10.0)]
    plate.free = 1000
    assert not room.admit("b", 500, 100.0).granted
    assert room.admit("a", 900, 100.0).granted


def test_entries_of_jobs_that_need_no_room_are_swept_once_in_a_while(tmp_path: Path) -> None:
    room = ledger(tmp_path, Plate(10_000, 1000), every=30.0)
    room.admit("a", 600, 0.0)
    room.admit("b", 300, 0.0)
    asked: list[list[str]] = []

    def still(ids: Sequence[str]) -> set[str]:
        asked.append(list(ids))
        return {"b"}

    assert room.sweep(still, 0.0) == 1
    assert [entry.id for entry in room.entries()] == ["b"]
    assert ledger(tmp_path, Plate(10_000, 1000), every=30.0).sweep(still, 29.0) == 0  # another worker has just done it
    assert asked == [["a", "b"]]
    assert room.sweep(still, 30.0) == 0
    assert len(asked) == 2


def test_what_is_entered_during_a_sweep_stays(tmp_path: Path) -> None:
    room = ledger(tmp_path, Plate(10_000, 1000))
    room.admit("a", 600, 0.0)

    def still(ids: Sequence[str]) -> set[str]:
        room.admit("a", 700, 1.0)
        return set()

    assert room.sweep(still, 0.0) == 0
    assert room.entries() == [Entry("a", need=700)]


def test_the_hook_is_due_once_in_a_while_for_all_workers(tmp_path: Path) -> None:
    plate = Plate(10_000, 0)
    one, other = (ledger(tmp_path, plate, hook=("true",), hook_every=600.0) for _ in range(2))
    assert [one.hook_is_due(0.0), other.hook_is_due(1.0), other.hook_is_due(600.0), one.hook_is_due(601.0)] == [
        True,
        False,
        True,
        False,
    ]
    assert one.hook_is_due(5.0)  # the clock was set back
    assert not ledger(tmp_path, plate).hook_is_due(10_000.0)


def test_two_ledgers_of_one_root_see_each_other(tmp_path: Path) -> None:
    plate = Plate(10_000, 1000)
    one, other = ledger(tmp_path, plate), ledger(tmp_path, plate)
    assert one.admit("a", 600, 0.0).granted
    assert not other.admit("b", 600, 0.0).granted
    one.leave("a")
    assert other.admit("b", 600, 0.0).granted
    assert [entry.id for entry in one.entries()] == ["b"]


def test_the_file_does_not_grow_with_the_jobs_that_passed(tmp_path: Path) -> None:
    plate = Plate(10_000, 1000)
    one, other = ledger(tmp_path, plate, hook=("true",)), ledger(tmp_path, plate)
    one.admit("stays", 10, 0.0)
    one.hook_is_due(5.0)
    for number in range(2000):
        room = (one, other)[number % 2]
        assert room.admit(f"job{number}", 900, 0.0).granted
        room.leave(f"job{number}")
    assert (tmp_path / ".room" / "ledger").stat().st_size < 10_000
    fresh = ledger(tmp_path, plate, hook=("true",))
    assert fresh.entries() == [Entry("stays", need=10)]
    assert not fresh.hook_is_due(6.0)


def test_a_torn_line_is_passed_over_and_spoils_no_other(tmp_path: Path) -> None:
    plate = Plate(10_000, 1000)
    room = ledger(tmp_path, plate)
    room.admit("a", 600, 0.0)
    with open(tmp_path / ".room" / "ledger", "ab") as file:
        file.write(b'{"type":"job","id":"b","ne')
    assert [entry.id for entry in room.entries()] == [entry.id for entry in room.entries()] == ["a"]
    assert room.admit("c", 300, 0.0).granted
    for each in (room, ledger(tmp_path, plate)):
        assert each.entries() == [Entry("a", need=600), Entry("c", need=300)]


def no_more(place: object, data: bytes) -> int:
    """Of whatever writes to a full disk."""
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_cannot_take_another_line_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = ledger(tmp_path, Plate(10_000, 1000))
    assert room.admit("a", 600, 0.0).granted
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "_write", no_more)
        assert room.admit("b", 100, 0.0).reason == "It waits for room: the working disk is full."
        room.leave("a")
        assert room.sweep(lambda ids: [], 0.0) == 0
        room.give_back("a")
    assert room.entries() == [Entry("a", need=600)]  # nothing is believed that is not written
    assert room.admit("b", 100, 0.0).granted


def test_a_disk_that_is_too_full_for_a_note_has_the_hook_run_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "_write", no_more)
    room = ledger(tmp_path, Plate(10_000, 0), hook=("more",), hook_every=60.0)
    assert [room.hook_is_due(now) for now in (0.0, 59.0, 60.0, 61.0)] == [True, False, True, False]


def test_a_ledger_that_cannot_be_written_anew_is_taken_in_again_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = ledger(tmp_path, Plate(10_000, 1000))
    assert room.admit("a", 600, 0.0).granted

    with monkeypatch.context() as patch:
        patch.setattr("waybill.apps.ingest.room._LINES", -100)
        patch.setattr(Path, "write_bytes", no_more)
        assert not room.admit("b", 100, 0.0).granted
    assert room.entries() == [Entry("a", need=600)]


def test_a_file_that_another_put_in_its_place_is_noticed_whatever_its_inode(tmp_path: Path) -> None:
    plate = Plate(10_000, 1000)
    one, other = ledger(tmp_path, plate), ledger(tmp_path, plate)
    one.admit("a", 10, 0.0)
    for number in range(3):
        for round in range(200):  # written anew more than once
            other.admit(f"{number}-{round}", 10, 0.0)
            other.leave(f"{number}-{round}")
        assert one.entries() == other.entries() == [Entry("a", need=10)]


def test_a_ledger_that_was_removed_begins_anew(tmp_path: Path) -> None:
    room = ledger(tmp_path, Plate(10_000, 1000))
    room.admit("a", 600, 0.0)
    os.unlink(tmp_path / ".room" / "ledger")
    assert room.admit("b", 900, 0.0).granted
    assert [entry.id for entry in room.entries()] == ["b"]


def test_a_lock_that_was_removed_is_made_again_for_all(tmp_path: Path) -> None:
    first, second = ledger(tmp_path, Plate(10_000, 1000)), ledger(tmp_path, Plate(10_000, 1000))
    assert first.admit("a", 600, 0.0).granted
    shutil.rmtree(tmp_path / ".room")
    assert second.admit("b", 600, 0.0).granted
    assert not first.admit("c", 600, 0.0).granted, "both look at the ledger that is there"
    with open(tmp_path / ".room" / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waits = threading.Thread(target=first.leave, args=("b",))
        waits.start()
        waits.join(0.2)
        assert waits.is_alive(), "the lock is that of the new file"
    waits.join()
    assert first.entries() == second.entries()


@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from([b'{"type":"job","id":"x","need":-5}', b'{"type":"job","id":1}', b"{}", b"\n"])
    )
)
@settings(max_examples=60, deadline=None)
def test_whatever_lies_in_the_file_nothing_is_overbooked(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    root = tmp_path_factory.mktemp("room")
    (root / ".room").mkdir()
    (root / ".room" / "ledger").write_bytes(b"\n".join(lines))
    room = ledger(root, Plate(10_000, 1000))
    granted = [name for name in ("a", "b", "c") if room.admit(name, 400, 0.0).granted]
    assert granted == ["a", "b"]
    assert all(entry.need >= 0 for entry in ledger(root, Plate(10_000, 1000)).entries())


def test_others_are_locked_out_while_it_is_reckoned(tmp_path: Path) -> None:
    class Watched(Plate):
        locked = 0

        def __call__(self, root: Path) -> Disk:
            with open(root / ".room" / "lock", "ab") as lock, suppress(BlockingIOError):
                self.locked += 1
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.locked -= 1
            return super().__call__(root)

    plate = Watched(10_000, 1000)
    assert ledger(tmp_path, plate).admit("a", 10, 0.0).granted
    assert plate.locked == 1


def _ask_for_all(root: Path, name: str) -> int:
    room = ledger(root, Plate(10**9, 1000))
    return sum(room.admit(f"{name}-{number}", 10, 0.0).granted for number in range(60))


def test_processes_at_the_same_time_never_grant_more_than_there_is(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        granted = pool.starmap(_ask_for_all, [(tmp_path, name) for name in "abc"])
    assert sum(granted) == 100


def test_the_real_disk(tmp_path: Path) -> None:
    found = disk_of(tmp_path)
    assert 0 < found.free <= found.total


def test_what_goes_beyond_the_grant_is_granted_bit_by_bit_and_not_out_of_what_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "portion", 300)
    plate = Plate(6400, 2000)  # of which a hundred may be on their way
    room = ledger(tmp_path, plate, keep_free=500)
    assert room.admit("a", 100, 0.0).granted
    assert room.admit("b", 800, 0.0).granted
    plate.free -= 150
    assert room.update("a", 150, 0.0) == 450
    assert room.entries()[-1] == Entry("a", need=450, have=150)
    plate.free -= 300
    assert room.update("a", 450, 0.0) == 450, "all that was granted has come"
    assert room.update("a", 451, 0.0) == 451 + 150
    plate.free -= 150
    assert room.update("a", 602, 0.0) is None, "the rest is the other's"
    assert room.update("b", 1, 0.0) == 301, "who has it still"
    plate.free = 599
    assert room.update("b", 2, 0.0) is None, "unless strangers fill the disk"


def test_nobody_grows_into_the_room_of_one_that_has_waited_long(tmp_path: Path) -> None:
    plate = Plate(6400, 1000)
    room = ledger(tmp_path, plate, patience=60.0)
    assert room.admit("grows", 200, 0.0).granted
    assert not room.admit("old", 900, 0.0).granted
    plate.free -= 201
    assert room.update("grows", 201, 1.0) == 900
    plate.free -= 100
    room.give_back("grows")
    assert room.update("grows", 301, 61.0) is None


def test_nobody_is_made_to_wait_for_one_that_has_outgrown_what_was_said(tmp_path: Path) -> None:
    plate = Plate(10_000, 500)
    room = ledger(tmp_path, plate, patience=60.0)
    assert room.admit("a", 400, 0.0).granted
    room.withdraw("a", 800, 1.0, outgrown=True)
    assert not room.admit("a", 800, 70.0).granted
    assert room.entries() == [Entry("a", wants=800, since=1.0, outgrown=True)]
    assert room.admit("b", 500, 100.0).granted
    room.leave("b")
    plate.free = 800
    assert room.admit("a", 800, 100.0).granted
    assert room.entries() == [Entry("a", need=800)]
