"""The events of compute: what others can subscribe to."""

from __future__ import annotations

import json

from waybill.apps.compute.job_tables import JobRow
from waybill.events import Event, EventType

JOB_DONE = EventType("compute.job.done", "A job is done, and its files are written.")
JOB_FAILED = EventType("compute.job.failed", "A job is done with errors, or was cancelled.")
EVENTS = (JOB_DONE, JOB_FAILED)


def make_job_event(row: JobRow) -> Event:
    """Return the event of an archived job."""
    status = json.loads(row.stats)
    data = {name: status[name] for name in ("id", "name", "cancelled", "stats")} | {"account": row.account}
    return Event(JOB_FAILED if status["cancelled"] or status["stats"]["errors"] else JOB_DONE, row.job, data)
