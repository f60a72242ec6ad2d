"""Reaching: which rows of a manifest lie where nothing may be fetched from, told before it is submitted. Names are
looked up, nothing is asked of any server; a redirect is only seen when the file is fetched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import httpx2

from waybill.apps.ingest import names
from waybill.apps.ingest.checkm import Row
from waybill.transfer.reach import OutOfReach, Reach, Unresolved

PATIENCE = 10.0  # seconds after which no more names are looked up


class Said(NamedTuple):
    """Of a row (line 0: of all that follow), that it would be refused, or what is worth knowing."""

    line: int
    words: str
    refused: bool


def unreachable(rows: Iterable[Row], reach: Reach, clock: Callable[[], float] = time.monotonic) -> Iterator[Said]:
    """In the order of the rows; each host is looked up once."""
    known: dict[tuple[str, str, int | None], OutOfReach | Unresolved | None] = {}
    until = clock() + PATIENCE
    for row in rows:
        try:
            url = httpx2.URL(row.url)
        except httpx2.InvalidURL as error:
            yield Said(row.line, f"{names.shown(row.url)} is not a URL: {error}.", True)
            continue
        at = (url.scheme, url.host, url.port)
        if at not in known:
            if clock() > until:
                yield Said(0, f"From line {row.line} on no more hosts were looked up: the name server is slow.", False)
                return
            known[at] = _looked_up(reach, url)
            if isinstance(known[at], Unresolved):
                yield Said(row.line, str(known[at]), False)  # once: it may only be that the name server is away
        if isinstance(known[at], OutOfReach):
            yield Said(row.line, f"It would not be fetched. {known[at]}", True)


def _looked_up(reach: Reach, url: httpx2.URL) -> OutOfReach | Unresolved | None:
    try:
        reach.addresses(url)
    except (OutOfReach, Unresolved) as error:
        return error
    return None
