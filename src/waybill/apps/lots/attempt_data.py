"""What an attempt wrote: in a folder of its own, so that nobody else's data lie there.

    PATH lot=LOT/attempt=ATTEMPT/…    below the dataset's path

A failed attempt is listed into a manifest of state `partial`; its data are removed, which is verified by another listing; then
its manifest says `removed`. Each part of it may run twice: a manifest is written before anything is removed, and what is
gone is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.apps.lots.declaration.documents import DatasetDeclaration
from waybill.apps.lots.locations import Locations
from waybill.apps.lots.lot_manifests import LotEntry, LotManifest, LotManifestWriter, ObjectFacts, encode_manifest
from waybill.apps.lots.naming import MANIFEST_FILE, ManifestKey, ManifestState
from waybill.apps.lots.units import Lot, format_instant
from waybill.objects import ObjectNotFound, Objects


def attempt_prefix(locations: Locations, dataset: DatasetDeclaration, lot: Lot, attempt: str) -> str:
    """Return the URI of the folder of an attempt."""
    return f"{locations.absolute(dataset.path)}lot={lot}/attempt={attempt}/"


def attempt_key(dataset: DatasetDeclaration, lot: Lot, state: ManifestState, attempt: str) -> ManifestKey:
    return ManifestKey(dataset.name, dataset.version, str(lot), state, attempt)


def iter_written(
    locations: Locations, dataset: DatasetDeclaration, lot: Lot, attempt: str
) -> Iterator[tuple[str, LotEntry]]:
    """Yield the name in its store, and the entry, of each object that an attempt wrote."""
    folder = locations.find_folder(dataset.path)
    below = f"lot={lot}/attempt={attempt}"
    prefix = f"{folder.name}/{below}" if folder.name else below
    base = attempt_prefix(locations, dataset, lot, attempt)
    for info in folder.objects.list(prefix):
        facts = ObjectFacts(info.size, info.sha256, format_instant(info.modified))
        yield info.name, LotEntry(base + info.name[len(prefix) + 1 :], facts)


def write_attempt_manifest(
    objects: Objects,
    locations: Locations,
    dataset: DatasetDeclaration,
    lot: Lot,
    attempt: str,
    *,
    comment: str,
    at: str,
) -> str:
    """List what a failed attempt wrote into a manifest of state `partial`; returns its name."""
    key = attempt_key(dataset, lot, "partial", attempt)
    head = LotManifest("partial", comment or None, str(lot), dataset=dataset.title, attempt=attempt, created=at)
    writer = LotManifestWriter(objects, f"{key.folder}pages", head)
    writer.add_all(entry for _, entry in iter_written(locations, dataset, lot, attempt))
    objects.put(key.key, encode_manifest(writer.build()))
    return key.key


def remove_attempt_data(
    objects: Objects,
    locations: Locations,
    dataset: DatasetDeclaration,
    lot: Lot,
    attempt: str,
    *,
    comment: str,
    at: str,
) -> str:
    """Remove all that an attempt wrote and verify that it is gone; returns the name of the manifest that says `removed`.

    Raises RuntimeError when something is there still: somebody writes there.
    """
    folder = locations.find_folder(dataset.path).objects
    removed_key = attempt_key(dataset, lot, "removed", attempt)
    head = LotManifest("removed", comment or None, str(lot), dataset=dataset.title, attempt=attempt, created=at)
    writer = LotManifestWriter(objects, f"{removed_key.folder}pages", head)
    names: list[str] = []
    for name, entry in iter_written(locations, dataset, lot, attempt):
        writer.add(entry)
        names.append(name)
        if len(names) >= 10_000:
            for each in names:
                folder.delete(each)
            names = []
    for each in names:
        folder.delete(each)
    left = next(iter_written(locations, dataset, lot, attempt), None)
    if left is not None:
        raise RuntimeError(
            f"{left[1].uri} is there still after the data of the attempt {attempt} were removed; somebody writes there."
        )
    partial = attempt_key(dataset, lot, "partial", attempt)
    manifest = writer.build()
    if not manifest.count and has_object(objects, removed_key.key):
        pass  # it was removed before, and that manifest says what it was
    elif not manifest.count and has_object(objects, partial.key):
        _mark_removed(objects, partial, removed_key, at=at)
    else:
        objects.put(removed_key.key, encode_manifest(manifest))
    _delete_folder(objects, partial.folder)
    return removed_key.key


def _mark_removed(objects: Objects, partial: ManifestKey, removed: ManifestKey, *, at: str) -> None:
    """Take over the list of a manifest whose objects are gone already."""
    from msgspec.structs import replace

    from waybill.apps.lots.lot_manifests import iter_entries, read_manifest

    old = read_manifest(objects, partial.key)
    writer = LotManifestWriter(
        objects, f"{removed.folder}pages", replace(old, state="removed", created=at, uris=(), objects=(), children=())
    )
    writer.add_all(iter_entries(objects, partial.key, old))
    objects.put(removed.key, encode_manifest(writer.build()))


def _delete_folder(objects: Objects, folder: str) -> None:
    """The root first: a manifest without its pages would be a damaged one."""
    objects.delete(f"{folder}{MANIFEST_FILE}")
    for info in list(objects.list(folder.rstrip("/"))):
        objects.delete(info.name)


def has_object(objects: Objects, name: str) -> bool:
    try:
        objects.head(name)
    except ObjectNotFound:
        return False
    return True
