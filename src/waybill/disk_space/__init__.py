"""Disk space: records reserve what they will need on the working disk of their host before they write to it, and wait
in order if there is not enough.

    class ParcelResources:                                   # made once in each process
        disk = WorkingDisk(environment.config.work.root, environment.host, environment.machines, settings.disk_space)

    def run_step(record, ctx):                               # in a state that declares reserves_space=True
        if wait := disk.reserve(ctx, need):
            return wait
        ...
        disk.release(ctx)
        return Done(remove=(SpaceWait,))

The machine lists SPACE_DOCUMENT among its documents: it says since when a record waits, and why.

working_disk.py   what steps use: reserve, wait, measure what is written, mail to the administrators
reservations.py   the reservations of a host, and the order in which they are granted
locked_log.py     the file in which they are kept
space_hook.py     the command of the operator that may free space
"""

from waybill.disk_space.reservations import (
    DiskSpaceSettings,
    DiskUsage,
    SpaceDecision,
    SpaceReservation,
    SpaceReservations,
    is_disk_full,
)
from waybill.disk_space.working_disk import SPACE_DOCUMENT, NeverFits, SpaceMeter, SpaceWait, WorkingDisk

__all__ = [
    "SPACE_DOCUMENT",
    "DiskSpaceSettings",
    "DiskUsage",
    "NeverFits",
    "SpaceDecision",
    "SpaceMeter",
    "SpaceReservation",
    "SpaceReservations",
    "SpaceWait",
    "WorkingDisk",
    "is_disk_full",
]
