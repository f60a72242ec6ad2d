"""Elsewhere: versions that another storage service keeps. The inventory knows them from that service's manifests
alone, and by URLs.

Our own storage says nothing of them. So nothing of theirs is forgotten because it is not there, nothing is read by
audits, and no version is written here beside them.
"""

from __future__ import annotations

from waybill.apps.ingest.storage import StorageError


class KeptElsewhere(StorageError):
    """Another storage service keeps this object."""


def is_elsewhere(place: str) -> bool:
    """Whether a place is a URL: those of our own storage are paths, and no path has an empty name in it."""
    return "://" in place
