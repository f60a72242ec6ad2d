"""The HTTP API of lots, /api/v1/lots/...: arrivals, reports, backfills, projects.

What operators do to one run is an action of its record: `POST /api/v1/records/arc-run/{id}/actions/retry`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import BaseModel, Field

from waybill.apps.lots.arrival_service import find_boundary
from waybill.apps.lots.arrivals import ReportedArrival, report_arrivals
from waybill.apps.lots.backfills import check_which, preview_backfill, start_backfill
from waybill.apps.lots.declaration.changes import apply_changes, find_changes, read_applied
from waybill.apps.lots.declaration.project_file import parse_project
from waybill.apps.lots.heat_map import SVG_COLOURS, day_of, render_svg
from waybill.apps.lots.lot_view import describe_lot
from waybill.apps.lots.machine import BOUNDARY
from waybill.apps.lots.reports import LotReports, describe_run
from waybill.apps.lots.resources import LotsResources
from waybill.apps.lots.subjects import ArcSubject, find_dataset_named, parse_range
from waybill.apps.lots.units import Lot
from waybill.errors import InputError
from waybill.http.request_context import RequestContext, RouteContext, declare_role, make_router
from waybill.record import Ref

MAX_RUNS = 10_000  # of one answer

router = make_router("/api/v1/lots", "lots")

NameQuery = Annotated[str, Query(max_length=300, description="A dataset (NAME/VERSION) or an arc (PROJECT/NAME).")]
PointQuery = Annotated[str, Query(max_length=100, description="A lot, an instant, or so long ago, as 12h or 7d.")]


class ArrivalBody(BaseModel):
    """An object that has arrived."""

    uri: str = Field(max_length=2000)
    size: int | None = Field(None, ge=0)
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    modified: str | None = Field(None, max_length=40)
    at: str | None = Field(None, max_length=40)


class ArrivalsBody(BaseModel):
    """Any number of objects that have arrived for a dataset."""

    dataset: str = Field(max_length=300)
    arrivals: list[ArrivalBody] = Field(min_length=1, max_length=100_000)


class BackfillBody(BaseModel):
    """Which lots of an arc are to run again."""

    arc: str = Field(max_length=300)
    first: str = Field(max_length=100)
    after: str = Field("", max_length=100)
    which: str = Field("missing", max_length=20)
    at_once: int = Field(10, ge=1, le=1000)
    a_minute: int = Field(0, ge=0, le=100_000)
    dry_run: bool = False
    why: str = Field("", max_length=1000)


class ProjectBody(BaseModel):
    """A project file, as text."""

    project: str = Field(max_length=4 * 1024 * 1024)
    dry_run: bool = False


def resources_of(context: RequestContext) -> LotsResources:
    found: LotsResources = context.environment.resources_of("lots")
    return found


@contextmanager
def open_reports(context: RequestContext) -> Iterator[LotReports]:
    with context.open_engine() as engine:
        store = engine.store
        with resources_of(context).open_catalogue() as tables:
            yield LotReports.read(store, tables, datetime.now(UTC))


@router.post("/arrivals", summary="Say that objects have arrived", status_code=201, **declare_role("submitter"))
def report(context: RouteContext, body: ArrivalsBody) -> dict[str, int]:
    """When this is answered, the arrivals are on disk. What was said before is not said twice."""
    resources = resources_of(context)
    with context.open_engine() as engine, resources.open_catalogue() as tables:
        applied = read_applied(engine.store)
        dataset = find_dataset_named(body.dataset, applied)
        boundary = find_boundary(dataset, applied)
        reported = (ReportedArrival(**each.model_dump()) for each in body.arrivals)
        counts = report_arrivals(tables, resources.locations, dataset, boundary, reported, now=datetime.now(UTC))
        engine.wake([Ref(BOUNDARY.name, boundary.id)])
    context.notify_change()
    return {"new": counts.new, "known": counts.known, "filtered": counts.filtered}


@router.get("/status", summary="Count lots by their class", **declare_role("reader"))
def show_status(
    context: RouteContext, name: NameQuery = "", first: PointQuery = "1d", after: PointQuery = ""
) -> list[dict[str, Any]]:
    with open_reports(context) as reports:
        subjects = [reports.find(name)] if name else reports.list_subjects()
        return [reports.describe_status(each, *reports.parse_range(each, first, after)) for each in subjects]


@router.get("/gaps", summary="What is not there, and what upstream is to blame", **declare_role("reader"))
def show_gaps(
    context: RouteContext, name: NameQuery, first: PointQuery = "30d", after: PointQuery = "", everything: bool = False
) -> dict[str, Any]:
    """Runs of lots that are alike; of more than ten thousand, `next` says from which lot on to ask again."""
    with open_reports(context) as reports:
        subject = reports.find(name)
        begin, end = reports.parse_range(subject, first, after)
        report, runs = reports.report_gaps(subject, begin, end, everything=everything)
        found = list(islice(runs, MAX_RUNS))
        more = next(runs, None)
        return {
            "name": subject.title, "first": str(begin), "after": str(end), "counts": dict(report.counts), "gaps": report.gap_count,
            "runs": [describe_run(run) for run in found], "next": str(more.first) if more is not None else None,
        }  # fmt: skip


@router.get("/calendar", summary="The worst class of each day", **declare_role("reader"))
def show_calendar(
    context: RouteContext, name: NameQuery, first: PointQuery = "365d", after: PointQuery = ""
) -> list[dict[str, str]]:
    with open_reports(context) as reports:
        subject = reports.find(name)
        days = reports.list_days(subject, *reports.parse_range(subject, first, after, default="365d"))
        return [{"day": str(day_of(number)), "class": each} for number, each in days]


@router.get("/calendar.svg", summary="The calendar as a picture", **declare_role("reader"))
def draw_calendar(
    context: RouteContext, name: NameQuery, first: PointQuery = "365d", after: PointQuery = ""
) -> Response:
    with open_reports(context) as reports:
        subject = reports.find(name)
        days = reports.list_days(subject, *reports.parse_range(subject, first, after, default="365d"))
        return Response(render_svg(days, title=subject.title, colours=SVG_COLOURS), media_type="image/svg+xml")


@router.get("/lot", summary="All that is known of one lot", **declare_role("reader"))
def show_lot(context: RouteContext, name: NameQuery, lot: Annotated[str, Query(max_length=40)]) -> dict[str, Any]:
    with context.open_engine() as engine, resources_of(context).open_catalogue() as tables:
        reports = LotReports.read(engine.store, tables, datetime.now(UTC))
        return describe_lot(reports, engine.store, reports.find(name), Lot.parse(lot))


@router.post("/backfills", summary="Run lots again", status_code=201, **declare_role("operator"))
def backfill(context: RouteContext, body: BackfillBody) -> dict[str, Any]:
    """Returns exactly which lots run, and why each. With `dry_run` nothing is started."""
    with context.open_engine() as engine, resources_of(context).open_catalogue() as tables:
        reports = LotReports.read(engine.store, tables, datetime.now(UTC))
        subject = reports.find(f"arc {body.arc}")
        if not isinstance(subject, ArcSubject):
            raise InputError(f"{body.arc!r} is no arc; lots of a dataset are made by the arc that owns it.")
        begin, end = parse_range(subject, body.first, body.after, now=reports.now)
        preview = preview_backfill(tables, subject.declared, begin, end, check_which(body.which))
        answer = preview.describe()
        if not body.dry_run and preview.run_count:
            record = start_backfill(
                engine, subject.declared, begin, end, check_which(body.which), at_once=body.at_once, a_minute=body.a_minute,
                who=context.who, reason=body.why,
            )  # fmt: skip
            answer["backfill"] = record.id
    context.notify_change()
    return answer


@router.post("/projects", summary="Apply a project file", **declare_role("admin"))
def apply_project(context: RouteContext, body: ProjectBody) -> dict[str, Any]:
    """All of it in one commit; what is as declared is not touched. With `dry_run` nothing is."""
    with context.open_engine() as engine:
        applied = read_applied(engine.store)
        project = parse_project(body.project.encode(), "project", known_units=applied.units)
        changes = find_changes(project, applied)
        if not body.dry_run:
            changes = apply_changes(engine, project, who=context.who, now=time.time())
    context.notify_change()
    return {
        "project": project.name,
        "changes": [
            {"change": each.name, "kind": each.kind, "id": each.id, "fields": list(each.fields)} for each in changes
        ],
    }
