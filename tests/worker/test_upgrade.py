"""Two releases on one store, and working roots on several hosts."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.worker.yard import Yard
from waybill.record import BadStore, Change, Group
from waybill.step import New
from waybill.worker.roots import check_root


def test_B15_records_in_a_state_of_another_release_are_named_never_claimed_and_moved_by_hand(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    strange, known = yard.engine.submit(New("parcel")), yard.engine.submit(New("parcel"))
    yard.store.commit([Group((Change(strange, replace(strange, state="Folding"), "done"),))])
    with caplog.at_level(logging.WARNING, "waybill.worker"):
        yard.worker()
        yard.until_state(known, "Sent")
    assert "1 parcels are in Folding, which this release does not declare" in caplog.text
    assert yard.get(strange).state == "Folding"
    yard.engine.move(strange.ref, "Packing", who="op", why="upgrade")
    yard.until_state(strange, "Sent")


def test_B15_workers_write_their_tables_beside_their_session(yard: Yard) -> None:
    yard.worker()
    yard.until(lambda: yard.store.sessions(), "a session")
    (session,) = yard.store.sessions()
    assert session.about["tables"]["parcel"] == [yard.parcel.v, yard.parcel.digest()]
    assert session.host == "h1"


def test_a_shared_root_is_the_same_folder_for_all(yard: Yard, tmp_path: Path) -> None:
    check_root(yard.store, tmp_path / "shared", shared=True)
    check_root(yard.store, tmp_path / "shared", shared=True)
    check_root(yard.store, tmp_path / "own", shared=False)
    with pytest.raises(BadStore, match="is not the folder that the other workers share"):
        check_root(yard.store, tmp_path / "other", shared=True)


def test_a_root_that_cannot_be_used_says_so(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadStore, match=r"cannot be used: .*Set work.root to another folder"):
        check_root(yard.store, tmp_path / "file" / "root", shared=False)


def test_files_bind_a_record_to_its_host_unless_the_root_is_shared(yard: Yard) -> None:
    yard.store.mark("queue/parcel.Sending", True)
    bound, free = yard.engine.submit(New("parcel")), None
    first = yard.worker(host="h1")
    yard.until_state(bound, "Sending")
    assert yard.get(bound).host == "h1"
    yard.stop(first)
    free = yard.engine.submit(New("parcel"))
    second = yard.worker(host="h1", shared=True)
    yard.until_state(free, "Sending")
    assert yard.get(free).host == ""
    yard.stop(second)


def test_a_record_bound_to_another_host_is_left_to_it(yard: Yard) -> None:
    record = yard.engine.submit(New("parcel", host="elsewhere"))
    mine = yard.engine.submit(New("parcel", host="h1"))
    yard.worker(host="h1")
    yard.until_state(mine, "Sent")
    assert yard.get(record).state == "Packing"


def test_two_hosts_that_name_a_shared_root_at_the_same_moment_agree(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "shared"
    write = Path.write_text

    def interrupted(self: Path, text: str) -> int:
        monkeypatch.setattr(Path, "write_text", write)
        check_root(yard.store, root, shared=True)  # the other host, before anything is in our file
        return write(self, text)

    monkeypatch.setattr(Path, "write_text", interrupted)
    check_root(yard.store, root, shared=True)
    check_root(yard.store, root, shared=True)
    assert [path.name for path in root.iterdir()] == [".waybill-root"]


def test_a_root_whose_name_is_empty_is_refused_and_not_remembered(yard: Yard, tmp_path: Path) -> None:
    """As after a full disk: remembered, it would keep every worker from starting for good."""
    (tmp_path / ".waybill-root").touch()
    with pytest.raises(BadStore, match="is empty: remove it"):
        check_root(yard.store, tmp_path, shared=True)
    (tmp_path / ".waybill-root").unlink()
    check_root(yard.store, tmp_path, shared=True)
