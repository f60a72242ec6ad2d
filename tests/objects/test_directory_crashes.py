"""A process that dies at any point of any verb leaves the old object or the new one, and nothing that `sweep` does
not remove.
"""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.objects.dying import contents, die_at
from waybill.objects.directory import SIDE_EFFECTS, DirectoryObjects
from waybill.objects.protocol import MIN_PART_SIZE, ObjectNotFound

OLD, NEW = b"old" * 1000, b"new" * 50_000
LARGE = b"x" * MIN_PART_SIZE


def nothing(objects: DirectoryObjects) -> None:
    pass


def old(objects: DirectoryObjects) -> None:
    objects.put("a/b", OLD)


def put(objects: DirectoryObjects) -> None:
    objects.put("a/b", NEW)


def create(objects: DirectoryObjects) -> None:
    objects.put("a/b", NEW, if_absent=True)


def swap(objects: DirectoryObjects) -> None:
    objects.put("a/b", NEW, if_match=objects.head("a/b").etag)


def put_below(objects: DirectoryObjects) -> None:
    objects.put("a/b/c/d", NEW)


def delete(objects: DirectoryObjects) -> None:
    objects.delete("a/b")


def copy(objects: DirectoryObjects) -> None:
    objects.copy("a/b", "a/b/copy")


def upload(objects: DirectoryObjects) -> None:
    with objects.upload("a/b") as upload:
        upload.put_part(1, LARGE)
        upload.put_part(2, NEW)
        upload.complete()


def abort(objects: DirectoryObjects) -> None:
    with objects.upload("a/b") as upload:
        upload.put_part(1, LARGE)


Verb = Callable[[DirectoryObjects], None]
BEFORE: dict[str, bytes] = {}
WITH_OLD = {"a/b": OLD}

CASES: list[tuple[Verb, Verb, dict[str, bytes], dict[str, bytes]]] = [
    (nothing, put, BEFORE, {"a/b": NEW}),
    (nothing, create, BEFORE, {"a/b": NEW}),
    (old, put, WITH_OLD, {"a/b": NEW}),
    (old, swap, WITH_OLD, {"a/b": NEW}),
    (old, put_below, WITH_OLD, {"a/b": OLD, "a/b/c/d": NEW}),
    (old, delete, WITH_OLD, {}),
    (old, copy, WITH_OLD, {"a/b": OLD, "a/b/copy": OLD}),
    (old, upload, WITH_OLD, {"a/b": LARGE + NEW}),
    (old, abort, WITH_OLD, WITH_OLD),
]


def survivors(root: Path, part: str) -> list[str]:
    return os.listdir(root / ".waybill" / part)


@pytest.mark.parametrize(
    ("prepare", "verb", "before", "after"), CASES, ids=lambda value: getattr(value, "__name__", "")
)
def test_old_or_new(
    tmp_path: Path, prepare: Verb, verb: Verb, before: dict[str, bytes], after: dict[str, bytes]
) -> None:
    points = []
    for number in range(1, 100):
        root = tmp_path / str(number)
        with DirectoryObjects(root, fsync=False) as objects:
            prepare(objects)
        finished, point = die_at(root, number, verb)
        points.append(point)
        with DirectoryObjects(root, fsync=False) as objects:
            assert contents(objects) in (before, after), f"died at {point!r}"
            objects.sweep(older_than=-60)
            assert survivors(root, "tmp") == survivors(root, "uploads") == [], f"died at {point!r}"
            assert contents(objects) in (before, after), f"swept after {point!r}"
            if verb is not swap and not (verb in (create, delete, copy) and contents(objects) == after):
                verb(objects)  # what is done again succeeds
                assert contents(objects) == after
        if finished:
            assert contents_of(root) == after
            assert number > 3
            assert set(points) - {""} <= set(SIDE_EFFECTS)
            return
    raise AssertionError("It never came to an end.")


def contents_of(root: Path) -> dict[str, bytes]:
    with DirectoryObjects(root, fsync=False) as objects:
        return contents(objects)


def test_a_simulated_crash_cleans_nothing_up(tmp_path: Path) -> None:
    class Crash(BaseException):
        pass

    def at(point: str) -> None:
        if point == "temp synced":
            raise Crash

    with DirectoryObjects(tmp_path, on_side_effect=at) as objects:
        with pytest.raises(Crash):
            objects.put("a", b"data")
        assert len(survivors(tmp_path, "tmp")) == 1
        with pytest.raises(ObjectNotFound):
            objects.head("a")


def test_an_error_cleans_up(tmp_path: Path) -> None:
    def cut() -> Iterator[bytes]:
        yield b"x"
        raise EOFError

    with DirectoryObjects(tmp_path, fsync=False) as objects:
        with pytest.raises(EOFError):
            objects.put("a", cut())
        assert survivors(tmp_path, "tmp") == []


def test_sweep_leaves_alone_what_is_being_written(tmp_path: Path) -> None:
    begun, swept = threading.Event(), threading.Event()

    def slow() -> Iterator[bytes]:
        yield b"first"
        begun.set()
        assert swept.wait(120)
        yield b" and second"

    with DirectoryObjects(tmp_path, fsync=False) as objects:
        writer = threading.Thread(target=lambda: objects.put("a", slow()))
        writer.start()
        assert begun.wait(120)
        assert objects.sweep(older_than=-60).files == 0
        swept.set()
        writer.join(120)
        with objects.get("a") as body:
            assert body.read() == b"first and second"


def test_the_age_of_what_is_swept_is_taken_from_the_clock_that_was_passed_in(tmp_path: Path) -> None:
    now = 0.0
    with DirectoryObjects(tmp_path, fsync=False, clock=lambda: now) as objects:
        left = tmp_path / ".waybill" / "tmp" / "left"
        left.write_bytes(b"")
        os.utime(left, (1000, 1000))
        now = 1500
        assert objects.sweep(older_than=600).files == 0
        now = 1700
        assert objects.sweep(older_than=600).files == 1


def test_everything_is_synced_before_it_is_named_and_the_folders_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power cut needs, as the order of system calls: file synced, renamed, folder synced; and each new folder
    in its parent.
    """
    happened: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(tmp_path))
        happened.append(f"sync {'temp' if path.startswith('/.waybill/tmp/') else path or '/'}")
        real(fd)

    with DirectoryObjects(tmp_path, on_side_effect=lambda point: happened.append(point)) as objects:
        happened.clear()
        monkeypatch.setattr(os, "fsync", fsync)
        objects.put("a/b", b"1")
        assert happened == [
            "temp made",
            "temp written",
            "sync temp",
            "temp synced",
            "folder made",
            "sync /",
            "folder synced",
            "renamed",
            "sync /a",
            "published",
        ]
        happened.clear()
        objects.put("a/b", b"2", if_absent=False)
        assert happened == ["temp made", "temp written", "sync temp", "temp synced", "renamed", "sync /a", "published"]
        happened.clear()
        objects.put("a/c", b"2", if_absent=True)
        assert happened[-4:] == ["linked", "temp dropped", "sync /a", "published"]
        happened.clear()
        objects.delete("a/c")
        assert happened == ["deleted", "sync /a", "delete synced"]
    with DirectoryObjects(tmp_path, on_side_effect=lambda point: happened.append(point)) as another:
        happened.clear()
        another.put("a/d", b"3")
        # It did not make the folder; whoever did may have died before the folder was durable.
        assert happened[4:6] == ["sync /", "folder synced"]
