"""A writer that dies anywhere leaves the version before or the one it was writing; after recovery a validator finds
nothing to say.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from tests.apps.ingest.storage.tripwire import Died, Tripwire
from tests.apps.ingest.storage.yard import ARK, Bytes, copy_storage, files_of, said_by_validator, sha256
from tests.objects.dying import die_at as die_in_directory
from waybill.apps.ingest.storage import Deposit, NotInStorage, OcflStorage
from waybill.objects import DirectoryObjects, Objects

OLD = {"producer/a": b"old", "producer/b": b"both"}
NEW = {"producer/a": b"new", "producer/c": b"more"}
UPDATED = {**OLD, **NEW}


def old(sources: Bytes) -> Deposit:
    return sources.deposit("old", OLD)


def new(sources: Bytes) -> Deposit:
    return sources.deposit("new", NEW, mode="update")


CASES: list[tuple[list[Callable[[Bytes], Deposit]], Callable[[Bytes], Deposit], list[dict[str, bytes]]]] = [
    ([], old, [OLD]),
    ([old], new, [OLD, UPDATED]),
]


def versions(storage: OcflStorage) -> list[dict[str, bytes]]:
    try:
        return [files_of(storage, version.number) for version in storage.list_versions(ARK)]
    except NotInStorage:
        return []


def deaths(
    root: Path, prepare: list[Callable[[Bytes], Deposit]], deposit: Callable[[Bytes], Deposit]
) -> Iterator[Path]:
    """Folders in each of which a writer has died, one side effect later each time; the last one lived."""
    for number in itertools.count(1):
        folder = root / str(number)
        sources = Bytes()
        with DirectoryObjects(folder, fsync=False) as objects:
            for before in prepare:
                OcflStorage(objects, "ocfl", sources, threads=1).write(before(sources))

        def write(objects: Objects, sources: Bytes = sources) -> None:
            OcflStorage(objects, "ocfl", sources, threads=1).write(deposit(sources))

        alive, _ = die_in_directory(folder, number, write)
        yield folder
        if alive:
            return


@pytest.mark.parametrize(("prepare", "deposit", "after"), CASES, ids=["first", "update"])
def test_killed_anywhere_then_recovered(
    tmp_path: Path,
    prepare: list[Callable[[Bytes], Deposit]],
    deposit: Callable[[Bytes], Deposit],
    after: list[dict[str, bytes]],
) -> None:
    seen = []
    for folder in deaths(tmp_path, prepare, deposit):
        with DirectoryObjects(folder, fsync=False) as objects:
            storage = OcflStorage(objects, "ocfl", Bytes())
            found = versions(storage)
            assert found in (after[:-1], after)
            storage.recover(ARK)
            assert versions(storage) == found
            seen.append(len(found))
            if (folder / "ocfl" / "0=ocfl_1.1").exists():
                assert said_by_validator(folder / "ocfl") == (len(found) and 1, [])
            assert list(storage.list_objects()) == [] or list(storage.verify(ARK)) == []
    assert len(seen) > 40
    assert {len(after) - 1, len(after)} <= set(seen)


@pytest.mark.parametrize(("prepare", "deposit", "after"), CASES, ids=["first", "update"])
def test_killed_anywhere_then_written_again(
    tmp_path: Path,
    prepare: list[Callable[[Bytes], Deposit]],
    deposit: Callable[[Bytes], Deposit],
    after: list[dict[str, bytes]],
) -> None:
    for folder in deaths(tmp_path, prepare, deposit):
        with DirectoryObjects(folder, fsync=False) as objects:
            sources = Bytes()
            storage = OcflStorage(objects, "ocfl", sources)
            assert storage.write(deposit(sources)).version == len(after)
            assert versions(storage) == after
            assert said_by_validator(folder / "ocfl") == (1, [])


def test_killed_anywhere_then_something_else_is_written(tmp_path: Path) -> None:
    for folder in deaths(tmp_path, [old], new):
        with DirectoryObjects(folder, fsync=False) as objects:
            sources = Bytes()
            storage = OcflStorage(objects, "ocfl", sources)
            before = versions(storage)
            storage.write(sources.deposit("else", {"else": b"else"}))
            assert versions(storage) == [*before, {"else": b"else"}]
            assert said_by_validator(folder / "ocfl") == (1, [])


def test_killed_while_recovering(tmp_path: Path) -> None:
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        sources = Bytes()
        with DirectoryObjects(folder, fsync=False) as objects:
            storage = OcflStorage(objects, "ocfl", sources)
            storage.write(old(sources))
            dying = cast(Objects, Tripwire(objects, die_at(5)))  # in its second content
            with suppress(Died):
                OcflStorage(dying, "ocfl", sources, threads=1).write(new(sources))
            alive, _ = die_in_directory(
                folder, number, lambda objects: OcflStorage(objects, "ocfl", Bytes()).recover(ARK)
            )
            storage.recover(ARK)
            assert versions(storage) == [OLD]
            assert said_by_validator(folder / "ocfl") == (1, [])
        if alive:
            assert number > 10
            return


def test_killed_while_damaged_content_is_written_again(tmp_path: Path) -> None:
    """A deposit that brings the same bytes heals them: dead at any point, it leaves them as damaged as they were, or
    whole.
    """
    seen = set()
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        sources = Bytes()
        with DirectoryObjects(folder, fsync=False) as objects:
            storage = OcflStorage(objects, "ocfl", sources)
            stored = storage.write(old(sources))
            with storage.open_manifest(stored) as reader:
                place = next(entry.extra["place"] for entry in reader if entry.uri == "producer/a")
            (file,) = folder.glob(f"ocfl/**/{place}")
            file.write_bytes(b"0ld")

            def heals(sources: Bytes, place: str = place) -> Deposit:
                return sources.deposit(
                    "heals", {"producer/c": OLD["producer/a"]}, mode="update", damaged_places=[place]
                )

            def write(objects: Objects, sources: Bytes = sources) -> None:
                OcflStorage(objects, "ocfl", sources, threads=1).write(heals(sources))

            alive, _ = die_in_directory(folder, number, write)
            storage.recover(ARK)
            assert file.read_bytes() in (b"0ld", b"old")
            seen.add((file.read_bytes(), len(versions(storage))))
            assert (b"0ld", 2) not in seen, "a version that brings them has them whole"
            assert storage.write(heals(sources)).version == 2
            assert versions(storage) == [OLD, {**OLD, "producer/c": b"old"}]
            assert said_by_validator(folder / "ocfl") == (1, [])
        if alive:
            assert seen == {(b"0ld", 1), (b"old", 1), (b"old", 2)}
            return


def die_at(moment: int) -> Callable[[int], None]:
    def at(now: int) -> None:
        if now == moment:
            raise Died

    return at


@pytest.mark.parametrize("finish", ["recover", "write"])
def test_dead_between_any_two_requests(objects: Objects, tmp_path: Path, finish: str) -> None:
    """On the S3 server as well: each moment is before or after one request that changes something."""
    for moment in itertools.count(1):
        prefix, alive = f"ocfl{moment}", True
        sources = Bytes()
        storage = OcflStorage(objects, prefix, sources)
        storage.write(old(sources))
        try:
            OcflStorage(cast(Objects, Tripwire(objects, die_at(moment))), prefix, sources, threads=1).write(
                new(sources)
            )
        except Died:
            alive = False
        found = versions(storage)
        assert found in ([OLD], [OLD, UPDATED])
        if finish == "recover":
            storage.recover(ARK)
        else:
            storage.write(new(sources))
            found = [OLD, UPDATED]
        assert versions(storage) == found
        assert said_by_validator(copy_storage(objects, prefix, tmp_path / "copy")) == (1, [])
        if alive:
            assert moment > 10
            return


def test_what_is_there_already_is_not_fetched_again(objects: Objects) -> None:
    sources = Bytes()
    dying = cast(Objects, Tripwire(objects, die_at(11)))  # three files of the root, then two contents are there
    with pytest.raises(Died):
        OcflStorage(dying, "ocfl", sources, threads=1).write(old(sources))
    OcflStorage(objects, "ocfl", sources, threads=1).write(old(sources))
    assert sorted(sources.opened.values()) == [1, 1]


def test_content_that_a_crash_of_the_disk_spoiled_is_written_again(tmp_path: Path) -> None:
    sources = Bytes()
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        dying = cast(Objects, Tripwire(objects, die_at(11)))
        with pytest.raises(Died):
            OcflStorage(dying, "ocfl", sources, threads=1).write(old(sources))
        (spoiled,) = tmp_path.glob(f"ocfl/*/*/*/v1/content/{sha256(b'old')}")
        spoiled.write_bytes(b"odl")
        storage = OcflStorage(objects, "ocfl", sources)
        storage.write(old(sources))
        assert (versions(storage), list(storage.verify(ARK))) == ([OLD], [])


def test_leftovers_without_an_id_go_when_they_are_old(objects: Objects, tmp_path: Path) -> None:
    sources = Bytes()
    storage = OcflStorage(objects, "ocfl", sources)
    storage.write(old(sources))
    dying = OcflStorage(cast(Objects, Tripwire(objects, die_at(11))), "ocfl", sources, threads=1)
    for n in range(3):
        with pytest.raises(Died):
            dying.write(sources.deposit("one", NEW, f"ark:/99999/dead{n}"))
        dying = OcflStorage(cast(Objects, Tripwire(objects, die_at(3))), "ocfl", sources, threads=1)
    assert list(storage.recover_all(3600)) == []
    done = list(storage.recover_all(-3600))
    assert len(done) == 3
    assert all(recovered.removed_places for _, recovered in done)
    assert said_by_validator(copy_storage(objects, "ocfl", tmp_path / "copy")) == (1, [])


def test_a_version_that_was_published_and_not_synced_is_made_durable_by_whoever_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer died between the rename and the sync of the folder above.

    Answered without one, it would be lost with the power.
    """
    for number in itertools.count(1):
        folder, sources = tmp_path / str(number), Bytes()
        deposit = old(sources)
        alive, point = die_in_directory(
            folder,
            number,
            lambda objects: OcflStorage(objects, "ocfl", sources).write(deposit),  # noqa: B023
        )
        assert not alive, "it dies after the rename"
        if point == "renamed" and list(folder.glob("ocfl/*/*/*/")):
            break
    synced: list[str] = []
    fsync = os.fsync

    def sync_and_note(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", sync_and_note)
    with DirectoryObjects(folder) as objects:
        synced.clear()
        storage = OcflStorage(objects, "ocfl", Bytes())  # it has no bytes to write
        assert storage.write(deposit).version == 1
        (root,) = folder.glob("ocfl/*/*/*/")
    assert {str(root), str(root.parent), str(root.parent.parent), str(folder / "ocfl"), str(folder)} <= set(synced)


def test_of_two_writers_of_one_request_the_second_leaves_nothing_beside_the_first(tmp_path: Path) -> None:
    sources = Bytes()
    deposit = old(sources)
    with DirectoryObjects(tmp_path / "o", fsync=False) as other:
        first: list[int] = []

        def overtaken(point: str) -> None:
            if point == "new folder made" and not first:
                first.append(OcflStorage(other, "ocfl", sources).write(deposit).version)

        with DirectoryObjects(tmp_path / "o", fsync=False, on_side_effect=overtaken) as objects:
            storage = OcflStorage(objects, "ocfl", sources)
            assert storage.write(deposit).version == 1
            assert versions(storage) == [OLD]
        assert first == [1]
    assert said_by_validator(tmp_path / "o" / "ocfl") == (1, [])
