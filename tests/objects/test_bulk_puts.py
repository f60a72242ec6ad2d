"""Several small objects put at once: each as `put` would, read back, with few syncs; the same where a store can only
put one by one.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.storage.tripwire import Tripwire
from tests.objects.dying import contents, die_at
from waybill.objects import (
    DirectoryObjects,
    ObjectExists,
    ObjectPut,
    ObjectRequestRefused,
    Objects,
    PreconditionFailed,
    put_several,
)


@pytest.fixture(params=["together", "one by one"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Objects]:
    with DirectoryObjects(tmp_path / "o", fsync=False) as directory:
        yield directory if request.param == "together" else Tripwire(directory, lambda moment: None)  # type: ignore[misc]


def test_all_of_them_are_there(objects: Objects) -> None:
    objects.put("a/2", b"before")
    puts = [
        ObjectPut("a/1", b"one"),
        ObjectPut("a/2", b"two"),
        ObjectPut("b/c/d", b""),
        ObjectPut("b/c", b"a name that is also a prefix"),
        ObjectPut("x", b"top"),
    ]
    assert put_several(objects, puts) == []
    assert contents(objects) == {put.name: put.data for put in puts}
    assert put_several(objects, []) == []


def test_conditions_hold_and_stop_it_there(objects: Objects) -> None:
    etag = objects.put("known", b"1").etag
    assert put_several(objects, [ObjectPut("new", b"x", if_absent=True), ObjectPut("known", b"2", if_match=etag)]) == []
    with pytest.raises(ObjectExists):
        put_several(
            objects, [ObjectPut("first", b"1"), ObjectPut("new", b"y", if_absent=True), ObjectPut("last", b"1")]
        )
    with pytest.raises(PreconditionFailed):
        put_several(objects, [ObjectPut("known", b"3", if_match=etag), ObjectPut("last", b"1")])
    assert contents(objects) == {"first": b"1", "new": b"x", "known": b"2"}
    with pytest.raises(ObjectRequestRefused):
        put_several(objects, [ObjectPut("../x", b"")])


def test_nothing_unfinished_is_left_by_one_that_is_refused(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        objects.put("new", b"x")
        with pytest.raises(ObjectExists):
            put_several(objects, [ObjectPut("a", b"1"), ObjectPut("new", b"y", if_absent=True), ObjectPut("b", b"1")])
    assert os.listdir(tmp_path / ".waybill" / "tmp") == []


def test_what_is_replaced_or_removed_meanwhile_is_answered(tmp_path: Path) -> None:
    other = DirectoryObjects(tmp_path, fsync=False)

    def meddle(point: str) -> None:
        if point == "published":
            other.put("a/1", b"theirs")
            other.delete("a/2")

    with other, DirectoryObjects(tmp_path, fsync=False, on_side_effect=meddle) as objects:
        puts = [ObjectPut("a/1", b"ours"), ObjectPut("a/2", b"ours"), ObjectPut("a/3", b"ours")]
        assert put_several(objects, puts) == puts[:2]


def test_a_folder_that_goes_meanwhile_is_made_again(tmp_path: Path) -> None:
    other = DirectoryObjects(tmp_path, fsync=False)
    left = [1]

    def meddle(point: str) -> None:
        if point == "folder made" and left.pop() if left else False:
            os.rmdir(tmp_path / "a")

    with other, DirectoryObjects(tmp_path, fsync=False, on_side_effect=meddle) as objects:
        assert put_several(objects, [ObjectPut("a/1", b"1"), ObjectPut("a/2", b"2")]) == []
        assert contents(objects) == {"a/1": b"1", "a/2": b"2"}


def test_each_folder_is_synced_once_and_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DirectoryObjects(tmp_path) as objects:
        synced: list[str] = []
        fsync = os.fsync

        def noted(fd: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(tmp_path)))
            fsync(fd)

        monkeypatch.setattr(os, "fsync", noted)
        put_several(objects, [ObjectPut("a/b/1", b"1"), ObjectPut("a/b/2", b"2"), ObjectPut("a/3", b"3")])
        files = [name for name in synced if name.startswith("/.waybill/tmp/")]
        assert len(files) == 3
        assert synced[:3] == files  # the bytes first, then the names
        assert sorted(synced[3:]) == ["", "/a", "/a/b"]
        synced.clear()
        put_several(objects, [ObjectPut("a/b/1", b"1")])
        assert synced[1:] == ["/a/b"]  # the folders above are known to be durable


def test_a_crash_anywhere_leaves_each_as_it_was_or_as_it_is_to_be(tmp_path: Path) -> None:
    puts = [ObjectPut("a/1", b"new", if_absent=True), ObjectPut("b/2", b"new")]
    seen = set()
    for number in itertools.count(1):
        root = tmp_path / str(number)
        with DirectoryObjects(root, fsync=False) as objects:
            objects.put("b/2", b"old")
        finished, _ = die_at(root, number, lambda objects: put_several(objects, puts))
        with DirectoryObjects(root, fsync=False) as objects:
            found = contents(objects)
            assert found.get("a/1", b"new") == b"new"
            assert found["b/2"] in (b"old", b"new")
            seen.add((len(found), found["b/2"]))
            objects.sweep(-1)
            assert os.listdir(root / ".waybill" / "tmp") == []
            puts_again = [put._replace(if_absent=False) for put in puts] if "a/1" in found else puts
            assert put_several(objects, puts_again) == []
            assert contents(objects) == {"a/1": b"new", "b/2": b"new"}
        if finished:
            break
    assert seen == {(1, b"old"), (2, b"old"), (2, b"new")}
