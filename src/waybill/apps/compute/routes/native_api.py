"""The native API of jobs: what Manta's has not.

POST   /api/v1/compute/ACCOUNT/jobs              a manifest or a template, options, keys           -> the job
GET    /api/v1/compute/ACCOUNT/jobs              in the order in which they were made, page by page
GET    /api/v1/compute/ACCOUNT/jobs/ID           how it is
GET    /api/v1/compute/ACCOUNT/jobs/ID/events    outputs, errors and progress, pushed as they come (server-sent events)
POST   /api/v1/compute/ACCOUNT/jobs/ID/rerun     again, with all inputs or with those that failed
DELETE /api/v1/compute/ACCOUNT/jobs/ID           with all its files; 409 while it is live

Inputs, lists and files of a job are at the paths of Manta's protocol, which take the same tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio.to_thread
from fastapi import Depends, Header, Path, Query
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from waybill.apps.compute.access import caller_of, may_act_for
from waybill.apps.compute.errors import MantaError, not_found
from waybill.apps.compute.jobs import Jobs
from waybill.apps.compute.live import JobFeed, LiveEvent
from waybill.apps.compute.manifest import check_native_manifest
from waybill.apps.compute.paths import StoragePath, is_account_name
from waybill.apps.compute.resources import ComputeResources
from waybill.apps.compute.templates import fill_template, load_template
from waybill.http.errors import WRITE_STATUSES, describe_responses
from waybill.http.request_context import RequestContext, declare_role, make_router

PREFIX = "/api/v1/compute"
PAUSE = 0.5  # seconds between two looks at a job that somebody follows
HEARTBEAT = 30  # looks without news after which a comment is sent
MAX_FOLLOWERS = 64
MAX_KEYS = 10_000  # of one request; more are sent to Manta's path, as a stream


class JobContext(RequestContext):
    @property
    def resources(self) -> ComputeResources:
        found: ComputeResources = self.environment.resources_of("compute")
        return found

    @property
    def jobs(self) -> Jobs:
        return Jobs(self.resources, self.open_engine)

    def check_account(self, account: str) -> None:
        """Raise unless the caller may act for the account: an operator for all, others for their own and their groups'."""
        identity = self.identity
        assert identity is not None
        caller = caller_of(identity)
        if not is_account_name(account) or not may_act_for(caller, account):
            raise not_found(f"/{account}/jobs")
        if self.request.method != "GET" and not caller.can_write:
            raise MantaError("AuthorizationFailed", f"{caller.account} may only read: it needs the role submitter")


JobRequest = Annotated[JobContext, Depends(JobContext)]
AccountName = Annotated[str, Path(max_length=63, description="Whose jobs.")]
JobId = Annotated[str, Path(max_length=36, description="The id of a job.")]


class NewJob(BaseModel):
    model_config = ConfigDict(extra="forbid")

    manifest: dict[str, Any] | None = Field(None, description="name, phases as Manta has them, and options.")
    template: str = Field("", max_length=4096, description="An object that holds a template, instead of a manifest.")
    parameters: dict[str, str] = Field(default_factory=dict, description="The values of a template's parameters.")
    keys: list[str] = Field(default_factory=list, max_length=MAX_KEYS, description="The first inputs.")
    end_input: bool = Field(False, description="No more inputs will come.")


class Rerun(BaseModel):
    model_config = ConfigDict(extra="forbid")

    failed: bool = Field(False, description="Only the inputs that failed, each once.")


def build_api() -> Any:
    router = make_router(PREFIX, "compute")
    followers = anyio.Semaphore(MAX_FOLLOWERS)

    @router.post(
        "/{account}/jobs",
        summary="Make a job",
        status_code=201,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("submitter", somewhere=True),
    )
    def make_job(context: JobRequest, account: AccountName, body: NewJob) -> dict[str, Any]:
        context.check_account(account)
        given = body.manifest
        if body.template:
            given = fill_template(load_template(context.resources, account, body.template), body.parameters)
        if given is None:
            raise MantaError("InvalidJob", "a manifest or a template is needed")
        jobs = context.jobs
        job = jobs.make(account, check_native_manifest(given), who=context.who)
        row = jobs.find(account, job)
        if body.keys:
            jobs.add_input(row, (f"{key}\n".encode() for key in body.keys))
        if body.end_input:
            jobs.end_input(row)
        context.notify_change()
        return jobs.read_status(row)

    @router.get(
        "/{account}/jobs", summary="Jobs in the order in which they were made", **declare_role("reader", somewhere=True)
    )
    def list_jobs(
        context: JobRequest,
        account: AccountName,
        after: Annotated[str, Query(max_length=36, description="The last id of the page before.")] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> dict[str, Any]:
        context.check_account(account)
        page = context.resources.storage.list(StoragePath(account, "jobs"), marker=after, limit=limit + 1)
        names = [entry.name for entry in page.entries if entry.name != after][:limit]
        rows = [row for name in names if (row := context.resources.find_job(name)) is not None]
        return {"jobs": [context.jobs.read_status(row) for row in rows]}

    @router.get("/{account}/jobs/{job}", summary="A job", **declare_role("reader", somewhere=True))
    def show_job(context: JobRequest, account: AccountName, job: JobId) -> dict[str, Any]:
        context.check_account(account)
        return context.jobs.read_status(context.jobs.find(account, job))

    @router.get(
        "/{account}/jobs/{job}/events",
        summary="Follow a job: server-sent events until it is done",
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
        **declare_role("reader", somewhere=True),
    )
    def follow(
        context: JobRequest,
        account: AccountName,
        job: JobId,
        last_event_id: Annotated[str, Header(max_length=2000, description="The last event that was seen.")] = "",
    ) -> Response:
        """`output` with keys, `error` with one error, `progress` and, at last, `done` with the job. What a client has
        not seen when the job is done is in its files.
        """
        context.check_account(account)
        feed = JobFeed(context.resources, context.jobs, account, job, last_event_id)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(_push(feed, followers), media_type="text/event-stream", headers=headers)

    @router.post(
        "/{account}/jobs/{job}/rerun",
        summary="Run a job that is done again",
        status_code=201,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("submitter", somewhere=True),
    )
    def rerun(context: JobRequest, account: AccountName, job: JobId, body: Rerun | None = None) -> dict[str, Any]:
        context.check_account(account)
        jobs = context.jobs
        new = jobs.rerun(jobs.find(account, job), failed=body is not None and body.failed, who=context.who)
        context.notify_change()
        return jobs.read_status(jobs.find(account, new))

    @router.delete(
        "/{account}/jobs/{job}",
        summary="Remove a job that is done, with its files",
        status_code=204,
        response_class=Response,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("submitter", somewhere=True),
    )
    def remove(context: JobRequest, account: AccountName, job: JobId) -> Response:
        context.check_account(account)
        jobs = context.jobs
        jobs.remove(jobs.find(account, job), who=context.who)
        context.notify_change()
        return Response(status_code=204)

    return router


async def _push(feed: JobFeed, followers: anyio.Semaphore) -> AsyncIterator[bytes]:
    """Until the job is done, or its client is gone: then the iterator is closed."""
    try:
        followers.acquire_nowait()
    except anyio.WouldBlock:
        yield b": too many clients follow jobs; try again later\n\n"
        return
    try:
        silent = 0
        yield b"retry: 3000\n\n"
        while not feed.is_over:
            events = await anyio.to_thread.run_sync(_read_all, feed)
            silent = 0 if events else silent + 1
            for event in events:
                yield event.encode()
            if silent >= HEARTBEAT:
                silent = 0
                yield b": still here\n\n"
            if not feed.is_over:
                await asyncio.sleep(PAUSE)
    finally:
        followers.release()


def _read_all(feed: JobFeed) -> list[LiveEvent]:
    return list(feed.read())
