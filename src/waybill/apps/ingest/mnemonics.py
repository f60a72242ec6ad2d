"""Mnemonics: the names by which the collections of a profile are put on hold.

A profile names its collections by their ARKs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from waybill.apps.ingest.profile import Profile
from waybill.record import Page, Record

PORTION = 200


def by_ark(find: Callable[..., Page]) -> dict[str, str]:
    """Of all collections that are known here, read page by page with a store's `find`, or a step's."""
    return {ark: record.id for record in _collections(find) if (ark := _ark(record))}


def of(profile: Profile, known: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(known[ark] for ark in profile.collections if ark in known))


def _collections(find: Callable[..., Page]) -> Iterable[Record]:
    after: int | None = None
    while True:
        page = find("collection", after=after, limit=PORTION, docs=True)
        yield from (record for record in page.records if record.state != "Deleted")
        if page.after is None:
            return
        after = page.after


def _ark(record: Record) -> str:
    document = record.docs.get("collection")
    ark = document.get("ark") if isinstance(document, dict) else None
    return ark if isinstance(ark, str) else ""
