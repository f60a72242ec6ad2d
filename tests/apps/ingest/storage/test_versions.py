"""Deposits become versions, readable for ever, in a storage root about which a validator has nothing to say."""

import json
import tracemalloc
from pathlib import Path

import pytest

from tests.apps.ingest.storage.yard import ARK, Bytes, copy_storage, files_of, said_by_validator, sha256
from waybill.apps.ingest.storage import (
    MANIFEST_PATH,
    Deposit,
    FileToStore,
    InvalidDeposit,
    NotInStorage,
    OcflStorage,
    StorageDamaged,
    StorageService,
)
from waybill.objects import ContentMismatch, DirectoryObjects, Objects

FILES = {
    "producer/a.txt": b"first",
    "producer/deep/b.txt": b"second",
    "producer/same.txt": b"first",
    "system/mrt-erc.txt": b"erc:\n",
}


def test_a_service_is_what_the_protocol_says(storage: OcflStorage) -> None:
    service: StorageService = storage
    assert service.find_by_request(ARK, "none") is None


def test_add_and_update_and_delete(objects: Objects, storage: OcflStorage, sources: Bytes, tmp_path: Path) -> None:
    storage.write(sources.deposit("one", FILES, message="First.", user="A. Depositor", address="mailto:a@example.org"))
    second = sources.deposit("two", {"producer/a.txt": b"changed"}, mode="update", deletions=["producer/same.txt"])
    storage.write(second)
    storage.write(sources.deposit("three", {"only.txt": b"second"}))
    expected = {**FILES, "producer/a.txt": b"changed"}
    del expected["producer/same.txt"]
    assert [files_of(storage, n) for n in (1, 2, 3, 0)] == [
        FILES,
        expected,
        {"only.txt": b"second"},
        {"only.txt": b"second"},
    ]
    assert [(v.number, v.request, v.user, v.message) for v in storage.list_versions(ARK)] == [
        (1, "one", "A. Depositor", "First."),
        (2, "two", "waybill", ""),
        (3, "three", "waybill", ""),
    ]
    assert said_by_validator(copy_storage(objects, "ocfl", tmp_path / "copy")) == (1, [])
    assert list(storage.verify(ARK)) == []


def test_bytes_are_kept_once_for_all_versions(objects: Objects, storage: OcflStorage, sources: Bytes) -> None:
    storage.write(sources.deposit("one", FILES))
    storage.write(sources.deposit("two", {**FILES, "producer/new.txt": b"second"}))
    content = [info.name.rsplit("/", 1)[1] for info in objects.list("ocfl") if "/content/" in info.name]
    manifests = {storage.get_version(ARK, n).sha256 for n in (1, 2)}
    assert sorted(content) == sorted([*{sha256(data) for data in FILES.values()}, *manifests])
    assert sources.opened == {sha256(data): 1 for data in FILES.values()}


def test_the_same_request_makes_no_second_version(storage: OcflStorage, sources: Bytes) -> None:
    first = storage.write(sources.deposit("one", FILES))
    storage.write(sources.deposit("two", {"b": b"b"}))
    assert storage.write(sources.deposit("one", {"other": b"other"})) == first
    assert storage.find_by_request(ARK, "one") == first == storage.get_version(ARK, 1)
    assert (storage.find_by_request(ARK, "three"), len(storage.list_versions(ARK))) == (None, 2)


def test_a_request_is_not_found_in_the_words_of_another(storage: OcflStorage, sources: Bytes) -> None:
    storage.write(sources.deposit("one", FILES, message="This was\nRequest: two\nbut for a reason"))
    assert storage.find_by_request(ARK, "two") is None
    assert storage.write(sources.deposit("two", FILES)).version == 2


def test_the_manifest_of_a_version_says_everything(storage: OcflStorage, sources: Bytes) -> None:
    about = {"owner": "ark:/13030/owner", "local_ids": ["x;y"], "title": "Ünï"}
    stored = storage.write(sources.deposit("one", FILES, about=about))
    with storage.open_manifest(stored) as reader:
        rows = {entry.uri: (entry.size, entry.sha256, entry.extra["mime"]) for entry in reader}
        header = reader.header.about
    assert rows == {path: (len(data), sha256(data), "text/plain") for path, data in FILES.items()}
    assert (header["object"], header["version"], header["request"], header["about"]) == (ARK, 1, "one", about)
    assert storage.check(ARK, stored.place, stored.size, stored.sha256) is None


def test_files_are_read_whole_and_in_ranges(storage: OcflStorage, sources: Bytes) -> None:
    storage.write(sources.deposit("one", FILES))
    with storage.open_file(ARK, "producer/deep/b.txt", start=2, end=5) as body:
        assert body.read() == b"con"
    with storage.open_file(ARK, MANIFEST_PATH) as body:
        assert body.read().startswith(b'{"waybill":"manifest"')
    for version, path in ((0, "producer/none"), (2, "producer/a.txt")):
        with pytest.raises(NotInStorage):
            storage.open_file(ARK, path, version)
    with pytest.raises(NotInStorage):
        storage.list_versions("ark:/99999/none")


ODD = [
    "a%20b",
    "100%",
    "back\\slash",
    "new\nline",
    "A",
    "a",
    "é",
    "e\u0301",
    "\U0001f600/\u65e5\u672c",
    "x" * 400,
    "d/" * 200 + "x",
    " ",
    "=",
    "~",
]


def test_every_path_that_a_depositor_can_write(
    objects: Objects, storage: OcflStorage, sources: Bytes, tmp_path: Path
) -> None:
    files = {f"producer/{path}": path.encode() for path in ODD}
    storage.write(sources.deposit("one", files))
    assert files_of(storage) == files
    assert said_by_validator(copy_storage(objects, "ocfl", tmp_path / "copy")) == (1, [])


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", ".", "a/../b", "a\0b", "\ud800", MANIFEST_PATH, "system", f"{MANIFEST_PATH}/x"]
)
def test_paths_that_are_none(storage: OcflStorage, path: str) -> None:
    with pytest.raises(InvalidDeposit):
        storage.write(Deposit(object=ARK, request="one", files=[FileToStore(path, 0, sha256(b""), "")]))


def test_deposits_that_are_none(storage: OcflStorage, sources: Bytes) -> None:
    storage.write(sources.deposit("one", {"a": b"a"}))
    twice = [FileToStore("a", 1, sha256(b"a"), ""), FileToStore("a", 1, sha256(b"a"), "")]
    for deposit in (
        sources.deposit("two", {}),
        sources.deposit("two", {"a/b": b""}, mode="update"),
        sources.deposit("two", {"b": b""}, mode="update", deletions=["c"]),
        sources.deposit("two", {"b": b""}, deletions=["a"]),
        sources.deposit("two", {}, mode="update", deletions=["a"]),
        sources.deposit("", {"a": b""}),
        sources.deposit("x\ny", {"a": b""}),
        Deposit(object=ARK, request="two", files=twice),
        Deposit(object=ARK, request="two", files=[FileToStore("a", 1, "abc", "")]),
    ):
        with pytest.raises(InvalidDeposit):
            storage.write(deposit)
    assert len(storage.list_versions(ARK)) == 1


def test_bytes_that_are_not_those_that_were_promised(objects: Objects, storage: OcflStorage, sources: Bytes) -> None:
    deposit = sources.deposit("one", {"producer/a": b"a", "producer/b": b"b"})
    sources.held[sha256(b"b")] = b"c"
    with pytest.raises(ContentMismatch, match="producer/b"):
        storage.write(deposit)
    with pytest.raises(NotInStorage):
        storage.list_versions(ARK)
    storage.recover(ARK)
    assert [info.name for info in objects.list("ocfl") if "v1" in info.name] == []


def test_a_writer_that_is_no_longer_in_charge_publishes_nothing(storage: OcflStorage, sources: Bytes) -> None:
    class Lost(Exception):
        pass

    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Lost

    with pytest.raises(Lost):
        storage.write(sources.deposit("one", FILES), check=check)
    assert storage.find_by_request(ARK, "one") is None


def test_all_objects_are_found_from_a_cursor_on(storage: OcflStorage, sources: Bytes) -> None:
    ids = {f"ark:/99999/fk{n}" for n in range(7)}
    for object_id in ids:
        storage.write(sources.deposit("one", {"a": b"a", "b": b"b"}, object_id))
    found = list(storage.list_objects())
    assert {object_id for _, object_id in found} == ids
    assert list(storage.list_objects(found[2][0])) == found[3:]


def test_sha256_alone_if_one_prefers_it(tmp_path: Path, sources: Bytes) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        storage = OcflStorage(objects, "ocfl", sources, algorithm="sha256")
        storage.write(sources.deposit("one", FILES))
        # An object keeps the digest it began with.
        storage = OcflStorage(objects, "ocfl", sources)
        storage.write(sources.deposit("two", {"x": b"x"}, mode="update"))
        assert files_of(storage) == {**FILES, "x": b"x"}
        assert list(storage.verify(ARK)) == []
        # Warnings aside: OCFL allows SHA-256 and prefers SHA-512.
        assert said_by_validator(tmp_path / "ocfl", warnings=False) == (1, [])


def test_a_root_without_a_layout_and_one_that_is_not_ours(tmp_path: Path, sources: Bytes) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        OcflStorage(objects, "bare", sources, declare_layout=False).write(sources.deposit("one", FILES))
        assert said_by_validator(tmp_path / "bare") == (1, [])
        assert sorted(entry.name for entry in (tmp_path / "bare").iterdir() if entry.is_file()) == ["0=ocfl_1.1"]
        objects.put(
            "other/ocfl_layout.json", b'{"extension": "0003-hash-and-id-n-tuple-storage-layout", "description": ""}'
        )
        with pytest.raises(StorageDamaged):
            OcflStorage(objects, "other", sources).write(sources.deposit("one", FILES))
        with pytest.raises(InvalidDeposit):
            OcflStorage(objects, "", sources)


def test_an_object_lies_where_the_layout_says(tmp_path: Path, sources: Bytes) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        OcflStorage(objects, "ocfl", sources).write(sources.deposit("one", FILES))
    layout = json.loads((tmp_path / "ocfl" / "ocfl_layout.json").read_bytes())["extension"]
    config = json.loads((tmp_path / "ocfl" / "extensions" / layout / "config.json").read_bytes())
    assert config == {
        "extensionName": "0004-hashed-n-tuple-storage-layout",
        "digestAlgorithm": "sha256",
        "tupleSize": 2,
        "numberOfTuples": 2,
        "shortObjectRoot": False,
    }
    digest = sha256(ARK.encode())
    assert (tmp_path / "ocfl" / digest[:2] / digest[2:4] / digest / "inventory.json").is_file()


def test_memory_stays_bounded_with_many_files(tmp_path: Path, sources: Bytes) -> None:
    """What is held for each file is small, and no inventory is in memory as a whole while it is written."""
    count = 4000
    sources.held["x"] = b""
    files = (FileToStore(f"producer/folder/{n:040d}.txt", 0, sha256(b""), "x") for n in range(count))
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        storage = OcflStorage(objects, "ocfl", sources)
        tracemalloc.start()
        try:
            storage.write(Deposit(object=ARK, request="one", files=files))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 8_000_000 + count * 1000
