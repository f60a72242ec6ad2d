"""The folder `system` beside a job's files, for a storage service that reads it: the system files, and two lists.

mrt-manifest.txt               what storage is to keep: every file of producer/ and system/ but the two lists, with its SHA-256
mrt-submission-manifest.txt    what the depositor asked to be fetched
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from waybill.apps.ingest import lists
from waybill.apps.ingest.checkm import Row, object_manifest, storage_manifest
from waybill.apps.ingest.steps.held import Held
from waybill.apps.ingest.steps.publishing import publish
from waybill.apps.ingest.steps.working import working_files
from waybill.record import Record
from waybill.step import Context

MANIFEST = "mrt-manifest.txt"
SUBMITTED = "mrt-submission-manifest.txt"


def write_system(job: Record, ctx: Context, files: Mapping[str, bytes], system: Iterable[Held]) -> None:
    """Write the files by their names, and the lists; `system` is what is known of the files."""
    folder = ctx.workdir / "system"  # this attempt's own: a second run makes another
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        with open(folder / name, "wb", buffering=0) as small:
            small.write(data)  # not synced: it is made again from the record whenever it is needed
    with open(folder / SUBMITTED, "wb") as file:
        rows = lists.each(ctx.objects, job.docs["files"], Row) if isinstance(job.docs.get("files"), dict) else ()
        file.writelines(object_manifest(_writable(row) for row in rows))
    with open(folder / MANIFEST, "wb") as file:
        file.writelines(storage_manifest(_rows(itertools.chain(working_files(job, ctx), system), ctx.folder)))
    publish(ctx, "system")


def _rows(files: Iterable[Held], folder: Path) -> Iterator[Row]:
    for held in files:
        # As a storage service that shares the disk reads it; quoting leaves no | in it.
        url = f"file://{quote(str(folder))}/{quote(held.path)}"
        yield _writable(Row(0, url, held.path, "sha256", held.sha256, held.size, "", held.mime))


def _writable(row: Row) -> Row:
    """The row, with what the format cannot hold in a name written with %."""
    name = row.name.replace("|", "%7C")
    if name != name.strip():
        name = quote(name[:1]) + name[1:-1] + quote(name[-1:])
    return msgspec.structs.replace(row, name=name) if name != row.name else row
