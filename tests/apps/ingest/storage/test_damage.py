"""Whatever happens to an object at rest is found, and named with its place and its files; nothing is mended that
cannot be trusted.
"""

import itertools
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from tests.apps.ingest.storage.community import run_community_validator
from tests.apps.ingest.storage.tripwire import Died, Tripwire
from tests.apps.ingest.storage.yard import ARK, Bytes, copy_storage, files_of, said_by_validator, sha256
from waybill.apps.ingest.storage import ConcurrentWrite, OcflStorage, StorageDamaged, StorageFinding
from waybill.objects import Objects

FILES = {"producer/a": b"abc", "producer/b": b"bcd"}


def root_of(objects: Objects) -> str:
    return next(info.name for info in objects.list("ocfl") if info.name.endswith("/0=ocfl_object_1.1")).rpartition("/")[
        0
    ]


def found(storage: OcflStorage) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(finding.kind, finding.place, finding.files) for finding in storage.verify(ARK)]


@pytest.fixture
def two(objects: Objects, storage: OcflStorage, sources: Bytes) -> str:
    """An object of two versions; its root."""
    storage.write(sources.deposit("one", FILES))
    storage.write(sources.deposit("two", {"producer/c": b"cde"}, mode="update"))
    return root_of(objects)


def test_a_flipped_byte_is_found_and_named(objects: Objects, storage: OcflStorage, two: str) -> None:
    place = f"v1/content/{sha256(b'abc')}"
    objects.put(f"{two}/{place}", b"abd")
    assert found(storage) == [("changed", place, ("v2 producer/a", "v1 producer/a"))]
    one = storage.check(ARK, place, 3, sha256(b"abc"))
    assert isinstance(one, StorageFinding)
    assert (one.kind, one.place) == ("changed", place)
    assert sha256(b"abd") in one.message


def test_a_missing_file_is_found_and_named(objects: Objects, storage: OcflStorage, two: str) -> None:
    place = f"v2/content/{sha256(b'cde')}"
    objects.delete(f"{two}/{place}")
    assert found(storage) == [("missing", place, ("v2 producer/c",))]
    assert storage.check(ARK, place, 3, sha256(b"cde")) is not None
    storage.recover(ARK)
    assert found(storage) == [("missing", place, ("v2 producer/c",))]


@pytest.mark.parametrize(
    "place", ["v1/content/notes.txt", "v1/thumbs.db", "v3/inventory.json", "stray", "v1/content/ab/cd"]
)
def test_an_extra_file_is_found_and_named(objects: Objects, storage: OcflStorage, two: str, place: str) -> None:
    objects.put(f"{two}/{place}", b"extra")
    assert found(storage) == [("extra", place, ())]


def test_recovery_leaves_alone_what_no_write_of_ours_can_have_left(
    objects: Objects, storage: OcflStorage, two: str
) -> None:
    objects.put(f"{two}/v1/content/notes.txt", b"a person's")
    objects.put(f"{two}/v1/content/{'a' * 64}", b"a late writer's")
    objects.put(f"{two}/logs/today", b"free")
    assert storage.recover(ARK).removed_places == (f"v1/content/{'a' * 64}",)
    assert found(storage) == [("extra", "v1/content/notes.txt", ())]


@pytest.mark.parametrize(
    "place",
    ["inventory.json", "v1/inventory.json", "v2/inventory.json", "v1/inventory.json.sha512", "inventory.json.sha512"],
)
def test_a_changed_inventory_is_found_and_named(objects: Objects, storage: OcflStorage, two: str, place: str) -> None:
    with objects.get(f"{two}/{place}") as body:
        data = body.read()
    objects.put(f"{two}/{place}", data.replace(b"a", b"b"))
    kinds = {finding.kind for finding in storage.verify(ARK)}
    assert kinds == {"inventory"}
    assert any(place.split(".")[0] in finding.place for finding in storage.verify(ARK))


@pytest.mark.parametrize(
    "place", ["inventory.json.sha512", "v2/inventory.json", "v2/inventory.json.sha512", "0=ocfl_object_1.1"]
)
def test_what_is_missing_beside_a_sound_inventory_is_written_again(
    objects: Objects, storage: OcflStorage, two: str, place: str, tmp_path: Path
) -> None:
    objects.delete(f"{two}/{place}")
    assert [finding.place for finding in storage.verify(ARK)] == [place] or place == "v2/inventory.json.sha512"
    assert storage.recover(ARK).repaired_places == (place,)
    assert said_by_validator(copy_storage(objects, "ocfl", tmp_path / "copy")) == (1, [])


def test_an_inventory_that_cannot_be_believed_is_not_touched(
    objects: Objects, storage: OcflStorage, sources: Bytes, two: str
) -> None:
    with objects.get(f"{two}/inventory.json") as body:
        changed = body.read().replace(b"producer/c", b"producer/d")
    objects.put(f"{two}/inventory.json", changed)
    before = {info.name: info.etag for info in objects.list("ocfl")}
    for attempt in (
        lambda: storage.recover(ARK),
        lambda: storage.write(sources.deposit("x", FILES)),
        lambda: storage.list_versions(ARK),
    ):
        with pytest.raises(StorageDamaged):
            attempt()
    assert {info.name: info.etag for info in objects.list("ocfl")} == before


def inventory_files(objects: Objects, root: str) -> list[str]:
    names = [info.name.removeprefix(f"{root}/") for info in objects.list(root)]
    return [name for name in names if name.startswith("inventory.json")]


@pytest.mark.parametrize("lost", [["inventory.json"], ["inventory.json", "inventory.json.sha512"]])
def test_an_object_that_has_lost_its_inventory_is_damaged_and_is_restored_from_its_newest_version(
    objects: Objects, storage: OcflStorage, sources: Bytes, two: str, lost: list[str], tmp_path: Path
) -> None:
    history = [files_of(storage, number) for number in (1, 2)]
    for name in lost:
        objects.delete(f"{two}/{name}")
    before = {info.name: info.etag for info in objects.list("ocfl")}
    for attempt in (
        lambda: storage.write(sources.deposit("x", FILES)),
        lambda: storage.list_versions(ARK),
        lambda: storage.find_by_request(ARK, "one"),
    ):
        with pytest.raises(StorageDamaged, match="rebuild"):
            attempt()
    assert [kind for kind, _, _ in found(storage)] == ["inventory"]
    ((_, done),) = storage.recover_all(-3600)
    assert "is missing" in done.error
    assert {info.name: info.etag for info in objects.list("ocfl")} == before, "nothing is removed or overwritten"
    assert [ark for _, ark in storage.list_objects()] == [ARK], "its newest version says which object it is"
    assert storage.recover(ARK).repaired_places == tuple(lost)
    assert [files_of(storage, number) for number in (1, 2)] == history
    assert said_by_validator(copy_storage(objects, "ocfl", tmp_path / "copy")) == (1, [])


def test_an_inventory_is_restored_from_a_version_that_is_whole(
    objects: Objects, storage: OcflStorage, two: str
) -> None:
    objects.delete(f"{two}/inventory.json")
    objects.put(f"{two}/v3/inventory.json", b"cut")  # of an attempt
    objects.delete(f"{two}/v2/content/{sha256(b'cde')}")
    storage.recover(ARK)
    assert storage.get_version(ARK).version == 1
    objects.delete(f"{two}/inventory.json")
    objects.delete(f"{two}/v1/content/{sha256(b'abc')}")
    with pytest.raises(StorageDamaged, match="copy"):
        storage.recover(ARK)


def test_a_new_object_is_declared_after_its_inventory(objects: Objects, sources: Bytes) -> None:
    """So that a folder that is declared and has no inventory has lost it; with each request a crash."""
    for moment in itertools.count(1):
        prefix, alive = f"ocfl{moment}", True

        def die(now: int, moment: int = moment) -> None:
            if now == moment:
                raise Died

        dying = cast(Objects, Tripwire(objects, die))
        try:
            OcflStorage(dying, prefix, sources, threads=1).write(sources.deposit("one", FILES))
        except Died:
            alive = False
        storage = OcflStorage(objects, prefix, sources)
        assert storage.find_by_request(ARK, "other") is None  # it is not called damaged
        storage.recover(ARK)
        storage.write(sources.deposit("other", FILES))
        assert list(storage.verify(ARK)) == []
        if alive:
            assert moment > 5
            return


@pytest.mark.parametrize("conditional", [True, False], ids=["conditions", "no conditions"])
@pytest.mark.parametrize("first", [True, False], ids=["new object", "next version"])
def test_a_writer_that_was_overtaken_harms_nothing(
    objects: Objects, sources: Bytes, tmp_path: Path, first: bool, conditional: bool
) -> None:
    """One writer pauses before or after any of its requests, another writes the same version to its end, then the
    first one goes on.
    """
    for moment in itertools.count(1):
        prefix = f"ocfl{moment}"
        storage = OcflStorage(objects, prefix, sources)
        storage.write(sources.deposit("before", {"x": b"x"}, "ark:/99999/other" if first else ARK))
        paused, go = threading.Event(), threading.Event()

        def at(now: int, moment: int = moment, paused: threading.Event = paused, go: threading.Event = go) -> None:
            if now == moment:
                paused.set()
                assert go.wait(60)

        late = OcflStorage(cast(Objects, Tripwire(objects, at, conditional=conditional)), prefix, sources, threads=1)
        outcome: list[object] = []

        def write(late: OcflStorage = late, outcome: list[object] = outcome, paused: threading.Event = paused) -> None:
            try:
                outcome.append(late.write(sources.deposit("late", {"late": b"late", "both": b"both"})))
            except ConcurrentWrite as error:
                outcome.append(error)
            finally:
                paused.set()

        thread = threading.Thread(target=write)
        thread.start()
        assert paused.wait(60)
        reached = thread.is_alive()
        winner = storage.write(sources.deposit("winner", {"winner": b"winner", "both": b"both"}))
        go.set()
        thread.join(60)
        requests = [version.request for version in storage.list_versions(ARK)]
        if isinstance(outcome[0], ConcurrentWrite):
            assert requests == [*([] if first else ["before"]), "winner"]
        else:
            assert requests == [*([] if first else ["before"]), "late", "winner"]
        assert files_of(storage, winner.version) == {"winner": b"winner", "both": b"both"}
        storage.recover(ARK)
        assert list(storage.verify(ARK)) == []
        assert said_by_validator(copy_storage(objects, prefix, tmp_path / "copy")) == (2 if first else 1, [])
        if not reached:
            assert moment > 10
            return


@pytest.mark.parametrize("conditional", [True, False], ids=["conditions", "no conditions"])
def test_two_runs_of_one_request_harm_nothing(
    objects: Objects, sources: Bytes, tmp_path: Path, conditional: bool
) -> None:
    """A run that was thought dead goes on after the next run of the same deposit has ended: its manifest says
    another time.
    """
    files = {"late": b"late", "both": b"both"}
    for moment in itertools.count(1):
        prefix = f"ocfl{moment}"

        def died(now: int) -> None:
            if now == 4:
                raise Died

        with pytest.raises(Died):  # so that a try before both of them has left something
            OcflStorage(cast(Objects, Tripwire(objects, died)), prefix, sources, threads=1).write(
                sources.deposit("one", files)
            )
        paused, go = threading.Event(), threading.Event()

        def at(now: int, moment: int = moment, paused: threading.Event = paused, go: threading.Event = go) -> None:
            if now == moment:
                paused.set()
                assert go.wait(60)

        early = OcflStorage(
            cast(Objects, Tripwire(objects, at, conditional=conditional)),
            prefix,
            sources,
            threads=1,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        )
        outcome: list[object] = []

        def write(
            early: OcflStorage = early, outcome: list[object] = outcome, paused: threading.Event = paused
        ) -> None:
            try:
                outcome.append(early.write(sources.deposit("one", files)))
            except ConcurrentWrite as error:
                outcome.append(error)
            finally:
                paused.set()

        thread = threading.Thread(target=write)
        thread.start()
        assert paused.wait(60)
        reached = thread.is_alive()
        storage = OcflStorage(objects, prefix, sources)
        winner = storage.write(sources.deposit("one", files))
        go.set()
        thread.join(60)
        assert [version.request for version in storage.list_versions(ARK)] == ["one"]
        assert isinstance(outcome[0], ConcurrentWrite) or outcome[0] == storage.get_version(ARK)
        assert winner == storage.get_version(ARK)
        assert files_of(storage) == files
        storage.recover(ARK)
        assert list(storage.verify(ARK)) == []
        assert said_by_validator(copy_storage(objects, prefix, tmp_path / f"copy{moment}")) == (1, [])
        if not reached:
            assert moment > 5
            return


def test_the_communitys_validator_would_say_so(
    objects: Objects, storage: OcflStorage, two: str, tmp_path: Path
) -> None:
    """Its silence means something: of a changed byte and of a missing sidecar it speaks."""
    whole = copy_storage(objects, "ocfl", tmp_path / "whole")
    assert run_community_validator(whole, True) == (1, [])
    content = next(path for path in whole.rglob("content/*") if path.is_file())
    content.write_bytes(b"X" + content.read_bytes()[1:])
    assert run_community_validator(whole, True)[1] != []
    again = copy_storage(objects, "ocfl", tmp_path / "again")
    next(again.rglob("v1/inventory.json.sha512")).unlink()
    assert run_community_validator(again, True)[1] != []
