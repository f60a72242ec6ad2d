"""Staged content: each file once, kept while somebody works on its place, and cleared as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from waybill.files import staged_content
from waybill.files.staged_content import StagedContent
from waybill.objects import ContentMismatch, DirectoryObjects, ObjectNotFound


@pytest.fixture
def objects(tmp_path: Path) -> DirectoryObjects:
    return DirectoryObjects(tmp_path / "objects")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_in_use(objects: DirectoryObjects, place: str) -> bool:
    return any(info.name == f"{place}/in-use" for info in objects.list(place))


def test_a_file_is_staged_once_and_can_be_read(objects: DirectoryObjects) -> None:
    staged = StagedContent(objects)
    assert staged.put("staged/p", sha256(b"one"), 3, iter([b"o", b"ne"]))
    sent = iter([b"one"])
    assert not staged.put("staged/p", sha256(b"one"), 3, sent)
    assert list(sent) == [], "the sender's bytes are read to the end"
    assert list(staged.list_files("staged/p")) == [(sha256(b"one"), 3)]
    with staged.open("staged/p", sha256(b"one")) as chunks:
        assert b"".join(chunks) == b"one"


def test_what_is_not_what_it_says_is_not_staged(objects: DirectoryObjects) -> None:
    staged = StagedContent(objects)
    with pytest.raises(ContentMismatch):
        staged.put("staged/p", sha256(b"one"), 3, iter([b"two"]))
    assert list(staged.list_files("staged/p")) == []
    with pytest.raises(ObjectNotFound), staged.open("staged/p", sha256(b"one")):
        pass


def test_a_place_is_cleared_without_its_neighbours(objects: DirectoryObjects) -> None:
    staged = StagedContent(objects)
    for place in ("staged/p", "staged/p2"):
        staged.put(place, sha256(b"one"), 3, iter([b"one"]))
        staged.touch(place)
    staged.clear("staged/p")
    staged.clear("staged/p")
    assert [info.name for info in objects.list()] == sorted([f"staged/p2/{sha256(b'one')}", "staged/p2/in-use"])


def test_a_place_is_touched_while_many_bytes_pass(objects: DirectoryObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_content, "_TOUCH_INTERVAL_BYTES", 1_100_000)  # a file and some of its chunks
    staged = StagedContent(objects)
    data = b"x" * 100_000

    def send() -> Iterator[bytes]:
        assert not is_in_use(objects, "staged/p")
        for _ in range(10):
            yield data[:10_000]
        assert is_in_use(objects, "staged/p")

    staged.put("staged/p", sha256(data), len(data), send())
    objects.delete("staged/p/in-use")
    with staged.open("staged/p", sha256(data)) as chunks:
        assert b"".join(chunks) == data
    assert is_in_use(objects, "staged/p")


def test_the_places_that_are_counted_are_bounded(objects: DirectoryObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_content, "_MAX_COUNTED_PLACES", 3)
    staged = StagedContent(objects)
    for number in range(20):
        staged.put(f"staged/{number}", sha256(b"one"), 3, iter([b"one"]))
        assert len(staged._byte_counts) <= 4
