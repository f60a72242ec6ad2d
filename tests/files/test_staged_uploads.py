"""Uploads are streamed and hashed, have names of their own, and leave nothing behind when they are refused."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from waybill.errors import InputError
from waybill.files.staged_uploads import HEAD_BYTES, StagedUploads, upload_key_of
from waybill.objects import DirectoryObjects, ObjectStoreUnavailable
from waybill.objects.protocol import ObjectsError
from waybill.rules import ActionRefused


@pytest.fixture
def objects(tmp_path: Path) -> DirectoryObjects:
    return DirectoryObjects(tmp_path / "objects")


@pytest.fixture
def uploads(objects: DirectoryObjects) -> StagedUploads:
    return StagedUploads(objects, "parcels/uploads", max_bytes=10_000)


def list_names(objects: DirectoryObjects) -> list[str]:
    return [info.name for info in objects.list()]


@pytest.mark.parametrize("streamed", [False, True])
def test_an_upload_is_stored_with_its_digests(
    uploads: StagedUploads, objects: DirectoryObjects, streamed: bool
) -> None:
    data = b"abc" * 3000
    upload = uploads.receive(
        "key.1", "a b.txt", io.BytesIO(data) if streamed else [data[:5], data[5:]], digests=["MD5"]
    )
    assert (upload.filename, upload.size, upload.head) == ("a b.txt", len(data), data[:HEAD_BYTES])
    assert upload.digests == {
        "sha256": hashlib.sha256(data).hexdigest(),
        "md5": hashlib.md5(data, usedforsecurity=False).hexdigest(),
    }
    with objects.get(upload.name) as body:
        assert body.read() == data
    assert upload_key_of("parcels/uploads", upload.name) == "key.1"


def test_the_same_file_sent_twice_is_stored_twice(uploads: StagedUploads, objects: DirectoryObjects) -> None:
    names = [uploads.receive("k", "a", [b"x"]).name for _ in range(2)]
    assert list_names(objects) == sorted(names)


@pytest.mark.parametrize("filename", ["", "a/b", "..", "a\nb", "x" * 256])
def test_a_name_that_is_no_file_name_is_refused(
    uploads: StagedUploads, objects: DirectoryObjects, filename: str
) -> None:
    with pytest.raises(InputError):
        uploads.receive("k", filename, [b"x"])
    assert list_names(objects) == []


def test_what_is_too_long_or_breaks_off_is_not_stored(uploads: StagedUploads, objects: DirectoryObjects) -> None:
    def break_off() -> Iterator[bytes]:
        yield b"x"
        raise ConnectionResetError

    with pytest.raises(InputError, match="larger than 10,000 bytes"):
        uploads.receive("k", "a", [bytes(6000), bytes(6000)])
    with pytest.raises(ConnectionResetError):
        uploads.receive("k", "a", break_off())
    assert list_names(objects) == []


def test_a_digest_that_is_named_later_is_computed_from_what_is_stored(
    uploads: StagedUploads, objects: DirectoryObjects
) -> None:
    upload = uploads.receive("k", "a", [b"abc"])
    more = uploads.add_digest(upload, "SHA-1")
    assert more.digests == {**upload.digests, "sha1": hashlib.sha1(b"abc", usedforsecurity=False).hexdigest()}
    assert uploads.add_digest(upload, "sha-256") is upload
    objects.put(upload.name, b"abd")
    with pytest.raises(InputError, match="damaged in storage"):
        uploads.add_digest(upload, "sha1")


def test_uploads_are_removed_after_a_refusal_and_stay_after_any_other_error(
    uploads: StagedUploads, objects: DirectoryObjects
) -> None:
    def receive_and_raise(error: Exception | None) -> None:
        with uploads.remove_on_refusal() as keep:
            keep(uploads.receive("k", "a", [b"x"]))
            if error is not None:
                raise error

    with pytest.raises(ActionRefused):
        receive_and_raise(ActionRefused("no"))
    assert list_names(objects) == []
    with pytest.raises(RuntimeError):
        receive_and_raise(RuntimeError())
    receive_and_raise(None)
    assert len(list_names(objects)) == 2


def test_a_removal_that_is_not_possible_now_is_left_to_maintenance(
    uploads: StagedUploads, objects: DirectoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = uploads.receive("k", "a", [b"x"])

    def fail(name: str) -> bool:
        raise ObjectStoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(objects, "delete", fail)
        uploads.remove(upload)
    uploads.remove(upload)
    uploads.remove(upload)  # it is gone
    assert list_names(objects) == []


def test_a_removal_that_will_never_be_possible_is_an_error(
    uploads: StagedUploads, objects: DirectoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> bool:
        raise ObjectsError("no", code="objects-denied")

    upload = uploads.receive("k", "a", [b"x"])
    monkeypatch.setattr(objects, "delete", fail)
    with pytest.raises(ObjectsError):
        uploads.remove(upload)


def test_a_name_that_is_not_ours_has_no_key() -> None:
    assert upload_key_of("up", "up/by-hand/a.txt") == ""
    assert upload_key_of("up", "up/k.0123/a.txt") == "k"
