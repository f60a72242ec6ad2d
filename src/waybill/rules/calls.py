"""Duties that an action calls, because it leaves them something to do at once; by the names of their records: NAME,
or NAME@HOST.
"""

from __future__ import annotations

from waybill.machine import State
from waybill.record import Record

DUTY = "duty"  # the kind
# who clears working folders, on each host, and who removes what is not kept
FOLDERS, RETENTION = "folders", "retention"


def called_by(state: State) -> tuple[str, ...]:
    """The duties of which a record that enters this state by an action has need."""
    return tuple(name for name, due in ((FOLDERS, state.clears_files), (RETENTION, state.keep == 0)) if due)


def name_of(duty: Record) -> str:
    """Of a duty, without the host that it is bound to."""
    return duty.id.partition("@")[0]
