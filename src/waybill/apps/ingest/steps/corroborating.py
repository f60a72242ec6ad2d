"""Corroborating: a depositor may send a list of his files among them, mrt-manifest.txt, and what came is held
against it.

It is a manifest like those that are submitted. Every file that it names must have come, with the size and the digest
that it says; files that it does not name are no fault. What is wrong is said of each file, and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from waybill.apps.ingest.checkm import BadManifest, Kind, Row, read
from waybill.apps.ingest.describing import PRODUCER
from waybill.apps.ingest.names import shown
from waybill.apps.ingest.steps.held import Held
from waybill.apps.ingest.storage.sources import open_inside
from waybill.digests import Digests
from waybill.step import Context, Fail

LISTED = "mrt-manifest.txt"
_FEW = 5  # complaints that a sentence holds
_PORTION = 1024 * 1024


def corroborate(ctx: Context, manifest: bytes, files: Iterable[Held]) -> None:
    """Fail, if the depositor's list says otherwise than what came."""
    try:
        rows = {row.name.removeprefix(PRODUCER): row for row in read(manifest, kind=Kind.OBJECT).rows}
    except BadManifest as error:
        raise Fail(f"{PRODUCER}{LISTED} cannot be read: {error}") from error
    wrong = list(_wrong(ctx, rows, files))
    if wrong:
        more = f" And {len(wrong) - _FEW} more." if len(wrong) > _FEW else ""
        raise Fail(f"What came is not what {PRODUCER}{LISTED} lists: {' '.join(wrong[:_FEW])}{more}")


def _wrong(ctx: Context, rows: dict[str, Row], files: Iterable[Held]) -> Iterator[str]:
    for held in files:
        row = rows.pop(held.path.removeprefix(PRODUCER), None)
        if row is not None and (fault := _fault(ctx.folder, row, held)) is not None:
            yield f"{shown(held.path)}: {fault}."
    for name in rows:
        yield f"{shown(name)} did not come."


def _fault(folder: Path, row: Row, held: Held) -> str | None:
    if row.size is not None and row.size != held.size:
        return f"it has {held.size} bytes, and {row.size} are listed"
    if not row.digest:
        return None
    found = held.sha256 if row.algorithm == "sha256" else _digest(folder, held.path, row.algorithm)
    return None if found == row.digest else f"its {row.algorithm} is {found}, and {row.digest} is listed"


def _digest(folder: Path, path: str, algorithm: str) -> str:
    digests = Digests([algorithm])
    with open_inside(folder, path) as file:
        while portion := file.read(_PORTION):
            digests.update(portion)
    return digests.values[algorithm]
