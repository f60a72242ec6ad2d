"""Disk space: what is free on the working disk, who has reserved how much of it, and which jobs wait for space and why."""

from __future__ import annotations

from typing import NamedTuple

from fastapi import APIRouter, Response

from waybill.apps.ingest.job_space import space_needed_of
from waybill.apps.ingest.machine.job import JOB
from waybill.apps.ingest.pages.context import resources_of
from waybill.apps.ingest.submission import Submission
from waybill.disk_space import SpaceWait
from waybill.engine import Engine
from waybill.http.request_context import declare_role
from waybill.pages import PageRequest
from waybill.record import Record

MAX_LOOKED_AT = 1000  # jobs of a state
MAX_SHOWN = 200


class WaitingJob(NamedTuple):
    """A job that waits for disk space."""

    job: Record
    title: str
    needed: int | None  # bytes; None: unknown
    wait: SpaceWait


def add_routes(router: APIRouter) -> None:
    @router.get("/disk-space", **declare_role("operator"))
    def show_disk_space(context: PageRequest) -> Response:
        disk = resources_of(context).working_disk
        with context.open_engine() as engine:
            waiting = find_waiting_jobs(engine)
        reservations = sorted(
            (each for each in disk.reservations.list_reservations() if not each.is_removed and each.granted),
            key=lambda each: -each.outstanding,
        )
        return context.render(
            "ingest/disk_space.html",
            usage=disk.reservations.measure(),
            keep_free=resources_of(context).settings.disk_space.keep_free,
            reservations=reservations[:MAX_SHOWN],
            reserved=sum(each.outstanding for each in reservations),
            waiting=waiting[:MAX_SHOWN],
            needed=sum(each.needed or 0 for each in waiting),
            unknown=sum(each.needed is None for each in waiting),
            count=len(waiting),
        )


def find_waiting_jobs(engine: Engine) -> list[WaitingJob]:
    """The jobs that wait for space, the longest first."""
    machine = engine.machines["job"]
    states = [state.name for state in machine.states if state.reserves_space and state.name in JOB.live]
    found = []
    for state in states:
        for job in engine.store.find("job", state=state, limit=MAX_LOOKED_AT, documents=True).records:
            wait = job.find_document(SpaceWait)
            if wait is not None and job.session is None:
                submission = Submission.from_job(job)
                found.append(WaitingJob(job, submission.title or submission.filename, space_needed_of(job), wait))
    return sorted(found, key=lambda each: each.wait.since)
