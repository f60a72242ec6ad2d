"""Uploads in pieces go on where they stopped, whatever happened, and end as one upload with its digests."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from waybill.errors import ActionRefused, InputError, NotFound
from waybill.files.piecewise_uploads import PIECE_SIZE, PiecewiseUploads
from waybill.objects import DirectoryObjects

DATA = bytes(range(256)) * (PIECE_SIZE // 128 + 1)  # two pieces, and a short one


@pytest.fixture
def objects(tmp_path: Path) -> DirectoryObjects:
    return DirectoryObjects(tmp_path / "objects")


@pytest.fixture
def uploads(objects: DirectoryObjects) -> PiecewiseUploads:
    return PiecewiseUploads(objects, "parcels/uploads", max_bytes=100_000_000)


def test_pieces_in_any_order_and_twice_become_the_file(uploads: PiecewiseUploads, objects: DirectoryObjects) -> None:
    upload = uploads.start("key.1", "a b.bin", len(DATA))
    assert uploads.find_offset(upload) == 0
    assert uploads.put_piece(upload, PIECE_SIZE, DATA[PIECE_SIZE : 2 * PIECE_SIZE]) == 0  # the first is missing
    with pytest.raises(ActionRefused, match="send the rest"):
        uploads.finish(upload)
    for _ in range(2):
        assert uploads.put_piece(upload, 0, DATA[:PIECE_SIZE]) == 2 * PIECE_SIZE
    # another process goes on with what the sender holds
    again = PiecewiseUploads(objects, "parcels/uploads")
    assert again.find_offset(upload) == 2 * PIECE_SIZE
    assert again.put_piece(upload, 2 * PIECE_SIZE, DATA[2 * PIECE_SIZE :]) == len(DATA)
    for _ in range(2):  # safe to repeat after a crash
        staged = again.finish(upload, ["md5"])
        assert staged.digests["sha256"] == hashlib.sha256(DATA).hexdigest()
        assert (staged.filename, staged.size, staged.name) == ("a b.bin", len(DATA), upload.name)
    assert uploads.find_offset(upload) == len(DATA)
    with objects.get(upload.name) as body:
        assert body.read() == DATA


def test_an_empty_file_has_no_pieces(uploads: PiecewiseUploads) -> None:
    assert uploads.finish(uploads.start("k", "empty", 0)).size == 0


@pytest.mark.parametrize(("offset", "size"), [(1, PIECE_SIZE), (PIECE_SIZE * 9, 1), (0, 5), (-PIECE_SIZE, PIECE_SIZE)])
def test_a_piece_that_does_not_fit_is_refused(uploads: PiecewiseUploads, offset: int, size: int) -> None:
    upload = uploads.start("k", "a", len(DATA))
    with pytest.raises(InputError):
        uploads.put_piece(upload, offset, bytes(size))
    assert uploads.find_offset(upload) == 0


def test_what_is_too_large_or_no_name_does_not_begin(uploads: PiecewiseUploads) -> None:
    for filename, size in (("a", 100_000_001), ("a/b", 1), ("", 1)):
        with pytest.raises(InputError):
            uploads.start("k", filename, size)


def test_an_upload_that_was_given_up_is_gone(uploads: PiecewiseUploads, objects: DirectoryObjects) -> None:
    upload = uploads.start("k", "a", len(DATA))
    uploads.put_piece(upload, 0, DATA[:PIECE_SIZE])
    for _ in range(2):
        uploads.abandon(upload)
    with pytest.raises(NotFound, match="Send the file again"):
        uploads.find_offset(upload)
    assert not list(objects.list())
