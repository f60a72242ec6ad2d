"""The maintenance routines that an action triggers, because it leaves them something to do at once.

Routines are named by the ids of their records: NAME, or NAME@HOST for a routine that runs on each host.
"""

from __future__ import annotations

from waybill.machine import State
from waybill.record import Record

MAINTENANCE_KIND = "maintenance"
FOLDERS = "working-folders"  # clears working folders, on each host
RETENTION = "retention"  # removes records whose time is over


def list_triggered(state: State) -> tuple[str, ...]:
    """Return the routines that have something to do when a record enters this state by an action."""
    return tuple(name for name, due in ((FOLDERS, state.clears_files), (RETENTION, state.keep == 0)) if due)


def routine_name_of(record: Record) -> str:
    """Return the name of the routine of a maintenance record, without the host that it is bound to."""
    return record.id.partition("@")[0]
