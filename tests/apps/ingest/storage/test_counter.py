"""The counter at which storage takes deposits: two processes of one service at the same request."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.apps.ingest.storage.yard import ARK, said_by_validator, sha256
from waybill.apps.ingest.storage import FileToStore, Late, wire
from waybill.apps.ingest.storage.counter import Counter, place_of
from waybill.objects import Data, Directory

FILES = {"producer/a": b"1", "producer/b": b"2"}


def body() -> Iterator[bytes]:
    return wire.lines_of(wire.Head(), [FileToStore(path, len(data), sha256(data), "") for path, data in FILES.items()])


@pytest.fixture
def objects(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "objects")


def test_what_another_process_has_stored_meanwhile_is_the_answer_though_nothing_is_staged_any_more(
    objects: Directory,
) -> None:
    """A client that waited too long asks again, and another process takes it: the first ends, and clears what both
    read.
    """
    first, second = Counter(objects, "ocfl", "sha512"), Counter(objects, "ocfl", "sha512")
    for data in FILES.values():
        first.staged.put(place_of(ARK, "r1"), sha256(data), len(data), iter([data]))
    plain = second.storage._sources

    @contextmanager
    def late(source: str) -> Iterator[Data]:
        first.write(ARK, "r1", body())
        with plain(source) as data:
            yield data

    second.storage._sources = late
    stored = second.write(ARK, "r1", body())
    assert stored == first.storage.stored(ARK)
    assert [version.request for version in first.storage.versions(ARK)] == ["r1"]
    assert list(objects.list(wire.STAGED)) == []
    assert said_by_validator(objects.root / "ocfl") == (1, [])


def test_bytes_that_nobody_has_sent_are_missed(objects: Directory) -> None:
    with pytest.raises(Late, match="have not come"):
        Counter(objects, "ocfl", "sha512").write(ARK, "r1", body())
