"""Healing: content that an audit found damaged is written again by a deposit that brings the same bytes.

A version refers to content that the object has already, by its digest, and does not write it twice. If just that
content is damaged, the new version would be damaged from its first day although the right bytes are at hand: so they
are written over the wrong ones, and read back. All versions that have the file are whole again then. Safe to repeat,
and never wrong: at its place is what its name says.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from waybill.apps.ingest.storage.holding import read_back
from waybill.apps.ingest.storage.ocfl_inventory import Content
from waybill.apps.ingest.storage.planning import Wanted
from waybill.apps.ingest.storage.protocol import Sources
from waybill.objects import Objects
from waybill.objects.streams import portions


def heal(
    objects: Objects,
    root: str,
    sources: Sources,
    *,
    contents: Iterable[Content],
    damaged: Container[str],
    files: Mapping[str, Wanted],
    check: Callable[[], None],
) -> list[str]:
    """Write again what of `contents` lies at a damaged place and is brought by one of the files; the places."""
    brought = {wanted.sha256: wanted for wanted in files.values() if wanted.source}
    healed: list[str] = []
    for content in contents:
        wanted = brought.get(content.sha256)
        if wanted is None or content.place not in damaged:
            continue
        check()
        name, sha256 = f"{root}/{content.place}", wanted.sha256.hex()
        with sources(wanted.source) as data:
            objects.put(name, portions(data), size=wanted.size, sha256=sha256)
        read_back(objects, name, wanted.size, sha256)
        healed.append(content.place)
    return healed
