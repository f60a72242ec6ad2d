"""The mnemonics of collections, by which they are put on hold. A profile names its collections by their ARKs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from waybill.apps.ingest.profile import Profile
from waybill.record import Page, Record

PAGE_SIZE = 200


def mnemonics_by_ark(find: Callable[..., Page]) -> dict[str, str]:
    """Return the mnemonics of all collections. `find` is that of a store or of a step context."""
    return {ark: record.id for record in _read_collections(find) if (ark := _ark_of(record))}


def mnemonics_of(profile: Profile, by_ark: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(by_ark[ark] for ark in profile.collections if ark in by_ark))


def _read_collections(find: Callable[..., Page]) -> Iterable[Record]:
    after: int | None = None
    while True:
        page = find("collection", after=after, limit=PAGE_SIZE, documents=True)
        yield from (record for record in page.records if record.state != "Deleted")
        if page.after is None:
            return
        after = page.after


def _ark_of(record: Record) -> str:
    document = record.documents.get("collection")
    ark = document.get("ark") if isinstance(document, dict) else None
    return ark if isinstance(ark, str) else ""
