"""Arrivals as people and programs report them: which boundary takes them, and copies of files into the dataset's path."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from waybill.apps.lots.arrivals import ReportedArrival
from waybill.apps.lots.declaration.checks import AppliedDeclarations
from waybill.apps.lots.declaration.documents import BoundaryDeclaration, DatasetDeclaration
from waybill.errors import InputError

if TYPE_CHECKING:
    from waybill.apps.lots.resources import LotsResources


def find_boundary(dataset: DatasetDeclaration, applied: AppliedDeclarations) -> BoundaryDeclaration:
    """Return the boundary that makes the lots of a dataset."""
    found = next((each for each in applied.boundaries.values() if each.dataset == dataset.id), None)
    if found is None:
        raise InputError(f"{dataset.title} is made by {dataset.owner}; objects arrive at datasets of a boundary only.")
    return found


def copy_arrivals(
    resources: LotsResources, dataset: DatasetDeclaration, reported: Iterator[ReportedArrival]
) -> Iterator[ReportedArrival]:
    """Copy each object into the dataset's path, under its content's digest and its name, and report the copy. Safe to
    repeat: the same content has the same name.
    """
    target = resources.locations.find_folder(dataset.path)
    root = resources.locations.absolute(dataset.path)
    for each in reported:
        digest = hashlib.sha256()
        with resources.locations.read(each.uri) as chunks:
            for chunk in chunks:
                digest.update(chunk)
        name = f"arrived/{digest.hexdigest()[:16]}/{each.uri.rpartition('/')[2]}"
        with resources.locations.read(each.uri) as chunks:
            stored = target.objects.put(
                "/".join(part for part in (target.name, name) if part), chunks, sha256=digest.hexdigest()
            )
        yield ReportedArrival(f"{root}{name}", stored.size, stored.sha256, at=each.at)
