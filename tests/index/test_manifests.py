"""A catalogue is rebuilt from manifests in object storage, a whole one or not at all."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from waybill import manifests
from waybill.index import CatalogueTables, Index, rebuild_catalogue
from waybill.manifests import ManifestEntry, ManifestError
from waybill.objects import Objects, open_objects


@dataclass(frozen=True)
class Inventory:
    """Every object that some manifest names, entered a block at a time. A source is the name of a manifest."""

    objects: Objects
    name: str = "toy"
    package: str = "tests.index.toy"

    def clear(self, shelf: CatalogueTables) -> int:
        return shelf.execute("clear_some", portion=1000)

    def enter(self, shelf: CatalogueTables, source: str) -> None:
        manifests.verify_manifest(self.objects, source)
        shelf.execute("forget", bill=source)
        with manifests.open_manifest(self.objects, source) as reader:
            for block in reader.iter_blocks():
                shelf.execute_all("enter", ({"path": entry.uri, "size": entry.size, "bill": source} for entry in block))


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return open_objects(tmp_path / "objects")


def entries(folder: str, count: int) -> Iterator[ManifestEntry]:
    for n in range(count):
        yield ManifestEntry(f"{folder}/{n:06d}", n, hashlib.sha256(b"%d" % n).hexdigest())


def listed(objects: Objects) -> Iterator[str]:
    return (info.name for info in objects.list("manifests/"))


def test_a_catalogue_is_built_again_from_nothing_but_manifests(index: Index, objects: Objects) -> None:
    for name, count in (("a", 3), ("b", 2500)):
        manifests.write_manifest(objects, f"manifests/{name}", entries(name, count), ordered=True)
    inventory = Inventory(objects)
    shelf = index.open_catalogue(inventory)
    shelf.execute("enter", path="gone/1", size=1, bill="manifests/gone")
    assert rebuild_catalogue(shelf, inventory, lambda: listed(objects)) == 2
    assert shelf.query("count") == [{"n": 2503}]
    assert [row["path"] for row in shelf.query("under", folder="a")] == ["a/000000", "a/000001", "a/000002"]
    shelf.drop()
    again = index.open_catalogue(inventory)
    assert again.query("count") == [{"n": 0}]
    rebuild_catalogue(again, inventory, lambda: listed(objects))
    assert again.query("count") == [{"n": 2503}]


def test_a_manifest_that_is_not_whole_is_not_entered(index: Index, objects: Objects) -> None:
    manifests.write_manifest(objects, "manifests/a", entries("a", 3))
    manifests.write_manifest(objects, "manifests/b", entries("b", 3))
    with objects.get("manifests/b") as body:
        cut = body.read()[:-10]
    objects.put("manifests/b", cut)
    inventory = Inventory(objects)
    shelf = index.open_catalogue(inventory)
    with pytest.raises(ManifestError):
        rebuild_catalogue(shelf, inventory, lambda: listed(objects))
    assert (shelf.get_state(), shelf.query("count")) == ("rebuilding", [{"n": 3}])
    manifests.write_manifest(objects, "manifests/b", entries("b", 3))
    rebuild_catalogue(shelf, inventory, lambda: listed(objects))
    assert (shelf.get_state(), shelf.query("count")) == ("ready", [{"n": 6}])
