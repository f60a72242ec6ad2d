"""Versions are recorded from their manifests alone, found by all that is said of them, audited, and recorded again
from storage.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.apps.ingest.storage.yard import ARK, Bytes, sha256
from tests.servers.postgres import PostgresServer
from waybill.apps.ingest.inventory import (
    Inventory,
    InventoryConflict,
    LocalIdTaken,
    VersionSource,
    rebuild_object,
    rebuild_page,
)
from waybill.apps.ingest.storage import MANIFEST_PATH, Deposit, FileToStore, OcflStorage, StoredVersion
from waybill.errors import InputError
from waybill.index import Row, open_index, rebuild_catalogue
from waybill.manifests import ManifestError, ManifestReader
from waybill.objects import DirectoryObjects

OWNER, OTHER = "ark:/13030/owner", "ark:/13030/other"
FILES = {"producer/a.txt": b"abc", "producer/same.txt": b"abc", "system/erc": b"erc"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def about(**more: Any) -> dict[str, Any]:
    fields = {
        "owner": OWNER,
        "collections": ["c1"],
        "local_ids": ["l1"],
        "title": "Husky Chicken",
        "creator": "Tracy S.",
        "date": "2009",
    }
    return {**fields, **more}


def everything(inventory: Inventory) -> dict[str, list[Row]]:
    """All that a person could see, for comparing before and after."""
    seen: dict[str, list[Row]] = {"audit": inventory.list_due_audits(NOW, limit=1000), "objects": []}
    for row in inventory.search().rows:
        seen["objects"].append(inventory.get_object(row["ark"]) or {})
        seen[row["ark"]] = inventory.list_versions(row["ark"])
        for version in seen[row["ark"]]:
            seen[f"{row['ark']} {version['number']}"] = inventory.list_files(
                row["ark"], version["number"], limit=1000
            ).rows
    return seen


@pytest.fixture
def one(inventory: Inventory, storage: OcflStorage, sources: Bytes) -> StoredVersion:
    stored = storage.write(sources.deposit("one", FILES, about=about()))
    assert inventory.record(stored, storage)
    return stored


def test_a_version_is_recorded_from_its_manifest_alone(
    inventory: Inventory, storage: OcflStorage, sources: Bytes
) -> None:
    stored = storage.write(sources.deposit("one", FILES, about=about()))
    read: list[StoredVersion] = []

    def manifest(stored: StoredVersion) -> ManifestReader:
        read.append(stored)
        return storage.open_manifest(stored)

    assert inventory.catalogue.record(inventory.tables, VersionSource(stored, manifest))
    assert read == [stored]
    found = inventory.get_object(ARK)
    assert found == {
        "ark": ARK,
        "owner": OWNER,
        "head": 1,
        "title": "Husky Chicken",
        "creator": "Tracy S.",
        "date": "2009",
        "created": stored.created,
        "modified": stored.created,
        "embargo": "",
        "collections": ["c1"],
        "local_ids": ["l1"],
    }
    rows = {row["path"]: (row["size"], row["sha256"], row["mime"]) for row in inventory.list_files(ARK, 1).rows}
    own = {MANIFEST_PATH: (stored.size, stored.sha256, "application/jsonl")}
    assert rows == {path: (len(data), sha256(data), "text/plain") for path, data in FILES.items()} | own
    assert inventory.get_version(ARK, 1) == stored
    assert [(row["number"], row["files"], row["bytes"]) for row in inventory.list_versions(ARK)] == [(1, 3, 9)]
    file = inventory.get_file(ARK, 1, "producer/a.txt")
    assert file is not None
    with storage.read(ARK, file["place"]) as body:
        assert body.read() == b"abc"


def test_recording_again_changes_nothing(
    inventory: Inventory, storage: OcflStorage, sources: Bytes, one: StoredVersion
) -> None:
    before = everything(inventory)
    assert not inventory.record(one, storage)
    assert everything(inventory) == before
    two = storage.write(sources.deposit("two", {"b": b"b"}, mode="update", about=about(title="Second")))
    assert inventory.record(two, storage)
    before = everything(inventory)
    assert not inventory.record(one, storage)
    assert not inventory.record(two, storage)
    assert everything(inventory) == before


def test_a_version_that_names_no_owner_leaves_the_object_to_the_one_it_has(
    inventory: Inventory, storage: OcflStorage, sources: Bytes, one: StoredVersion
) -> None:
    for name, owner, expected in (("two", "", OWNER), ("three", OTHER, OTHER)):
        inventory.record(storage.write(sources.deposit(name, FILES, about=about(owner=owner, local_ids=[]))), storage)
        found = inventory.get_object(ARK)
        assert found is not None
        assert found["owner"] == expected


def test_versions_may_come_in_any_order(inventory: Inventory, storage: OcflStorage, sources: Bytes) -> None:
    one = storage.write(sources.deposit("one", FILES, about=about(title="First", collections=["c1"])))
    two = storage.write(
        sources.deposit("two", {"b": b"b"}, about=about(title="Second", collections=["c2"], local_ids=["l2"]))
    )
    inventory.record(two, storage)
    inventory.record(one, storage)
    found = inventory.get_object(ARK)
    assert found is not None
    assert (found["head"], found["title"], found["collections"], found["local_ids"]) == (
        2,
        "Second",
        ["c2"],
        ["l1", "l2"],
    )
    assert [row["number"] for row in inventory.list_versions(ARK)] == [1, 2]
    assert inventory.search(text="first").rows == []


class Cut(Exception):
    pass


def test_a_recording_that_is_interrupted_shows_nothing_and_is_finished(
    inventory: Inventory, storage: OcflStorage, sources: Bytes
) -> None:
    sources.held["x"] = b"x"
    files = [FileToStore(f"p/{n:05d}", 1, sha256(b"x"), "x") for n in range(2500)]
    stored = storage.write(Deposit(object=ARK, request="one", files=files, about=about()))

    class Half:
        """A reader of the manifest that breaks off after some blocks."""

        def __init__(self, reader: ManifestReader) -> None:
            self.reader, self.header = reader, reader.header

        def __enter__(self) -> "Half":
            return self

        def __exit__(self, *error: object) -> None:
            self.reader.close()

        def iter_blocks(self) -> Iterator[list[Any]]:
            yield next(iter(self.reader.iter_blocks()))[:1200]
            raise Cut

    with pytest.raises(Cut):
        inventory.catalogue.record(inventory.tables, VersionSource(stored, lambda s: Half(storage.open_manifest(s))))  # type: ignore[arg-type, return-value]
    assert (inventory.get_object(ARK), inventory.list_versions(ARK), inventory.search().rows) == (None, [], [])
    assert inventory.record(stored, storage)
    count, after = 0, ""
    while True:
        page = inventory.list_files(ARK, 1, after=after, limit=700)
        count, after = count + len(page.rows), page.next
        if not after:
            break
    assert count == 2501


def test_a_local_id_belongs_to_one_object_of_its_owner(
    inventory: Inventory, storage: OcflStorage, sources: Bytes, one: StoredVersion
) -> None:
    taken = storage.write(sources.deposit("x", FILES, "ark:/99999/second", about=about()))
    with pytest.raises(LocalIdTaken, match=ARK):
        inventory.record(taken, storage)
    assert inventory.get_object("ark:/99999/second") is None
    elsewhere = storage.write(sources.deposit("y", FILES, "ark:/99999/third", about=about(owner=OTHER)))
    inventory.record(elsewhere, storage)
    assert (inventory.ark_of(OWNER, "l1"), inventory.ark_of(OTHER, "l1"), inventory.ark_of(OTHER, "l2")) == (
        ARK,
        "ark:/99999/third",
        None,
    )


def test_two_that_record_the_same_local_id_at_once(inventory: Inventory, storage: OcflStorage, sources: Bytes) -> None:
    """The second one looked before the first one wrote; the check inside the transaction refuses it, with all that
    it entered.
    """
    first = storage.write(sources.deposit("x", FILES, "ark:/99999/first", about=about()))
    second = storage.write(sources.deposit("x", FILES, "ark:/99999/second", about=about()))

    def overtaken(stored: StoredVersion) -> ManifestReader:
        reader = storage.open_manifest(stored)
        blocks = reader.iter_blocks

        def late() -> Iterator[list[Any]]:
            yield from blocks()
            inventory.record(first, storage)

        reader.iter_blocks = late  # type: ignore[method-assign]
        return reader

    with pytest.raises(LocalIdTaken):
        inventory.catalogue.record(inventory.tables, VersionSource(second, overtaken))
    assert [row["ark"] for row in inventory.search().rows] == ["ark:/99999/first"]
    assert inventory.search(collection="c1").rows == inventory.search().rows


def test_another_version_of_the_same_number_is_a_contradiction(
    inventory: Inventory, storage: OcflStorage, one: StoredVersion
) -> None:
    other = StoredVersion(
        object=ARK, version=1, request="x", created="x", place=f"v1/content/{'0' * 64}", sha256="0" * 64, size=1
    )
    with pytest.raises(InventoryConflict, match="rebuild"):
        inventory.record(other, storage)


def test_search(inventory: Inventory, storage: OcflStorage, sources: Bytes) -> None:
    told = [
        about(title="Husky Chicken", creator="Æsa Ünal", local_ids=["a"]),
        about(title="The husky", owner=OTHER, collections=["c1", "c2"], local_ids=["a", "b"]),
        about(title="ﬁsh & CHICKEN", collections=["c2"], local_ids=[], date="2009-09-01"),
    ]
    arks = [f"ark:/99999/fk{n}" for n in range(3)]
    for ark, words in zip(arks, told, strict=True):
        inventory.record(storage.write(sources.deposit("one", {"f": b"f"}, ark, about=words)), storage)

    def found(**asked: Any) -> list[int]:
        return [arks.index(row["ark"]) for row in inventory.search(**asked).rows]

    assert found() == [0, 1, 2]
    assert (found(ark=arks[1]), found(ark="ark:/none"), found(ark=arks[1], owner=OWNER)) == ([1], [], [])
    assert (found(owner=OWNER), found(collection="c2"), found(collection="c2", owner=OWNER)) == ([0, 2], [1, 2], [2])
    assert (found(local_id="a"), found(local_id="a", owner=OTHER), found(local_id="c")) == ([0, 1], [1], [])
    assert (found(text="HUSKY"), found(text="chicken husky"), found(text="husky", collection="c2")) == (
        [0, 1],
        [0],
        [1],
    )
    assert (found(text="ünal"), found(text="u\u0308nal"), found(text="fish"), found(text="09 2009")) == (
        [0],
        [0],
        [2],
        [2],
    )
    assert (found(text="husk"), found(text="husky none"), found(text="2009", owner=OTHER)) == ([], [], [1])
    for bad in ({"text": "a b c d e"}, {"text": "!?"}, {"ark": "x", "text": "y"}, {"limit": 0}, {"limit": 1001}):
        with pytest.raises(InputError):
            inventory.search(**bad)  # type: ignore[arg-type]


def test_search_in_pages(inventory: Inventory, storage: OcflStorage, sources: Bytes) -> None:
    for n in range(7):
        deposit = sources.deposit("one", {"f": b"f"}, f"ark:/99999/fk{n}", about=about(local_ids=[]))
        inventory.record(storage.write(deposit), storage)
    for asked in ({}, {"owner": OWNER}, {"text": "husky"}, {"collection": "c1"}):
        pages, after = [], ""
        while True:
            page = inventory.search(after=after, limit=3, **asked)  # type: ignore[arg-type]
            pages.append([row["ark"][-1] for row in page.rows])
            if not page.next:
                break
            after = page.next
        assert pages == [["0", "1", "2"], ["3", "4", "5"], ["6"]]


def test_pages_are_whole_in_a_database_that_orders_text_as_people_do(
    fast_postgres_server: PostgresServer, storage: OcflStorage, sources: Bytes
) -> None:
    paths = ["B", "a", "a b", "a-b", "A", "a/B", "a_b", "b", "é", "e", "z", "Z", "_", "ab"]
    files = {f"producer/{number % 3}{path}": path.encode() for number, path in enumerate(paths)}
    url = fast_postgres_server.create_database("en-US-x-icu")
    with closing(open_index(url)) as index:
        inventory = Inventory(index)
        inventory.record(storage.write(sources.deposit("one", files, about=about())), storage)
        found, after = [], ""
        while True:
            page = inventory.list_files(ARK, 1, after=after, limit=3)
            found += [row["path"] for row in page.rows if row["path"].startswith("producer/")]
            if not (after := page.next):
                break
    fast_postgres_server.drop_database(url)
    assert sorted(found) == sorted(files)


def test_audit_goes_round_and_names_a_flipped_byte(
    inventory: Inventory, storage: OcflStorage, objects: DirectoryObjects, sources: Bytes, one: StoredVersion
) -> None:
    (name,) = [info.name for info in objects.list("ocfl") if info.name.endswith(sha256(b"abc"))]
    objects.put(name, b"abd")
    seen = []
    for hour in range(3):  # abc once for two files, erc, the manifest
        (row,) = inventory.list_due_audits(NOW, limit=1)
        seen.append(row["sha256"])
        inventory.record_audit(
            row, storage.check(ARK, row["place"], row["size"], row["sha256"]), NOW + timedelta(hours=hour)
        )
    assert sorted(seen) == sorted([sha256(b"abc"), sha256(b"erc"), one.sha256])
    assert inventory.list_due_audits(NOW) == []
    (again,) = inventory.list_due_audits(NOW + timedelta(minutes=1))
    assert again["sha256"] == seen[0]
    (bad,) = inventory.list_damaged()
    assert (bad["sha256"], bad["files"]) == (sha256(b"abc"), ["v1 producer/a.txt", "v1 producer/same.txt"])
    assert sha256(b"abd") in bad["result"]
    assert inventory.list_damaged(after=(bad["ark"], bad["place"])) == []
    objects.put(name, b"abc")
    inventory.record_audit(bad, storage.check(ARK, bad["place"], bad["size"], bad["sha256"]), NOW)
    assert inventory.list_damaged() == []


@pytest.mark.parametrize(
    "harm",
    [
        "delete from inventory_file",
        "update inventory_file set sha256 = 'x'",
        "delete from inventory_version where number = 2",
        "update inventory_object set title = 'x', head = 9",
        "delete from inventory_localid",
        "delete from inventory_word",
        "update inventory_member set collection = 'x'",
        "delete from inventory_content",
        "update inventory_version set sha256 = 'x'",
        "insert into inventory_localid values ('x', 'y', 'ark:/99999/fk4abc')",
        "delete from inventory_object",
        "insert into inventory_version values ('ark:/99999/fk4abc', 7, '', '', '', '', 1, 1, 1)",
        "insert into inventory_file values ('ark:/99999/fk4abc', 1, 'stray', 1, '', '', 'stray')",
        "update inventory_content set sha256 = 'x'",
    ],
)
def test_an_object_is_recorded_again_from_storage(
    inventory: Inventory, storage: OcflStorage, sources: Bytes, one: StoredVersion, harm: str
) -> None:
    inventory.record(
        storage.write(sources.deposit("two", {"b": b"b"}, mode="update", about=about(title="Second"))), storage
    )
    inventory.record(
        storage.write(sources.deposit("one", {"b": b"b"}, "ark:/99999/other", about=about(local_ids=["l9"]))), storage
    )
    before = everything(inventory)
    inventory.tables._connection.run(harm, {}, 0)  # type: ignore[attr-defined]
    assert rebuild_object(inventory, storage, ARK) == 2
    assert rebuild_page(inventory, storage) == ("", 2, ())
    assert everything(inventory) == before
    assert [row["ark"] for row in inventory.search(text="second").rows] == [ARK]
    assert inventory.ark_of(OWNER, "l1") == ARK


def test_what_the_storage_has_not_is_forgotten(
    inventory: Inventory, storage: OcflStorage, objects: DirectoryObjects, one: StoredVersion
) -> None:
    for info in list(objects.list("ocfl")):
        if re.match(r"ocfl/../../", info.name):
            objects.delete(info.name)
    assert rebuild_object(inventory, storage, ARK) == 0
    assert everything(inventory) == {"audit": [], "objects": []}
    assert inventory.ark_of(OWNER, "l1") is None


def test_all_objects_in_portions_from_a_cursor(
    inventory: Inventory, storage: OcflStorage, objects: DirectoryObjects, sources: Bytes
) -> None:
    arks = {f"ark:/99999/fk{n}" for n in range(5)}
    for ark in arks:
        storage.write(sources.deposit("one", {"f": b"f"}, ark, about=about(local_ids=[ark])))
    cursor, rounds = "", 0
    while True:
        done = rebuild_page(inventory, storage, cursor, limit=2)
        cursor, rounds = done.cursor, rounds + 1
        if not cursor:
            break
    assert (rounds, {row["ark"] for row in inventory.search().rows}) == (3, arks)
    # The same through the index's own rebuild, from nothing.
    sourced = [VersionSource(storage.get_version(ark), storage.open_manifest) for _, ark in storage.list_objects()]
    before = everything(inventory)
    assert rebuild_catalogue(inventory.tables, inventory.catalogue, lambda: sourced) == 5
    assert everything(inventory) == before


def test_one_damaged_object_does_not_stop_the_others(
    inventory: Inventory, storage: OcflStorage, objects: DirectoryObjects, sources: Bytes
) -> None:
    for n in range(4):
        storage.write(sources.deposit("one", {"f": b"f"}, f"ark:/99999/fk{n}", about=about(local_ids=[])))
    broken = storage.get_version("ark:/99999/fk1")
    names = {
        n: next(i.name for i in objects.list("ocfl") if i.name.endswith(storage.get_version(f"ark:/99999/fk{n}").place))
        for n in (1, 3)
    }
    objects.put(names[1], b"{}")
    objects.put(f"{names[3].partition('/v1/')[0]}/inventory.json", b"{}")
    done = rebuild_page(inventory, storage)
    assert (done.objects, len(done.errors)) == (4, 2)
    assert sum("ark:/99999/fk1" in trouble for trouble in done.errors) == 1
    with pytest.raises(ManifestError):
        inventory.record(broken, storage)
    assert [row["ark"] for row in inventory.search().rows] == ["ark:/99999/fk0", "ark:/99999/fk2"]
    assert [bool(recovered.error) for _, recovered in storage.recover_all(0)] == [True]
