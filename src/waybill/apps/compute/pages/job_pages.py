"""Jobs: those that run and the latest, one with its output, errors and timings, and what can be done with it."""

from __future__ import annotations

import json
from itertools import islice
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Response

from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.job_tables import JobRow, JobTables
from waybill.apps.compute.jobs import job_path
from waybill.apps.compute.manifest import check_native_manifest
from waybill.apps.compute.pages.accounts import can_write, check_account, jobs_of, own_account, resources_of
from waybill.apps.compute.pages.charts import draw_timings
from waybill.apps.compute.pages.object_pages import objects_url
from waybill.apps.compute.paths import StoragePath, is_account_name, parse_path
from waybill.apps.compute.storage import iso_time
from waybill.http.request_context import declare_role
from waybill.pages import PageContext, PageRequest

LATEST = 50  # jobs
TAIL = 20  # outputs
MAX_ERRORS = 5_000  # that are grouped; the file has all
STDERR = 2_000  # bytes of a standard error
MAX_KEYS_TEXT = 200_000  # characters of a form


class ErrorGroup(NamedTuple):
    """Errors of one code and message."""

    code: str
    message: str
    total: int
    samples: list[dict[str, str]]


def job_url(account: str, job: str) -> str:
    return f"/compute/jobs/{account}/{job}"


def add_routes(router: APIRouter) -> None:
    @router.get("/jobs", **declare_role("reader", somewhere=True))
    def show_jobs(context: PageRequest, account: Annotated[str, Query(max_length=63)] = "") -> Response:
        name = account.strip() or own_account(context)
        if not is_account_name(name):
            return context.render("compute/jobs.html", account="", may_start=False, jobs=[])
        check_account(context, name)
        return context.render(
            "compute/jobs.html", account=name, may_start=can_write(context), jobs=list_latest(context, name)
        )

    @router.post("/jobs", **declare_role("submitter", somewhere=True))
    def start_job(context: PageRequest) -> Response:
        account, jobs = check_account(context, context.get_field("account")), jobs_of(context)
        phases = [{"exec": context.get_field("map"), "type": "map"}]
        if reduce := context.get_field("reduce"):
            phases.append({"exec": reduce, "type": "reduce"})
        manifest = check_native_manifest({"name": context.get_field("name"), "phases": phases})
        keys = [line.strip() for line in context.get_field("keys")[:MAX_KEYS_TEXT].splitlines() if line.strip()]
        job = jobs.make(account, manifest, who=context.user.name)
        row = jobs.find(account, job)
        folder = context.get_field("folder")
        jobs.add_input(row, (f"{key}\n".encode() for key in (iter_objects(context, folder) if folder else keys)))
        jobs.end_input(row)
        context.notify_change()
        return context.redirect(job_url(account, job), "the job was started")

    @router.get("/jobs/{account}/{job}", **declare_role("reader", somewhere=True))
    def show_job(context: PageRequest, account: str, job: str) -> Response:
        check_account(context, account)
        return render_job(context, jobs_of(context).find(account, job))

    @router.post("/jobs/{account}/{job}/{what}", **declare_role("submitter", somewhere=True))
    def act_on_job(context: PageRequest, account: str, job: str, what: str) -> Response:
        check_account(context, account)
        jobs = jobs_of(context)
        row = jobs.find(account, job)
        if what == "cancel":
            jobs.cancel(row)
            notice = "the job is being cancelled"
        elif what in ("rerun", "rerun-failures"):
            job = jobs.rerun(row, failed=what == "rerun-failures", who=context.user.name)
            notice = "this is the new job"
        elif what == "remove":
            jobs.remove(row, who=context.user.name)
            context.notify_change()
            return context.redirect("/compute/jobs", "the job was removed", account=account)
        else:
            raise MantaError("ResourceNotFound", f"{what} is nothing that can be done with a job")
        context.notify_change()
        return context.redirect(job_url(account, job), notice)


def iter_objects(context: PageContext, folder: str) -> Any:
    with resources_of(context).storage.open_entries() as entries:
        for path, entry in entries.iter_below(parse_path(folder)):
            if not entry.is_directory:
                yield str(path)


def list_latest(context: PageContext, account: str) -> list[dict[str, Any]]:
    resources, jobs = resources_of(context), jobs_of(context)
    page = resources.storage.list(StoragePath(account, "jobs"), is_reverse=True, limit=LATEST)
    with resources.connections.open() as tables:
        running = [row["job"] for row in JobTables(tables).list_running(account, LATEST)]
    names = sorted({*running, *(entry.name for entry in page.entries)}, reverse=True)
    rows = [row for name in names if (row := resources.find_job(name)) is not None]
    return [{"status": jobs.read_status(row), "url": job_url(account, row.job)} for row in rows]


def render_job(context: PageContext, row: JobRow) -> Response:
    jobs, resources = jobs_of(context), resources_of(context)
    status = jobs.read_status(row)
    outputs = [line.decode() for line in _iter_lines(context, row, "out", TAIL)]
    metrics: list[dict[str, Any]] = []
    if row.archived:
        entry = resources.storage.find(job_path(row.account, row.job, "metrics.json"))
        if entry is not None:
            with resources.storage.open(entry) as body:
                metrics = json.loads(b"".join(body))["phases"]
    groups, counted = group_errors(context, row)
    return context.render(
        "compute/job.html",
        job=row.job,
        account=row.account,
        shown=status,
        created=iso_time(row.created),
        is_live=not row.archived,
        outputs=[{"key": key, "url": objects_url(parse_path(key))} for key in outputs],
        groups=groups,
        is_cut=counted >= MAX_ERRORS,
        phases=[{"about": about, "chart": draw_timings(about)} for about in metrics],
        files_url=objects_url(job_path(row.account, row.job)),
        events_url=f"/api/v1/compute/{row.account}/jobs/{row.job}/events",
        can_act=can_write(context),
    )


def _iter_lines(context: PageContext, row: JobRow, name: str, limit: int) -> Any:
    """The first lines of a list of a job that is done, the latest of one that runs."""
    if not row.archived:
        lines = b"".join(jobs_of(context).iter_live(row, name)).splitlines()
        return lines[-limit:]
    resources = resources_of(context)
    entry = resources.storage.find(job_path(row.account, row.job, f"{name}.txt"))
    return [] if entry is None else list(islice(_split_lines(resources.storage.open(entry)), limit))


def _split_lines(body: Any) -> Any:
    rest = b""
    with body:
        for piece in body:
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines


def group_errors(context: PageContext, row: JobRow) -> tuple[list[ErrorGroup], int]:
    """Errors of one cause together, the most frequent first, with the standard error of some; and how many were read."""
    found: dict[tuple[str, str], ErrorGroup] = {}
    count = 0
    for line in _iter_lines(context, row, "err", MAX_ERRORS):
        error = json.loads(line)
        count += 1
        # One key is named in messages of missing objects: their group is the message without it.
        message = error["message"].replace(f': "{error.get("input", "")}"', "")
        group = found.setdefault((error["code"], message), ErrorGroup(error["code"], message, 0, []))
        if len(group.samples) < 3:
            group.samples.append(
                {"input": error.get("input", ""), "what": error["what"], "stderr": _read_stderr(context, error)}
            )
        found[group.code, group.message] = group._replace(total=group.total + 1)
    return sorted(found.values(), key=lambda each: -each.total), count


def _read_stderr(context: PageContext, error: dict[str, Any]) -> str:
    if not error.get("stderr"):
        return ""
    storage = resources_of(context).storage
    entry = storage.find(parse_path(error["stderr"]))
    if entry is None:
        return ""
    with storage.open(entry, 0, min(entry.size, STDERR)) as body:
        return b"".join(body).decode("utf-8", "replace")
