"""Reservations: which are granted, which wait, and that several processes agree."""

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

from tests.disk_space.fake_disk import FakeDisk
from waybill.disk_space.locked_log import LockedLog
from waybill.disk_space.reservations import (
    DiskSpaceSettings,
    DiskUsage,
    SpaceReservation,
    SpaceReservations,
    measure_disk,
)


def make_reservations(root: Path, disk: FakeDisk, **more: object) -> SpaceReservations:
    chosen: dict[str, object] = {
        "keep_free": 0,
        "unknown_size_bytes": 500,
        "poll_interval": 30.0,
        "patience": 3600.0,
        **more,
    }
    return SpaceReservations(root, DiskSpaceSettings(**chosen), disk)  # type: ignore[arg-type]


def test_what_admitted_jobs_still_need_is_not_free_for_others(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 1000)
    reservations = make_reservations(tmp_path, disk)
    assert reservations.reserve("a", 600, 0.0).granted
    second = reservations.reserve("b", 500, 0.0)
    assert (second.granted, second.missing_bytes, second.never_fits) == (False, 100, False)
    assert second.reason == "It waits for disk space: it needs 500 bytes, and 400 are free for it."
    assert reservations.reserve("c", 400, 0.0).granted
    reservations.remove("a")
    assert reservations.reserve("b", 500, 1.0).granted


def test_what_lies_on_the_disk_is_counted_once(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 1000)
    reservations = make_reservations(tmp_path, disk)
    assert reservations.reserve("a", 600, 0.0).granted
    disk.free -= 600  # all of it has come
    assert not reservations.reserve("b", 400, 0.0).granted
    assert reservations.report_usage("a", 600, 0.0)
    assert reservations.reserve("b", 400, 0.0).granted


def test_asking_twice_is_asking_once(tmp_path: Path) -> None:
    reservations = make_reservations(tmp_path, FakeDisk(10_000, 1000))
    assert reservations.reserve("a", 800, 0.0).granted
    assert reservations.reserve("a", 800, 5.0).granted
    assert reservations.list_reservations() == [SpaceReservation("a", granted=800)]


def test_asking_for_more_takes_only_the_difference(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 1000)
    reservations = make_reservations(tmp_path, disk)
    assert reservations.reserve("a", 400, 0.0).granted
    assert reservations.reserve("a", 1000, 0.0).granted
    assert not reservations.reserve("a", 1001, 0.0).granted
    assert reservations.reserve("a", 1001, 0.0, have=1).granted


def test_some_bytes_are_kept_free_from_all(tmp_path: Path) -> None:
    reservations = make_reservations(tmp_path, FakeDisk(10_000, 1000), keep_free=300)
    assert not reservations.reserve("a", 701, 0.0).granted
    assert reservations.reserve("a", 700, 0.0).granted


def test_an_unknown_size_waits_below_the_threshold(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 499)
    reservations = make_reservations(tmp_path, disk)
    assert "not known" in reservations.reserve("a", None, 0.0).reason
    disk.free = 500
    assert reservations.reserve("a", None, 0.0).granted


def test_a_disk_that_is_too_full_refuses_even_nothing_and_goes_on_refusing(tmp_path: Path) -> None:
    reservations = make_reservations(tmp_path, FakeDisk(10_000, 10), keep_free=100, unknown_size_bytes=0)
    assert [reservations.reserve("a", None, 0.0).granted for _ in range(3)] == [False, False, False]


def test_a_job_that_has_waited_long_gets_the_next_space(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 100)
    reservations = make_reservations(tmp_path, disk, patience=60.0)
    assert not reservations.reserve("large", 900, 0.0).granted
    assert reservations.reserve("small", 100, 30.0).granted  # it may overtake, as long as nobody is out of patience
    reservations.remove("small")
    disk.free = 500
    assert not reservations.reserve("later", 100, 61.0).granted
    disk.free = 1000
    assert reservations.reserve("later", 100, 62.0).granted  # enough is left for the large one
    assert reservations.reserve("large", 900, 63.0).granted


def test_of_two_that_waited_long_the_older_is_first(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 100)
    reservations = make_reservations(tmp_path, disk, patience=60.0)
    assert not reservations.reserve("first", 900, 0.0).granted
    assert not reservations.reserve("second", 800, 1.0).granted
    disk.free = 950
    assert not reservations.reserve("second", 800, 100.0).granted
    assert reservations.reserve("first", 900, 101.0).granted


def test_what_can_never_fit_says_so_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    reservations = make_reservations(tmp_path, FakeDisk(10_000, 5000), keep_free=1000, patience=60.0)
    answer = reservations.reserve("giant", 9001, 0.0)
    assert (answer.granted, answer.never_fits) == (False, True)
    assert (
        answer.reason
        == "It can never fit: it needs 9,001 bytes, and the working disk has 9,000 at most. Give it a larger disk."
    )
    assert reservations.reserve("other", 4000, 100.0).granted


def test_a_job_may_exceed_its_grant_while_there_is_space(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 1000)
    reservations = make_reservations(tmp_path, disk)
    assert reservations.reserve("a", 100, 0.0).granted
    disk.free = 400
    assert reservations.report_usage("a", 600, 0.0)
    disk.free = 0
    assert not reservations.report_usage("a", 1000, 0.0)


def test_what_is_given_back_is_free_and_its_owner_keeps_his_place(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 500)
    reservations = make_reservations(tmp_path, disk, patience=60.0)
    assert reservations.reserve("a", 400, 0.0).granted
    assert reservations.reserve("a", 900, 10.0).waiting_since == 10.0
    reservations.release_granted("a")
    assert reservations.list_reservations() == [SpaceReservation("a", requested=900, waiting_since=10.0)]
    disk.free = 1000
    assert not reservations.reserve("b", 500, 100.0).granted
    assert reservations.reserve("a", 900, 100.0).granted


def test_stale_reservations_are_removed_at_intervals(tmp_path: Path) -> None:
    reservations = make_reservations(tmp_path, FakeDisk(10_000, 1000), poll_interval=30.0)
    reservations.reserve("a", 600, 0.0)
    reservations.reserve("b", 300, 0.0)
    asked: list[list[str]] = []

    def still(ids: Sequence[str]) -> set[str]:
        asked.append(list(ids))
        return {"b"}

    assert reservations.remove_stale(still, 0.0) == 1
    assert [entry.id for entry in reservations.list_reservations()] == ["b"]
    assert (
        make_reservations(tmp_path, FakeDisk(10_000, 1000), poll_interval=30.0).remove_stale(still, 29.0) == 0
    )  # another worker has just done it
    assert asked == [["a", "b"]]
    assert reservations.remove_stale(still, 30.0) == 0
    assert len(asked) == 2


def test_what_is_entered_during_a_sweep_stays(tmp_path: Path) -> None:
    reservations = make_reservations(tmp_path, FakeDisk(10_000, 1000))
    reservations.reserve("a", 600, 0.0)

    def still(ids: Sequence[str]) -> set[str]:
        reservations.reserve("a", 700, 1.0)
        return set()

    assert reservations.remove_stale(still, 0.0) == 0
    assert reservations.list_reservations() == [SpaceReservation("a", granted=700)]


def test_the_hook_is_due_once_in_a_while_for_all_workers(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 0)
    one, other = (make_reservations(tmp_path, disk, hook=("true",), hook_interval=600.0) for _ in range(2))
    assert [
        one.claim_hook_run(0.0),
        other.claim_hook_run(1.0),
        other.claim_hook_run(600.0),
        one.claim_hook_run(601.0),
    ] == [True, False, True, False]
    assert one.claim_hook_run(5.0)  # the clock was set back
    assert not make_reservations(tmp_path, disk).claim_hook_run(10_000.0)


def test_two_processes_on_one_root_see_each_others_reservations(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 1000)
    one, other = make_reservations(tmp_path, disk), make_reservations(tmp_path, disk)
    assert one.reserve("a", 600, 0.0).granted
    assert not other.reserve("b", 600, 0.0).granted
    one.remove("a")
    assert other.reserve("b", 600, 0.0).granted
    assert [entry.id for entry in one.list_reservations()] == ["b"]


def test_the_file_does_not_grow_with_the_jobs_that_passed(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 1000)
    one, other = make_reservations(tmp_path, disk, hook=("true",)), make_reservations(tmp_path, disk)
    one.reserve("stays", 10, 0.0)
    one.claim_hook_run(5.0)
    for number in range(2000):
        reservations = (one, other)[number % 2]
        assert reservations.reserve(f"job{number}", 900, 0.0).granted
        reservations.remove(f"job{number}")
    assert (tmp_path / ".disk_space" / "reservations").stat().st_size < 10_000
    fresh = make_reservations(tmp_path, disk, hook=("true",))
    assert fresh.list_reservations() == [SpaceReservation("stays", granted=10)]
    assert not fresh.claim_hook_run(6.0)


def test_a_torn_line_is_passed_over_and_spoils_no_other(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 1000)
    reservations = make_reservations(tmp_path, disk)
    reservations.reserve("a", 600, 0.0)
    with open(tmp_path / ".disk_space" / "reservations", "ab") as file:
        file.write(b'{"type":"reservation","id":"b","ne')
    assert (
        [entry.id for entry in reservations.list_reservations()]
        == [entry.id for entry in reservations.list_reservations()]
        == ["a"]
    )
    assert reservations.reserve("c", 300, 0.0).granted
    for each in (reservations, make_reservations(tmp_path, disk)):
        assert each.list_reservations() == [SpaceReservation("a", granted=600), SpaceReservation("c", granted=300)]


def no_more(place: object, data: bytes) -> int:
    """Of whatever writes to a full disk."""
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_cannot_take_another_line_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reservations = make_reservations(tmp_path, FakeDisk(10_000, 1000))
    assert reservations.reserve("a", 600, 0.0).granted
    with monkeypatch.context() as patch:
        patch.setattr(LockedLog, "_write", no_more)
        assert reservations.reserve("b", 100, 0.0).reason == "It waits for disk space: the working disk is full."
        reservations.remove("a")
        assert reservations.remove_stale(lambda ids: [], 0.0) == 0
        reservations.release_granted("a")
    assert reservations.list_reservations() == [
        SpaceReservation("a", granted=600)
    ]  # nothing is believed that is not written
    assert reservations.reserve("b", 100, 0.0).granted


def test_a_disk_that_is_too_full_for_a_note_has_the_hook_run_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LockedLog, "_write", no_more)
    reservations = make_reservations(tmp_path, FakeDisk(10_000, 0), hook=("more",), hook_interval=60.0)
    assert [reservations.claim_hook_run(now) for now in (0.0, 59.0, 60.0, 61.0)] == [True, False, True, False]


def test_a_log_that_cannot_be_rewritten_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reservations = make_reservations(tmp_path, FakeDisk(10_000, 1000))
    assert reservations.reserve("a", 600, 0.0).granted

    with monkeypatch.context() as patch:
        patch.setattr("waybill.disk_space.reservations._MIN_LOG_LINES", -100)
        patch.setattr(Path, "write_bytes", no_more)
        assert not reservations.reserve("b", 100, 0.0).granted
    assert reservations.list_reservations() == [SpaceReservation("a", granted=600)]


def test_a_file_that_another_put_in_its_place_is_noticed_whatever_its_inode(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 1000)
    one, other = make_reservations(tmp_path, disk), make_reservations(tmp_path, disk)
    one.reserve("a", 10, 0.0)
    for number in range(3):
        for round in range(200):  # written anew more than once
            other.reserve(f"{number}-{round}", 10, 0.0)
            other.remove(f"{number}-{round}")
        assert one.list_reservations() == other.list_reservations() == [SpaceReservation("a", granted=10)]


def test_a_removed_log_starts_empty(tmp_path: Path) -> None:
    reservations = make_reservations(tmp_path, FakeDisk(10_000, 1000))
    reservations.reserve("a", 600, 0.0)
    os.unlink(tmp_path / ".disk_space" / "reservations")
    assert reservations.reserve("b", 900, 0.0).granted
    assert [entry.id for entry in reservations.list_reservations()] == ["b"]


def test_a_lock_that_was_removed_is_made_again_for_all(tmp_path: Path) -> None:
    first, second = (
        make_reservations(tmp_path, FakeDisk(10_000, 1000)),
        make_reservations(tmp_path, FakeDisk(10_000, 1000)),
    )
    assert first.reserve("a", 600, 0.0).granted
    shutil.rmtree(tmp_path / ".disk_space")
    assert second.reserve("b", 600, 0.0).granted
    assert not first.reserve("c", 600, 0.0).granted, "both look at the ledger that is there"
    with open(tmp_path / ".disk_space" / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waits = threading.Thread(target=first.remove, args=("b",))
        waits.start()
        waits.join(0.2)
        assert waits.is_alive(), "the lock is that of the new file"
    waits.join()
    assert first.list_reservations() == second.list_reservations()


@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from(
            [b'{"type":"reservation","id":"x","need":-5}', b'{"type":"reservation","id":1}', b"{}", b"\n"]
        )
    )
)
@settings(max_examples=60, deadline=None)
def test_whatever_lies_in_the_file_nothing_is_overbooked(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    root = tmp_path_factory.mktemp("room")
    (root / ".disk_space").mkdir()
    (root / ".disk_space" / "reservations").write_bytes(b"\n".join(lines))
    reservations = make_reservations(root, FakeDisk(10_000, 1000))
    granted = [name for name in ("a", "b", "c") if reservations.reserve(name, 400, 0.0).granted]
    assert granted == ["a", "b"]
    assert all(entry.granted >= 0 for entry in make_reservations(root, FakeDisk(10_000, 1000)).list_reservations())


def test_others_are_locked_out_while_it_is_reckoned(tmp_path: Path) -> None:
    class Watched(FakeDisk):
        locked = 0

        def __call__(self, root: Path) -> DiskUsage:
            with open(root / ".disk_space" / "lock", "ab") as lock, suppress(BlockingIOError):
                self.locked += 1
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.locked -= 1
            return super().__call__(root)

    disk = Watched(10_000, 1000)
    assert make_reservations(tmp_path, disk).reserve("a", 10, 0.0).granted
    assert disk.locked == 1


def _ask_for_all(root: Path, name: str) -> int:
    reservations = make_reservations(root, FakeDisk(10**9, 1000))
    return sum(reservations.reserve(f"{name}-{number}", 10, 0.0).granted for number in range(60))


def test_processes_at_the_same_time_never_grant_more_than_there_is(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        granted = pool.starmap(_ask_for_all, [(tmp_path, name) for name in "abc"])
    assert sum(granted) == 100


def test_the_real_disk(tmp_path: Path) -> None:
    found = measure_disk(tmp_path)
    assert 0 < found.free <= found.total


def test_what_goes_beyond_the_grant_is_granted_bit_by_bit_and_not_out_of_what_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpaceReservations, "growth_chunk", 300)
    disk = FakeDisk(6400, 2000)  # of which a hundred may be on their way
    reservations = make_reservations(tmp_path, disk, keep_free=500)
    assert reservations.reserve("a", 100, 0.0).granted
    assert reservations.reserve("b", 800, 0.0).granted
    disk.free -= 150
    assert reservations.report_usage("a", 150, 0.0) == 450
    assert reservations.list_reservations()[-1] == SpaceReservation("a", granted=450, on_disk=150)
    disk.free -= 300
    assert reservations.report_usage("a", 450, 0.0) == 450, "all that was granted has come"
    assert reservations.report_usage("a", 451, 0.0) == 451 + 150
    disk.free -= 150
    assert reservations.report_usage("a", 602, 0.0) is None, "the rest is the other's"
    assert reservations.report_usage("b", 1, 0.0) == 301, "who has it still"
    disk.free = 599
    assert reservations.report_usage("b", 2, 0.0) is None, "unless strangers fill the disk"


def test_no_job_grows_into_the_space_of_one_that_has_waited_long(tmp_path: Path) -> None:
    disk = FakeDisk(6400, 1000)
    reservations = make_reservations(tmp_path, disk, patience=60.0)
    assert reservations.reserve("grows", 200, 0.0).granted
    assert not reservations.reserve("old", 900, 0.0).granted
    disk.free -= 201
    assert reservations.report_usage("grows", 201, 1.0) == 900
    disk.free -= 100
    reservations.release_granted("grows")
    assert reservations.report_usage("grows", 301, 61.0) is None


def test_no_job_waits_for_one_that_exceeds_its_estimate(tmp_path: Path) -> None:
    disk = FakeDisk(10_000, 500)
    reservations = make_reservations(tmp_path, disk, patience=60.0)
    assert reservations.reserve("a", 400, 0.0).granted
    reservations.withdraw("a", 800, 1.0, exceeds_estimate=True)
    assert not reservations.reserve("a", 800, 70.0).granted
    assert reservations.list_reservations() == [
        SpaceReservation("a", requested=800, waiting_since=1.0, exceeds_estimate=True)
    ]
    assert reservations.reserve("b", 500, 100.0).granted
    reservations.remove("b")
    disk.free = 800
    assert reservations.reserve("a", 800, 100.0).granted
    assert reservations.list_reservations() == [SpaceReservation("a", granted=800)]
