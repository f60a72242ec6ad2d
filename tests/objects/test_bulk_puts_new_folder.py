"""A new folder with all that is in it: there at once or not at all, whatever crashes, and never in the place of
anything.
"""

import errno
import itertools
import os
import threading
from pathlib import Path

import pytest

from tests.objects.dying import contents, die_at
from waybill.objects import DirectoryObjects, ObjectPut, ObjectRequestRefused, can_put_new_folder, put_new_folder
from waybill.objects import directory_folders as below
from waybill.sim.memory_objects import MemoryObjects

PUTS = [
    ObjectPut("a/b/v1/content/1", b"one"),
    ObjectPut("a/b/v1/inventory", b"two"),
    ObjectPut("a/b/inventory", b""),
    ObjectPut("a/b/%", b"odd"),
]
WHOLE = {put.name: put.data for put in PUTS}


def unfinished(root: Path) -> list[str]:
    return os.listdir(root / ".waybill" / "tmp")


def test_all_of_it_is_there(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        assert can_put_new_folder(objects)
        assert put_new_folder(objects, "a/b", PUTS)
        assert contents(objects) == WHOLE
        assert objects.head("a/b/v1/inventory").sha256 is not None
        assert unfinished(tmp_path) == []
        objects.put("a/b/v1/content/1", b"replaced")
        objects.put("a/b/more", b"x")
        assert contents(objects) == {**WHOLE, "a/b/v1/content/1": b"replaced", "a/b/more": b"x"}


@pytest.mark.parametrize("there", ["a/b/other", "a/b", "a/b/v1"])
def test_what_is_there_stays_and_nothing_is_added(tmp_path: Path, there: str) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        objects.put(there, b"theirs")
        assert not put_new_folder(objects, "a/b", PUTS)
        assert contents(objects) == {there: b"theirs"}
    assert unfinished(tmp_path) == []


def test_an_empty_folder_is_in_the_way_too(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        (tmp_path / "a" / "b").mkdir(parents=True)
        assert not put_new_folder(objects, "a/b", PUTS)
        assert contents(objects) == {}


def test_a_file_above_it_moves_aside(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        objects.put("a", b"an object and a prefix")
        assert put_new_folder(objects, "a/b", PUTS)
        assert contents(objects) == {"a": b"an object and a prefix", **WHOLE}


def test_names_that_are_prefixes_of_each_other_are_left_to_others(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        assert not put_new_folder(objects, "a", [ObjectPut("a/b", b"1"), ObjectPut("a/b/c", b"2")])
        assert not put_new_folder(objects, "a", [ObjectPut("a/b", b"1"), ObjectPut("a/b", b"2")])
        with pytest.raises(ObjectRequestRefused):
            put_new_folder(objects, "a", [ObjectPut("b/c", b"elsewhere")])
        with pytest.raises(ObjectRequestRefused):
            put_new_folder(objects, "a", [ObjectPut("a/../b", b"outside")])
        assert contents(objects) == {}
    assert unfinished(tmp_path) == []


def test_a_link_on_the_way_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with DirectoryObjects(tmp_path / "o", fsync=False) as objects:
        (tmp_path / "o" / "a").symlink_to(outside)
        with pytest.raises(ObjectRequestRefused):
            put_new_folder(objects, "a/b", PUTS)
    assert os.listdir(outside) == []
    assert unfinished(tmp_path / "o") == []


def test_a_crash_anywhere_leaves_nothing_or_all(tmp_path: Path) -> None:
    seen = []
    for number in itertools.count(1):
        root = tmp_path / str(number)
        finished, point = die_at(root, number, lambda objects: put_new_folder(objects, "a/b", PUTS))
        with DirectoryObjects(root, fsync=False) as objects:
            found = contents(objects)
            assert found in ({}, WHOLE), f"died at {point!r}"
            seen.append(bool(found))
            objects.sweep(-1)
            assert unfinished(root) == [], f"died at {point!r}"
            assert contents(objects) == found
            assert put_new_folder(objects, "a/b", PUTS) is not bool(found)
            assert contents(objects) == WHOLE
        if finished:
            break
    assert seen == sorted(seen)
    assert len(set(seen)) == 2


def test_everything_is_durable_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, below._renameat2
    assert rename is not None

    def synced(fd: int) -> None:
        events.append(os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(tmp_path)))
        fsync(fd)

    def renamed(*arguments: object) -> object:
        events.append("renamed")
        return rename(*arguments)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(below, "_renameat2", renamed)
    with DirectoryObjects(tmp_path) as objects:
        events.clear()
        assert put_new_folder(objects, "a/b", PUTS)
    first, after = events[: events.index("renamed")], events[events.index("renamed") + 1 :]
    inside = {name.partition("/tmp/")[2].partition("/")[2] for name in first}
    assert inside == {"", "v1", "v1/content", "v1/content/1", "v1/inventory", "inventory", "%25"}
    assert sorted(after) == ["", "/a"]


def test_of_two_at_once_one_is_first(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        won: list[bool] = []
        together = threading.Barrier(8)

        def run(number: int) -> None:
            together.wait()
            won.append(
                put_new_folder(
                    objects,
                    "x/y",
                    [ObjectPut("x/y/who", str(number).encode()), ObjectPut("x/y/z/who", str(number).encode())],
                )
            )

        threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == [False] * 7 + [True]
        found = contents(objects)
        assert found["x/y/who"] == found["x/y/z/who"]
    assert unfinished(tmp_path) == []


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        monkeypatch.setattr(
            "waybill.objects.bulk_puts.write_all", lambda fd, data: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full"))
        )
        with pytest.raises(Exception, match="no space left"):
            put_new_folder(objects, "a/b", PUTS)
        assert contents(objects) == {}
    assert unfinished(tmp_path) == []


def test_a_file_that_reads_back_otherwise_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        monkeypatch.setattr(os, "pread", lambda fd, size, at: b"rot")
        assert not put_new_folder(objects, "a/b", PUTS)
        monkeypatch.undo()
        assert contents(objects) == {}


def test_where_there_is_no_such_rename_it_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(below, "_renameat2", None)
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        assert not put_new_folder(objects, "a/b", PUTS)
        assert contents(objects) == {}
    memory = MemoryObjects(lambda: 0.0, lambda point: None)
    assert not can_put_new_folder(memory)
    assert not put_new_folder(memory, "a/b", PUTS)


def test_a_sweep_leaves_alone_what_is_being_written(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as other:
        swept: list[int] = []
        with DirectoryObjects(
            tmp_path, fsync=False, on_side_effect=lambda point: swept.append(other.sweep(older_than=-60).files)
        ) as objects:
            swept.clear()
            assert put_new_folder(objects, "a/b", PUTS)
        assert len(swept) > 5
        assert set(swept) == {0}
        assert contents(other) == WHOLE
