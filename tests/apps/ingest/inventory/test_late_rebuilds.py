"""A rebuild that comes late takes nothing back: its worker was thought dead, another has done it, and jobs have
recorded since.

Nor does one that dies anywhere leave the inventory without what it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from tests.apps.ingest.inventory.test_inventory import FILES, OWNER, about, everything
from tests.apps.ingest.storage.yard import ARK, Bytes
from waybill.apps.ingest.inventory import Inventory, catalogue, rebuild_object
from waybill.apps.ingest.storage import OcflStorage, VersionSummary
from waybill.manifests import ManifestError
from waybill.objects import DirectoryObjects
from waybill.record import Conflict


class Killed(BaseException):
    pass


class Interrupted:
    """A storage after whose list of versions something happens."""

    def __init__(self, storage: OcflStorage, meanwhile: Callable[[], object]) -> None:
        self._storage, self._meanwhile = storage, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def list_versions(self, ark: str) -> list[VersionSummary]:
        try:
            return self._storage.list_versions(ark)
        finally:
            self._meanwhile()


class Mortal:
    """A shelf at whose n-th write, a transaction being one, the process is gone."""

    def __init__(self, shelf: Any, lives: int) -> None:
        self._shelf, self._lives, self._inside = shelf, lives, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shelf, name)

    def _live(self) -> None:
        if not self._inside:
            self._lives -= 1
            if self._lives < 0:
                raise Killed

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._live()
        self._inside += 1
        try:
            with self._shelf.transaction():
                yield
        finally:
            self._inside -= 1

    def execute(self, statement: str, **values: Any) -> int:
        self._live()
        return int(self._shelf.execute(statement, **values))

    def execute_all(self, statement: str, rows: Any) -> int:
        self._live()
        return int(self._shelf.execute_all(statement, rows))


@pytest.fixture(autouse=True)
def one(inventory: Inventory, storage: OcflStorage, sources: Bytes) -> None:
    inventory.record(storage.write(sources.deposit("one", FILES, about=about())), storage)


def second(inventory: Inventory, storage: OcflStorage, sources: Bytes) -> None:
    """What a job does."""
    told = about(title="Second", local_ids=["l1", "l2"])
    inventory.record(storage.write(sources.deposit("two", {"b": b"b"}, mode="update", about=told)), storage)


def test_a_version_that_was_recorded_meanwhile_stays_the_newest(
    inventory: Inventory, storage: OcflStorage, sources: Bytes
) -> None:
    seen: list[object] = []

    def meanwhile() -> None:
        second(inventory, storage, sources)
        seen.append(everything(inventory))

    assert rebuild_object(inventory, Interrupted(storage, meanwhile), ARK) == 1  # type: ignore[arg-type]
    assert [everything(inventory)] == seen
    assert (inventory.get_object(ARK) or {})["head"] == 2
    assert [inventory.ark_of(OWNER, local) for local in ("l1", "l2")] == [ARK, ARK]


def test_an_object_that_was_recorded_meanwhile_stays(
    inventory: Inventory, storage: OcflStorage, sources: Bytes
) -> None:
    other = "ark:/99999/other"

    def meanwhile() -> None:
        inventory.record(storage.write(sources.deposit("one", FILES, other, about=about(local_ids=["l9"]))), storage)

    assert rebuild_object(inventory, Interrupted(storage, meanwhile), other) == 0  # type: ignore[arg-type]
    assert (inventory.ark_of(OWNER, "l9"), len(inventory.list_versions(other))) == (other, 1)


def deaths(inventory: Inventory, storage: OcflStorage) -> Iterator[Any]:
    """Rebuild, and die at the first write, at the second and so on until it gets through: what is seen after each
    death.
    """
    shelf = inventory.tables
    for lives in count():
        inventory.tables = Mortal(shelf, lives)  # type: ignore[assignment]
        try:
            rebuild_object(inventory, storage, ARK)
            break
        except Killed:
            inventory.tables = shelf
            yield everything(inventory)
    inventory.tables = shelf


@pytest.mark.parametrize("portion", [1000, 1])
def test_wherever_it_dies_the_inventory_has_what_it_had(
    inventory: Inventory, storage: OcflStorage, sources: Bytes, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    monkeypatch.setattr(catalogue, "ROWS_PER_TRANSACTION", portion)
    second(inventory, storage, sources)
    before = everything(inventory)
    seen = list(deaths(inventory, storage))
    assert len(seen) > 2
    assert all(each == before for each in seen)
    assert everything(inventory) == before
    assert files_beside(inventory) == 0


def test_a_version_that_is_replaced_is_seen_whole_as_it_was_or_as_it_is(
    inventory: Inventory, storage: OcflStorage, sources: Bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "ROWS_PER_TRANSACTION", 1)
    right, shelf = everything(inventory), inventory.tables
    sha256 = inventory.list_files(ARK, 1).rows[0]["sha256"]
    for path in ("a", "z"):  # one that is otherwise, and one that is not there
        shelf.execute(
            "enter_file", ark=ARK, number=1, path=path, size=9, sha256=sha256, mime="wrong/wrong", place="v1/content/a"
        )
    wrong = everything(inventory)
    assert wrong != right
    seen = list(deaths(inventory, storage))
    assert all(each in (wrong, right) for each in seen)
    assert seen[0] == wrong
    assert everything(inventory) == right
    assert files_beside(inventory) == 0


def test_of_two_that_replace_a_version_at_once_one_does_and_the_other_is_told(
    inventory: Inventory, storage: OcflStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "ROWS_PER_TRANSACTION", 1)
    before, stored = everything(inventory), storage.get_version(ARK)
    entered = catalogue._enter_files

    def overtaken(*args: Any) -> None:
        entered(*args)
        with monkeypatch.context() as patch:
            patch.setattr(catalogue, "_enter_files", entered)
            inventory.record(stored, storage, fix=True)
        monkeypatch.setattr(catalogue, "_enter_files", entered)

    monkeypatch.setattr(catalogue, "_enter_files", overtaken)
    with pytest.raises(Conflict, match="try again"):
        inventory.record(stored, storage, fix=True)
    assert everything(inventory) == before
    assert inventory.record(stored, storage, fix=True)
    assert everything(inventory) == before
    inventory.forget(ARK)
    assert files_beside(inventory) == 0


def files_beside(inventory: Inventory) -> int:
    return inventory.tables.execute("forget_replacements", ark=ARK, row_limit=1000)


def test_a_manifest_that_cannot_be_read_leaves_its_version_known(
    inventory: Inventory, storage: OcflStorage, objects: DirectoryObjects
) -> None:
    before = everything(inventory)
    with storage.read(ARK, storage.get_version(ARK).place) as body:
        objects.put(body.info.name, b"{}")
    with pytest.raises(ManifestError):
        rebuild_object(inventory, storage, ARK)
    assert everything(inventory) == before
