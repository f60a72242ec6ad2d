"""Uploads of a directory: parts as files of a folder, joined at the end.

    .waybill/uploads/<id>/name       the name of the object to be, in UTF-8
    .waybill/uploads/<id>/00001      part 1; each is written aside and renamed, so a part is there whole or not at all

`complete` writes the parts one after the other into a new file, digesting them on the way, publishes it like any put,
and then drops the folder. Two that complete the same upload at once both publish the same bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from waybill.objects.files import explained, open_object, write_all
from waybill.objects.folders import OWN, At, Folders, remove_tree
from waybill.objects.protocol import PART_LEAST, PART_MOST, NotFound, ObjectInfo, PartInfo, Refused
from waybill.objects.publishing import Publisher
from waybill.objects.streams import PORTION, Stream, check_conditions


class DirectoryUpload:
    def __init__(
        self,
        folders: Folders,
        publisher: Publisher,
        name: str,
        path: list[str],
        *,
        token: Callable[[], str],
        at: At,
        resume: str | None,
        keep: bool,
    ) -> None:
        self._folders, self._publisher, self._at = folders, publisher, at
        self.name = name
        self._path = path
        self._keep = keep
        self._open = True
        if resume is None:
            self.id = token()
            self._begin()
        else:
            self.id = resume
            self._resume()

    def parts(self) -> Mapping[int, PartInfo]:
        found: dict[int, PartInfo] = {}
        with explained(f"look at the upload of {self.name!r}"), self._folder() as folder:
            for entry in sorted(os.listdir(folder)):
                if re.fullmatch("[0-9]{5}", entry):
                    seen = os.stat(entry, dir_fd=folder, follow_symlinks=False)
                    found[int(entry)] = PartInfo(int(entry), seen.st_size, f"{seen.st_mtime_ns:x}-{seen.st_size:x}")
        return found

    def part(self, number: int, data: bytes) -> PartInfo:
        check_part(number, data)
        with (
            self._publisher.temp(f"part {number} of {self.name!r}") as (fd, temp),
            explained(f"write part {number} of {self.name!r}"),
        ):
            write_all(fd, data)
            self._folders.sync(fd)
            with self._folder() as folder, self._folders.tmp() as tmp:
                os.rename(temp, f"{number:05d}", src_dir_fd=tmp, dst_dir_fd=folder)
                self._at("renamed")
                self._folders.sync(folder)
            seen = os.fstat(fd)
        return PartInfo(number, seen.st_size, f"{seen.st_mtime_ns:x}-{seen.st_size:x}")

    def complete(
        self, *, if_absent: bool = False, if_match: str | None = None, sha256: str | None = None
    ) -> ObjectInfo:
        check_conditions(if_absent, if_match)
        parts = self.parts()
        check_parts(self.name, parts)
        stream = Stream(self._joined(list(parts)), size=sum(part.size for part in parts.values()), sha256=sha256)
        with self._publisher.temp(repr(self.name)) as (fd, temp), explained(f"join the parts of {self.name!r}"):
            for portion in stream:
                write_all(fd, portion)
            info = self._publisher.publish(
                self.name, self._path, fd, temp, stream.sha256, if_absent=if_absent, if_match=if_match
            )
        self._open = False
        self._drop()
        return info

    def abort(self) -> None:
        self._open = False
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A crash in a simulator is no Exception, and a dead process drops nothing.
        if self._open and not self._keep and (kind is None or issubclass(kind, Exception)):
            self.abort()

    def _begin(self) -> None:
        with explained(f"begin the upload of {self.name!r}"), self._folders.make([*OWN, "uploads", self.id]) as folder:
            with self._publisher.temp(f"the upload of {self.name!r}") as (fd, temp), self._folders.tmp() as tmp:
                write_all(fd, self.name.encode())
                self._folders.sync(fd)
                os.rename(temp, "name", src_dir_fd=tmp, dst_dir_fd=folder)
                self._folders.sync(folder)
                self._at("upload made")

    def _resume(self) -> None:
        there = b""
        if re.fullmatch("[0-9A-Za-z_-]+", self.id):
            with explained(f"resume the upload of {self.name!r}"), self._folder() as folder:
                fd = open_object("name", folder)
                if fd is not None:
                    with os.fdopen(fd, "rb") as file:
                        there = file.read()
        if there != self.name.encode():
            raise NotFound(f"There is no upload {self.id!r} of {self.name!r}: it was completed, aborted or swept.")

    @contextmanager
    def _folder(self) -> Iterator[int]:
        try:
            with self._folders.find([*OWN, "uploads", self.id]) as folder:
                yield folder
        except NotFound:
            raise NotFound(
                f"There is no upload {self.id!r} of {self.name!r}: it was completed, aborted or swept."
            ) from None

    def _joined(self, numbers: list[int]) -> Iterator[bytes]:
        with self._folder() as folder:
            for number in numbers:
                fd = open_object(f"{number:05d}", folder)
                if fd is None:
                    raise NotFound(f"Part {number} of the upload of {self.name!r} is gone.")
                with os.fdopen(fd, "rb", buffering=0) as file:
                    while portion := file.read(PORTION):
                        yield portion

    def _drop(self) -> None:
        with explained(f"drop the upload of {self.name!r}"), self._folders.find([*OWN, "uploads"]) as uploads:
            remove_tree(uploads, self.id)
            self._at("upload dropped")


def check_part(number: int, data: bytes) -> None:
    if not 1 <= number <= PART_MOST:
        raise Refused(f"The parts of an upload are numbered from 1 to {PART_MOST}: {number} is not among them.")
    if not data:
        raise Refused(f"Part {number} is empty.")


def check_parts(name: str, parts: Mapping[int, PartInfo]) -> None:
    """S3's rule, kept here as well, so that what works on a directory works there."""
    if not parts:
        raise Refused(f"No part of {name!r} has arrived: an empty object is made with put.")
    last = max(parts)
    for part in parts.values():
        if part.number != last and part.size < PART_LEAST:
            raise Refused(
                f"Part {part.number} of {name!r} has {part.size} bytes: every part but the last must have {PART_LEAST}."
            )
