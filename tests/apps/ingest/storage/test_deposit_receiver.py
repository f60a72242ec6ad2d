"""DepositReceiver: two processes of one service with the same request."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.apps.ingest.storage.yard import ARK, said_by_validator, sha256
from waybill.apps.ingest.storage import ConcurrentWrite, FileToStore, protocol
from waybill.apps.ingest.storage.http_server import DepositReceiver, staging_place_of
from waybill.objects import DirectoryObjects, ObjectData

FILES = {"producer/a": b"1", "producer/b": b"2"}


def body() -> Iterator[bytes]:
    return protocol.encode_deposit(
        protocol.DepositHead(), [FileToStore(path, len(data), sha256(data), "") for path, data in FILES.items()]
    )


@pytest.fixture
def objects(tmp_path: Path) -> DirectoryObjects:
    return DirectoryObjects(tmp_path / "objects")


def test_what_another_process_has_stored_meanwhile_is_the_answer_though_nothing_is_staged_any_more(
    objects: DirectoryObjects,
) -> None:
    """A client that waited too long asks again, and another process takes it: the first ends, and clears what both
    read.
    """
    first, second = DepositReceiver(objects, "ocfl", "sha512"), DepositReceiver(objects, "ocfl", "sha512")
    for data in FILES.values():
        first.staged_content.put(staging_place_of(ARK, "r1"), sha256(data), len(data), iter([data]))
    plain = second.storage._sources

    @contextmanager
    def late(source: str) -> Iterator[ObjectData]:
        first.write(ARK, "r1", body())
        with plain(source) as data:
            yield data

    second.storage._sources = late
    stored = second.write(ARK, "r1", body())
    assert stored == first.storage.get_version(ARK)
    assert [version.request for version in first.storage.list_versions(ARK)] == ["r1"]
    assert list(objects.list(protocol.STAGED_PREFIX)) == []
    assert said_by_validator(objects.root / "ocfl") == (1, [])


def test_bytes_that_nobody_has_sent_are_missed(objects: DirectoryObjects) -> None:
    with pytest.raises(ConcurrentWrite, match="is not staged"):
        DepositReceiver(objects, "ocfl", "sha512").write(ARK, "r1", body())
