"""The pages of lots.

    /lots              datasets and arcs as a graph, with how many lots of the last days are of which class
    /lots/calendar     the heat map of one of them over years; a click opens a day, a range leads to the preview of a backfill
    /lots/day          the lots of a day, with what stands in the way of those that are not there
    /lots/lot          one lot: its generations, its run with parts, attempts and manifests
    /lots/backfill     exactly what a backfill would run, and the button that starts it

All read what the API and the commands read (reports, lot_view, backfills); none has a rule of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response
from markupsafe import Markup

from waybill.apps.lots.backfills import CHOICES, check_which, preview_backfill, start_backfill
from waybill.apps.lots.catalogue.calendar import CLASSES, LETTERS
from waybill.apps.lots.heat_map import render_svg
from waybill.apps.lots.lot_view import describe_lot
from waybill.apps.lots.machine import BACKFILL, BackfillProgress, BackfillRequest, RunDocument
from waybill.apps.lots.pages.graph import draw_graph
from waybill.apps.lots.reports import LotReports, describe_run
from waybill.apps.lots.resources import LotsResources
from waybill.apps.lots.subjects import ArcSubject, Subject, parse_range
from waybill.apps.lots.units import Lot
from waybill.errors import InputError
from waybill.http.request_context import declare_role
from waybill.pages import (
    ApplicationPages,
    FoundLink,
    NavigationEntry,
    PageContext,
    PageRequest,
    RecordPart,
    make_page_router,
)
from waybill.record import Record, Store

MAX_RUNS = 200  # runs of equal lots on a page
SHOWN_BACKFILLS = 10
YEARS = 10

NameQuery = Annotated[str, Query(max_length=300)]
PointQuery = Annotated[str, Query(max_length=100)]


def resources_of(context: PageContext) -> LotsResources:
    found: LotsResources = context.environment.resources_of("lots")
    return found


@contextmanager
def open_reports(context: PageContext) -> Iterator[tuple[LotReports, Store]]:
    with context.open_engine() as engine, resources_of(context).open_catalogue() as tables:
        yield LotReports.read(engine.store, tables, datetime.now(UTC)), engine.store


def url_of(page: str, **query: str) -> str:
    given = {key: value for key, value in query.items() if value}
    return f"/lots{page}" + (f"?{urlencode(given)}" if given else "")


def key_of(subject: Subject) -> str:
    """The name by which a link finds it again."""
    return f"arc {subject.declared.title}" if isinstance(subject, ArcSubject) else subject.declared.title


def add_routes(router: APIRouter) -> None:
    @router.get("", **declare_role("reader"))
    def show_graph(context: PageRequest, first: PointQuery = "1d") -> Response:
        with open_reports(context) as (reports, store):
            subjects = reports.list_subjects()
            rows = [
                (key_of(each), reports.describe_status(each, *reports.parse_range(each, first, "")))
                for each in subjects
            ]
            backfills = store.find(BACKFILL.name, limit=SHOWN_BACKFILLS, documents=True).records
            graph = draw_graph(
                reports.applied, {key: row["counts"] for key, row in rows}, lambda key: url_of("/calendar", name=key)
            )
        return context.render(
            "lots/graph.html", graph=Markup(graph), rows=rows, first=first, url_of=url_of, classes=tuple(LETTERS),
            backfills=[_describe_backfill(each) for each in backfills if each.open],
        )  # fmt: skip

    @router.get("/calendar", **declare_role("reader"))
    def show_calendar(
        context: PageRequest, name: NameQuery, first: PointQuery = "365d", after: PointQuery = ""
    ) -> Response:
        with open_reports(context) as (reports, _):
            subject = reports.find(name)
            begin, end = reports.parse_range(subject, first, after, default="365d")
            key = key_of(subject)
            days = reports.list_days(subject, begin, end)
            link = url_of("/day", name=key) + "&day={day}"
            picture = render_svg(days, title=f"Calendar of {subject.title}", link=link)
            summary = reports.describe_status(subject, begin, end)
        return context.render(
            "lots/calendar.html", subject=subject, key=key, picture=Markup(picture), summary=summary, first=first, after=after,
            is_arc=isinstance(subject, ArcSubject), url_of=url_of, classes=tuple(LETTERS), choices=CHOICES,
        )  # fmt: skip

    @router.get("/gaps", **declare_role("reader"))
    def show_gaps(context: PageRequest, name: NameQuery, first: PointQuery = "30d", after: PointQuery = "") -> Response:
        with open_reports(context) as (reports, _):
            subject = reports.find(name)
            begin, end = reports.parse_range(subject, first, after)
            _report, runs = reports.report_gaps(subject, begin, end)
            found = [describe_run(run) for run in islice(runs, MAX_RUNS)]
            more = next(runs, None)
        return context.render(
            "lots/gaps.html", subject=subject, key=key_of(subject), runs=found, next=str(more.first) if more else "",
            first=str(begin), after=str(end), url_of=url_of,
        )  # fmt: skip

    @router.get("/day", **declare_role("reader"))
    def show_day(context: PageRequest, name: NameQuery, day: date) -> Response:
        with open_reports(context) as (reports, _):
            subject = reports.find(name)
            begin = Lot.at(datetime(day.year, day.month, day.day, tzinfo=UTC), subject.unit)
            end = begin.shift(subject.unit.lots_of_day)
            lots = [
                (str(Lot(subject.unit, each.first + place * subject.unit.minutes)), CLASSES[letter])
                for each in subject.iter_days(begin, end)
                for place, letter in enumerate(each.letters)
            ]
            runs = [describe_run(run) for run in islice(reports.iter_runs(subject, begin, end), MAX_RUNS)]
        return context.render(
            "lots/day.html", subject=subject, key=key_of(subject), day=day, lots=lots, runs=runs, url_of=url_of,
            before=str(day - timedelta(days=1)), behind=str(day + timedelta(days=1)), first=str(begin), after=str(end),
            is_arc=isinstance(subject, ArcSubject),
        )  # fmt: skip

    @router.get("/lot", **declare_role("reader"))
    def show_lot(context: PageRequest, name: NameQuery, lot: Annotated[str, Query(max_length=40)]) -> Response:
        with open_reports(context) as (reports, store):
            subject = reports.find(name)
            found = describe_lot(reports, store, subject, Lot.parse(lot))
        return context.render("lots/lot.html", lot=found, key=key_of(subject), url_of=url_of, day=found["start"][:10])

    @router.get("/backfill", **declare_role("reader"))
    def preview(
        context: PageRequest,
        name: NameQuery,
        first: PointQuery = "7d",
        after: PointQuery = "",
        which: PointQuery = "missing",
    ) -> Response:
        with open_reports(context) as (reports, _):
            arc, begin, end = _read_range(reports, name, first, after)
            found = preview_backfill(reports.tables, arc.declared, begin, end, check_which(which))
        return context.render(
            "lots/backfill.html", preview=found, key=key_of(arc), first=str(begin), after=str(end), which=which,
            choices=CHOICES, url_of=url_of,
        )  # fmt: skip

    @router.post("/backfill", **declare_role("operator"))
    def start(context: PageRequest) -> Response:
        with open_reports(context) as (reports, _):
            which = check_which(context.get_field("which"))
            arc, begin, end = _read_range(
                reports, context.get_field("name"), context.get_field("first"), context.get_field("after")
            )
        with context.open_engine() as engine:
            record = start_backfill(
                engine, arc.declared, begin, end, which, at_once=_read_number(context, "at_once", 10),
                a_minute=_read_number(context, "a_minute", 0), who=context.who, reason=context.get_reason(),
            )  # fmt: skip
        context.notify_change()
        return context.redirect(f"/records/{BACKFILL.name}/{record.id}", "The backfill has begun.")


def _read_range(reports: LotReports, name: str, first: str, after: str) -> tuple[ArcSubject, Lot, Lot]:
    subject = reports.find(name if name.startswith("arc ") else f"arc {name}")
    if not isinstance(subject, ArcSubject):
        raise InputError(f"{name!r} is no arc; lots of a dataset are made by the arc that owns it.")
    begin, end = parse_range(subject, first, after, now=reports.now)
    return subject, begin, end


def _read_number(context: PageContext, name: str, default: int) -> int:
    text = context.get_field(name, str(default)) or str(default)
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"{name} is a number, not {text!r}.")
    return int(text)


def _describe_backfill(record: Record) -> dict[str, Any]:
    request, progress = record.document(BackfillRequest), record.document(BackfillProgress)
    return {
        "id": record.id,
        "arc": request.arc.replace(":", "/"),
        "which": request.which,
        "state": record.state,
        "started": progress.started,
        "open": len(progress.open),
        "failed": progress.failed,
    }


def read_run_part(context: PageContext, store: Store, run: Record) -> Mapping[str, Any]:
    about = run.document(RunDocument)
    return {"lot_url": url_of("/lot", name=f"arc {about.arc.replace(':', '/', 1)}", lot=about.lot), "lot": about.lot}


def find_links(context: PageContext, text: str) -> list[FoundLink]:
    """Datasets and arcs by a part of their name."""
    wanted = text.strip().lower()
    if not wanted:
        return []
    with open_reports(context) as (reports, _):
        return [
            FoundLink(subject.title, url_of("/calendar", name=key_of(subject)))
            for subject in reports.list_subjects()
            if wanted in subject.title.lower()
        ][:20]


def build_pages() -> ApplicationPages:
    router = make_page_router("/lots")
    add_routes(router)
    return ApplicationPages(
        router,
        navigation=(NavigationEntry("Lots", "/lots"),),
        package="waybill.apps.lots.pages",
        record_parts=(RecordPart("arc-run", "lots/run_part.html", read_run_part),),
        search=find_links,
    )
