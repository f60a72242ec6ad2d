"""stub"""

from __future__ import annotations
import msgspec
from typing import Literal, TypeAlias
from waybill.apps.archive.files.selection import Selection

OwnerPolicy: TypeAlias = Literal["drop", "keep"]


class RestoreOptions(msgspec.Struct, frozen=True):
    """What is restored, and how."""

    selection: Selection | None = None  # None: everything
    link_sources: dict[str, str] = {}  # of find_link_sources
    overwrite: bool = False  # replace files that exist; directories are always shared
    foreign_owners: OwnerPolicy = "drop"  # as root: give files to owners other than the user
    setuid: OwnerPolicy = "drop"  # setuid and setgid bits of files


class UnpackedCounts(msgspec.Struct, frozen=True):
    """What one archive has given."""

    files: int
    bytes: int
    failed: int  # each of them was reported
