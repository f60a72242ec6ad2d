"""Routines that remove objects: what nobody refers to goes, in bounded rounds, and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from waybill.files import unneeded_objects
from waybill.files.unneeded_objects import AbandonedFolderRoutine, OrphanedObjectRoutine, UnneededObjectRoutine
from waybill.machine import Machine, action, end, rest
from waybill.maintenance import MaintenanceContext, run_round
from waybill.objects import DirectoryObjects, ObjectInfo
from waybill.record import Finding, Ref, StoreUnavailable
from waybill.rules import Machines
from waybill.step import New
from waybill.stores.model import ModelDatabase, ModelStore

DAY = 86400.0
PARCEL = Machine(
    name="parcel",
    plural="parcels",
    prefix="pcl",
    description="A parcel.",
    states=(rest("Here", description="Here."), end("Gone", description="Gone.")),
    actions=(action("drop", "Here", "Gone", "Give it up."),),
)


@dataclass(frozen=True)
class ScrapRoutine(UnneededObjectRoutine):
    rule: ClassVar[str] = "scrap"
    prefixes: ClassVar[tuple[str, ...]] = ("scrap", "rest")
    needed: ClassVar[set[str]] = set()

    def explain_unneeded(self, context: MaintenanceContext, info: ObjectInfo) -> str | None:
        return "is scrap" if self.is_old(context, info) and info.name not in self.needed else None


@dataclass(frozen=True)
class LabelRoutine(OrphanedObjectRoutine):
    rule: ClassVar[str] = "label without a parcel"
    prefixes: ClassVar[tuple[str, ...]] = ("labels",)

    def owner_of(self, name: str) -> Ref | None:
        _, id, *rest = name.split("/")
        return Ref("parcel", id) if rest else None


@dataclass(frozen=True)
class BoxRoutine(AbandonedFolderRoutine):
    rule: ClassVar[str] = "abandoned box"
    problem: ClassVar[str] = "was never closed"
    prefixes: ClassVar[tuple[str, ...]] = ("boxes",)


class ObjectsFixture:
    def __init__(self, root: Path) -> None:
        self.folder, self.objects = root / "objects", DirectoryObjects(root / "objects")
        store = ModelStore(ModelDatabase(time.time))
        self.context = MaintenanceContext(store, Machines.from_machines([PARCEL]), "h", root, self.objects)

    def put(self, *names: str, age: float = 2 * DAY) -> None:
        at = time.time() - age
        for name in names:
            self.objects.put(name, b"x")
            os.utime(self.folder / name, (at, at))

    def list_names(self) -> list[str]:
        return [info.name for info in self.objects.list()]


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ObjectsFixture]:
    yield ObjectsFixture(tmp_path)
    ScrapRoutine.needed.clear()


def test_old_unneeded_objects_go_and_nothing_else(fixture: ObjectsFixture) -> None:
    fixture.put("scrap/1", "rest/1", "other/1", "scrapyard/1")
    fixture.put("scrap/young", age=DAY / 2)
    assert run_round(ScrapRoutine(), fixture.context) == 2
    assert fixture.list_names() == ["other/1", "scrap/young", "scrapyard/1"]


def test_a_round_is_bounded_and_the_next_goes_on(fixture: ObjectsFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unneeded_objects, "ROUND_SIZE", 2)
    fixture.put(*(f"scrap/{number}" for number in range(5)))
    ScrapRoutine.needed.update({"scrap/0", "scrap/1"})  # else the second round would begin with others anyway
    assert [run_round(ScrapRoutine(), fixture.context) for _ in range(3)] == [0, 2, 1]


def test_an_object_that_is_needed_by_the_time_of_its_removal_stays(fixture: ObjectsFixture) -> None:
    fixture.put("scrap/1")
    (finding,) = ScrapRoutine().check(fixture.context)
    assert finding.problem == "scrap/1 is scrap."
    ScrapRoutine.needed.add("scrap/1")
    assert not ScrapRoutine().repair(fixture.context, finding)
    assert fixture.list_names() == ["scrap/1"]


@pytest.mark.parametrize("where", ["scrap/none", "other/1", "scrapyard/1"])
def test_only_what_is_there_and_below_the_prefixes_is_removed(fixture: ObjectsFixture, where: str) -> None:
    fixture.put("other/1", "scrapyard/1")
    assert not ScrapRoutine().repair(fixture.context, Finding("scrap", where, "", ""))
    assert fixture.list_names() == ["other/1", "scrapyard/1"]


def test_objects_go_with_their_record(fixture: ObjectsFixture) -> None:
    parcel = fixture.context.engine.submit(New("parcel"))
    own = f"labels/{parcel.id}/1/a"
    fixture.put(own, "labels/pcl99/1/a", "labels/strange")
    assert run_round(LabelRoutine(), fixture.context) == 1
    assert fixture.list_names() == sorted([own, "labels/strange"])
    fixture.context.engine.act(parcel.ref, "drop")
    fixture.context.engine.remove(parcel.ref)
    assert run_round(LabelRoutine(), fixture.context) == 1
    assert fixture.list_names() == ["labels/strange"]


def test_a_store_that_cannot_be_asked_removes_nothing(fixture: ObjectsFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreUnavailable("away")

    fixture.put("labels/pcl99/1/a")
    monkeypatch.setattr(fixture.context.store, "get", fail)
    with pytest.raises(StoreUnavailable):
        run_round(LabelRoutine(), fixture.context)
    assert fixture.list_names() == ["labels/pcl99/1/a"]


def test_the_newest_object_of_a_folder_decides(fixture: ObjectsFixture) -> None:
    fixture.put("boxes/a/1", "boxes/a/2", "boxes/b/1", "boxes/b/3")
    fixture.put("boxes/b/2", age=0)
    (finding,) = BoxRoutine().check(fixture.context)
    assert (finding.where, finding.problem) == ("boxes/a", "boxes/a was never closed.")
    assert run_round(BoxRoutine(), fixture.context) == 1
    assert fixture.list_names() == ["boxes/b/1", "boxes/b/2", "boxes/b/3"]


def test_a_folder_is_checked_again_and_an_interrupted_removal_is_finished(fixture: ObjectsFixture) -> None:
    fixture.put("boxes/a/1", "boxes/a/2")
    (finding,) = BoxRoutine().check(fixture.context)
    fixture.put("boxes/a/3", age=0)
    assert not BoxRoutine().repair(fixture.context, finding)
    fixture.put("boxes/a/3")
    stops = iter((False, True))
    fixture.context.stop = lambda: next(stops)
    assert not BoxRoutine().repair(fixture.context, finding)
    assert len(fixture.list_names()) == 2
    fixture.context.stop = lambda: False
    assert run_round(BoxRoutine(), fixture.context) == 1
    assert fixture.list_names() == []


def test_a_round_ends_between_two_folders(fixture: ObjectsFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unneeded_objects, "ROUND_SIZE", 2)
    fixture.put(*(f"boxes/{box}/{number}" for box in "abc" for number in range(3)))
    assert [run_round(BoxRoutine(), fixture.context) for _ in range(4)] == [1, 1, 1, 0]
    assert fixture.context.memory["boxes"] == ""


@pytest.mark.parametrize("where", ["boxes/a/1", "other/a", "boxes"])
def test_only_a_folder_directly_below_a_prefix_is_removed(fixture: ObjectsFixture, where: str) -> None:
    fixture.put("boxes/a/1", "other/a/1")
    assert not BoxRoutine().repair(fixture.context, Finding("abandoned box", where, "", ""))
    assert len(fixture.list_names()) == 2
