"""The objects of a directory in the byte order of their names, in bounded memory.

A folder's entries come in no order, so the smallest MAX_SORTED_ENTRIES are selected, then the next; a folder of ten
million entries is scanned more often, but takes no more memory. An entry stands for up to two items: the object of its
name and, if it is a folder, the objects below. Since `a!` sorts before `a/b`, the objects below the folder `a` start at
`a/` and not at `a`. Objects below a folder that continues a long segment may sort between its neighbours, so they are
merged with them.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from waybill.objects.directory_files import components_of, describe_file, open_object, text_of
from waybill.objects.directory_folders import FolderTree
from waybill.objects.protocol import RESERVED_SEGMENT, ObjectInfo, ObjectNotFound

MAX_SORTED_ENTRIES = 100_000


class _ListingItem(NamedTuple):
    lowest: bytes  # no name of this item sorts before it
    is_folder: bool  # the objects below the folder, not an object
    entry: str
    text: str  # the name up to and including this entry


# Folders that are being listed: the next name, a number to break ties, its object, the rest.
_FolderHeap: TypeAlias = list[tuple[bytes, int, ObjectInfo, Iterator[ObjectInfo]]]


class DirectoryListing:
    """One listing of the objects after a name."""

    def __init__(self, folders: FolderTree, after: str, page_size: int, folding: bool) -> None:
        self._folders = folders
        self._after = after.encode()
        self._page_size = min(MAX_SORTED_ENTRIES, max(page_size, 1))
        self._folding = folding

    def list_below(self, path: list[str], text: str, in_long_segment: bool = False) -> Iterator[ObjectInfo]:
        """List the folder at `path`, whose entries continue `text`; `in_long_segment` if a long segment continues in
        it.
        """
        try:
            with self._folders.open_folder(path) as fd:
                running: _FolderHeap = []
                for number, item in enumerate(self._sort_items(fd, text, root=not path)):
                    while running and running[0][0] < item.lowest:
                        yield _pop_next(running)
                    if item.is_folder:
                        inner = self.list_below(
                            [*path, item.entry], item.text, in_long_segment or not item.text.endswith("/")
                        )
                        _push_folder(running, number, inner)
                    elif not in_long_segment or components_of(item.text, folding=self._folding) == [*path, item.entry]:
                        info = _describe_item(fd, item)
                        if info is not None:
                            yield info
                while running:
                    yield _pop_next(running)
        except ObjectNotFound:  # the folder was removed meanwhile
            return

    def _sort_items(self, fd: int, text: str, *, root: bool) -> Iterator[_ListingItem]:
        last: _ListingItem | None = None
        while True:
            items = heapq.nsmallest(
                self._page_size, (item for item in self._scan_items(fd, text, root=root) if last is None or item > last)
            )
            yield from items
            if len(items) < self._page_size:
                return
            last = items[-1]

    def _scan_items(self, fd: int, text: str, *, root: bool) -> Iterator[_ListingItem]:
        with os.scandir(fd) as entries:
            for entry in entries:
                decoded = text_of(entry.name, folding=self._folding)
                if decoded is None or (root and entry.name == RESERVED_SEGMENT):
                    continue
                piece, is_continued = decoded
                name = text + piece
                folder = entry.is_dir(follow_symlinks=False)
                if (
                    not is_continued
                    and name.encode() > self._after
                    and (folder or entry.is_file(follow_symlinks=False))
                ):
                    yield _ListingItem(name.encode(), False, entry.name, name)
                if folder:
                    start = name if is_continued else name + "/"
                    lowest = start.encode()
                    if lowest > self._after or self._after.startswith(lowest):
                        yield _ListingItem(lowest, True, entry.name, start)


def _describe_item(fd: int, item: _ListingItem) -> ObjectInfo | None:
    file = open_object(item.entry, fd)
    if file is None:
        return None
    try:
        return describe_file(item.text, file)
    finally:
        os.close(file)


def _push_folder(running: _FolderHeap, number: int, names: Iterator[ObjectInfo]) -> None:
    info = next(names, None)
    if info is not None:
        heapq.heappush(running, (info.name.encode(), number, info, names))


def _pop_next(running: _FolderHeap) -> ObjectInfo:
    _, number, info, names = heapq.heappop(running)
    _push_folder(running, number, names)
    return info
