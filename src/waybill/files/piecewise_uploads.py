"""Uploads in pieces, by offset: what has come stays, so that a sender who lost the connection, or reloaded its page, goes on there.

    start -> put_piece at 0, at 8 MiB ... (again, where it is not known whether one came) -> finish -> a StagedUpload, as if it had
    come in one request; or abandon

A piece is a part of an upload of the objects (waybill.objects), which keep it through restarts and for every server. The upload
itself has no record: the `PiecewiseUpload` that the sender holds says all of it, and is signed by whoever handed it out. Pieces that
nobody finishes are removed by the routine that removes temporary files; a finished upload that nobody submits by the one that
removes abandoned uploads.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

import msgspec

from waybill.digests import Digests
from waybill.errors import ActionRefused, InputError, NotFound
from waybill.files.staged_uploads import HEAD_BYTES, StagedUpload, check_file_name
from waybill.objects import MAX_PART_NUMBER, ObjectNotFound, Objects, ObjectUpload

PIECE_SIZE = 8 * 1024 * 1024  # bytes of each piece but the last; larger where there would be too many
_MEBIBYTE = 1024 * 1024


class PiecewiseUpload(msgspec.Struct, frozen=True, array_like=True):
    """An upload in pieces, as its sender holds it."""

    key: str
    name: str  # of the object that it becomes
    id: str  # of the upload of the objects
    size: int
    piece_size: int

    @property
    def filename(self) -> str:
        return self.name.rpartition("/")[2]

    def count_pieces(self) -> int:
        return max(1, -(-self.size // self.piece_size))

    def size_of_piece(self, number: int) -> int:
        return min(self.piece_size, self.size - (number - 1) * self.piece_size)


class PiecewiseUploads:
    """The uploads in pieces below one folder of the objects."""

    def __init__(
        self,
        objects: Objects,
        folder: str,
        *,
        max_bytes: int | None = None,
        draw_random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._objects, self._folder, self._max_bytes = objects, folder, max_bytes
        self._draw_random_bytes = draw_random_bytes

    def start(self, key: str, filename: str, size: int) -> PiecewiseUpload:
        """Begin an upload. `key` is one segment of a name, and leads to the record that will refer to the upload."""
        check_file_name(filename)
        if self._max_bytes is not None and size > self._max_bytes:
            raise InputError(
                f"The file is larger than {self._max_bytes:,} bytes, the most that is accepted here.", code="too-large"
            )
        name = f"{self._folder}/{key}.{self._draw_random_bytes(8).hex()}/{filename}"
        piece_size = max(PIECE_SIZE, -(-size // (MAX_PART_NUMBER * _MEBIBYTE)) * _MEBIBYTE)
        # Safe to repeat: each start has a name and an id of its own, and those that nobody goes on with are swept.
        with self._objects.upload(name, keep=True) as upload:
            return PiecewiseUpload(key, name, upload.id, size, piece_size)

    def find_offset(self, upload: PiecewiseUpload) -> int:
        """The number of bytes that have come without a gap: where the sender goes on."""
        if self._is_finished(upload):
            return upload.size
        with self._resume(upload) as stored:
            return self._measure(upload, stored)

    def put_piece(self, upload: PiecewiseUpload, offset: int, data: bytes) -> int:
        """Store a piece; return where the next one begins. Safe to repeat: a piece that came before is replaced by itself."""
        number, rest = divmod(offset, upload.piece_size)
        if rest or not 0 <= offset < upload.size:
            raise InputError(f"No piece begins at {offset}: pieces have {upload.piece_size} bytes.")
        expected = upload.size_of_piece(number + 1)
        if len(data) != expected:
            raise InputError(f"The piece at {offset} has {expected} bytes, and {len(data)} came: send it again.")
        if self._is_finished(upload):
            return upload.size
        with self._resume(upload) as stored:
            stored.put_part(number + 1, data)
            return self._measure(upload, stored)

    def finish(self, upload: PiecewiseUpload, digests: Iterable[str] = ()) -> StagedUpload:
        """Join the pieces, and read the result once for its digests. Safe to repeat: what is joined stays joined."""
        if not self._is_finished(upload):
            with self._resume(upload) as stored:
                offset = self._measure(upload, stored)
                if offset < upload.size:
                    raise ActionRefused(f"{offset:,} of {upload.size:,} bytes have come: send the rest.")
                if upload.size:
                    stored.complete()
                else:
                    self._objects.put(upload.name, b"")  # there are no pieces to join
        computed, head = Digests(digests), bytearray()
        with self._objects.get(upload.name) as body:
            for chunk in body:
                computed.update(chunk)
                if len(head) < HEAD_BYTES:
                    head.extend(chunk[: HEAD_BYTES - len(head)])
        if computed.size != upload.size:
            raise InputError(f"{computed.size} bytes came, and {upload.size} were announced: send it again.")
        return StagedUpload(upload.name, upload.filename, computed.size, computed.values, bytes(head))

    def abandon(self, upload: PiecewiseUpload) -> None:
        """Remove the pieces. Safe to repeat."""
        try:
            with self._resume(upload) as stored:
                stored.abort()
        except NotFound:
            return

    def _resume(self, upload: PiecewiseUpload) -> ObjectUpload:
        try:
            return self._objects.upload(upload.name, resume=upload.id, keep=True)
        except ObjectNotFound:
            raise NotFound(
                "This upload is not there any more: it was given up, or nothing came for a day. Send the file again.",
                code="gone",
            ) from None

    def _is_finished(self, upload: PiecewiseUpload) -> bool:
        try:
            return self._objects.head(upload.name).size == upload.size
        except ObjectNotFound:
            return False

    @staticmethod
    def _measure(upload: PiecewiseUpload, stored: ObjectUpload) -> int:
        parts, number = stored.list_parts(), 1
        while number <= upload.count_pieces() and number in parts:
            number += 1
        return min((number - 1) * upload.piece_size, upload.size)
