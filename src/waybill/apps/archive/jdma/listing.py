"""Files and archives of migrations as JDMA lists them, streamed a page at a time: a batch may have a million files.

Each page is read on a connection of its own, because the pieces of an answer may be asked for by different threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from waybill.apps.archive.catalogue import ArchiveRow, MigrationRow, decode_path
from waybill.apps.archive.files import to_printable

if TYPE_CHECKING:
    from waybill.apps.archive.resources import ArchiveResources

PAGE = 1000
ARCHIVES_OF_MIGRATION = 10**6  # their lasting numbers


def iter_listing(
    resources: ArchiveResources, rows: list[MigrationRow], query: Mapping[str, Any], *, with_files: bool
) -> Iterator[bytes]:
    """The answer to `file` or `archive`. `limit`: of the files in each archive, or of the archives; 0: all."""
    try:
        limit = max(0, int(query.get("limit", 0)))
    except ValueError:
        limit = 0
    with_digests = "digest" in query  # with any value, as JDMA has it
    yield b'{"migrations":['
    for place, row in enumerate(rows):
        head = msgspec.json.encode(
            {
                "migration_id": row.number,
                "user": row.owner,
                "workspace": row.workspace,
                "label": row.label,
                "storage": row.storage,
            }
        )
        yield (b"," if place else b"") + head[:-1] + b',"archives":['
        is_first = True
        for archive in _iter_archives(resources, row.number, 0 if with_files else limit):
            shown: dict[str, Any] = {
                "archive_id": f"archive_{row.number * ARCHIVES_OF_MIGRATION + archive.number:010d}",
                "pk": row.number * ARCHIVES_OF_MIGRATION + archive.number,
                "size": archive.size,
                "limit": limit,
            }
            if with_digests:
                shown |= {"digest": archive.sha256, "digest_format": "SHA256"}
            text = msgspec.json.encode(shown)
            yield b"" if is_first else b","
            is_first = False
            if with_files:
                yield text[:-1] + b',"files":['
                yield from _iter_files(resources, row.number, archive.number, limit, with_digests)
                yield b"]}"
            else:
                yield text
        yield b"]}"
    yield b"]}"


def _iter_archives(resources: ArchiveResources, migration: int, limit: int) -> Iterator[ArchiveRow]:
    """The archives that were sent."""
    after, count = 0, 0
    while True:
        with resources.connections.open() as tables:
            page = tables.list_archives(migration, after, PAGE)
        for archive in page:
            if archive.sha256:
                yield archive
                count += 1
                if count == limit:
                    return
        if len(page) < PAGE:
            return
        after = page[-1].number


def _iter_files(
    resources: ArchiveResources, migration: int, archive: int, limit: int, with_digests: bool
) -> Iterator[bytes]:
    """The regular files, each on its own: JDMA leaves out what has no digest. `pk ` has a blank at its end there."""
    after, count = 0, 0
    while True:
        with resources.connections.open() as tables:
            page = tables.list_files(migration, after=after, archive=archive)
        lines = []
        for file in page:
            if file.sha256:
                shown: dict[str, Any] = {
                    "pk ": file.number,
                    "path": to_printable(decode_path(file.path)),
                    "size": file.size,
                }
                if with_digests:
                    shown |= {"digest": file.sha256, "digest_format": "SHA256"}
                lines.append(msgspec.json.encode(shown))
                if limit and count + len(lines) == limit:
                    break
        if lines:
            yield (b"," if count else b"") + b",".join(lines)
            count += len(lines)
        if len(page) < PAGE or (limit and count == limit):
            return
        after = page[-1].number
