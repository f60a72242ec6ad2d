"""Maintenance that runs by itself. routine.py says what a routine is; each routine has its own module."""

from __future__ import annotations

from collections.abc import Iterable

from waybill.maintenance.action_requests import ActionRequestRoutine
from waybill.maintenance.attempt_notes import AttemptNoteRoutine
from waybill.maintenance.clock_jump import ClockJumpRoutine
from waybill.maintenance.consistency import ConsistencyRoutine
from waybill.maintenance.ended_locks import EndedLockRoutine
from waybill.maintenance.idle_parents import IdleParentRoutine
from waybill.maintenance.lost_hosts import LostHostRoutine
from waybill.maintenance.retention import RetentionRoutine
from waybill.maintenance.routine import (
    MAINTENANCE,
    MaintenanceContext,
    MaintenanceRoutine,
    MaintenanceScheduler,
    memory_of,
    ref_of,
    run_round,
)
from waybill.maintenance.store_indexes import StoreIndexRoutine
from waybill.maintenance.temporary_files import TemporaryFileRoutine
from waybill.maintenance.working_folders import WorkingFolderRoutine


def collect_routines(more: Iterable[MaintenanceRoutine] = ()) -> dict[str, MaintenanceRoutine]:
    """Return the built-in routines and those of applications, by name."""
    built_in: tuple[MaintenanceRoutine, ...] = (
        IdleParentRoutine(),
        StoreIndexRoutine(),
        ActionRequestRoutine(),
        LostHostRoutine(),
        RetentionRoutine(),
        WorkingFolderRoutine(),
        TemporaryFileRoutine(),
        EndedLockRoutine(),
        AttemptNoteRoutine(),
        ConsistencyRoutine(),
        ClockJumpRoutine(),
    )
    return {routine.name: routine for routine in (*built_in, *more)}


__all__ = [
    "MAINTENANCE",
    "LostHostRoutine",
    "MaintenanceContext",
    "MaintenanceRoutine",
    "MaintenanceScheduler",
    "RetentionRoutine",
    "TemporaryFileRoutine",
    "WorkingFolderRoutine",
    "collect_routines",
    "memory_of",
    "ref_of",
    "run_round",
]
