"""Room on the disks that a Waybill writes to: `doctor` names the ones that are nearly full, before a step fails for
want of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from waybill import config
from waybill.config import Config
from waybill.record import Finding

LITTLE = 100_000_000  # bytes; of a small disk, its hundredth part
FILES = 1_000  # files that can still be made


def places(settings: Config) -> dict[str, Path]:
    """Where this process writes: what for, and the folder."""
    found = {"the working folders": settings.work.root}
    for what, url in (("the store", settings.store), ("the index", settings.index)):
        if (path := config.sqlite_path(url)) is not None:
            found[what] = path.parent
    if "://" not in settings.objects:
        found["the objects"] = Path(settings.objects)
    return found


def shortages(settings: Config) -> Iterator[Finding]:
    """One finding for each disk, with all that lies on it."""
    disks: dict[int, tuple[Path, list[str]]] = {}
    for what, place in places(settings).items():
        there = _existing(place)
        disks.setdefault(os.stat(there).st_dev, (there, []))[1].append(what)
    for there, kept in disks.values():
        disk = os.statvfs(there)
        room, whole = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        if room < min(LITTLE, whole // 100):
            short = f"{room / 1e6:,.0f} MB of {whole / 1e9:,.1f} GB are free"
        elif disk.f_files and disk.f_favail < FILES:
            short = f"only {disk.f_favail} more files can be made"
        else:
            continue
        problem = f"{short} on the disk of {' and '.join(kept)}; what cannot be written is tried again later."
        yield Finding(
            "room", str(there), problem, "make room on that disk, or move the folder to a larger one", mendable=False
        )


def _existing(place: Path) -> Path:
    return next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.is_dir())
