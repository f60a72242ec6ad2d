"""`waybill lots status`, `gaps`, `calendar` and `show`: what is there, what is not, and who is to blame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from waybill.apps.lots.heat_map import COLOURS, SVG_COLOURS, SYMBOLS, render_svg, render_text
from waybill.apps.lots.lot_view import describe_lot
from waybill.apps.lots.reports import LotReports, describe_run
from waybill.apps.lots.units import Lot, iter_lots
from waybill.cli.command_context import CommandContext, command

PANEL = "Reports"
SubjectArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A dataset (NAME/VERSION) or an arc (PROJECT/NAME).")
]
FirstOption = Annotated[
    str, typer.Option("--from", metavar="POINT", help="The first lot: a lot, an instant, or so long ago, as 12h or 7d.")
]
AfterOption = Annotated[
    str, typer.Option("--to", metavar="POINT", help="The lot after the last one.", show_default="the present one")
]


def register(app: typer.Typer) -> None:
    command(
        app, name="status", panel=PANEL, examples=("waybill lots status", "waybill lots status orders --from 7d --json")
    )(show_status)
    command(
        app,
        name="gaps",
        panel=PANEL,
        examples=(
            "waybill lots gaps orders --from 30d",
            "waybill lots gaps shop/count --from 20230101PT5M000 --to 20240101PT5M000 --json",
        ),
    )(show_gaps)
    command(
        app,
        name="calendar",
        panel=PANEL,
        examples=(
            "waybill lots calendar orders --from 365d",
            "waybill lots calendar orders --from 365d --svg orders.svg",
        ),
    )(show_calendar)
    command(app, name="show", panel=PANEL, examples=("waybill lots show shop/count 20230206PT5M286",))(show_lot)


@contextmanager
def open_reports(context: CommandContext) -> Iterator[LotReports]:
    with context.open_store() as store, context.environment.resources_of("lots").open_catalogue() as tables:
        yield LotReports.read(store, tables, datetime.now(UTC))


def show_status(
    context: CommandContext,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="A dataset or an arc; without it, all.")] = "",
    first: FirstOption = "1d",
    after: AfterOption = "",
) -> None:
    """Count the lots of a range by their class, for each dataset and arc."""
    with open_reports(context) as reports:
        subjects = [reports.find(name)] if name else reports.list_subjects()
        rows = [reports.describe_status(each, *reports.parse_range(each, first, after)) for each in subjects]
    if context.as_json:
        return context.print_json(rows)
    if not rows:
        context.print_line("Nothing is declared yet; `waybill lots apply FILE` declares datasets and arcs.")
    for row in rows:
        counts = ", ".join(f"{count} {each}" for each, count in row["counts"].items()) or "no lot is due yet"
        context.print_line(f"{row['name']:30} {row['unit']:6} {counts}   latest {row['latest'] or '-'}")
    return None


def show_gaps(
    context: CommandContext,
    name: SubjectArgument,
    first: FirstOption = "30d",
    after: AfterOption = "",
    everything: Annotated[bool, typer.Option("--all", help="The runs of complete and empty lots, too.")] = False,
    each: Annotated[
        bool, typer.Option("--each", help="Every lot by itself, instead of runs of lots that are alike.")
    ] = False,
) -> int:
    """List what is not there, with the first thing upstream that is to blame. Exit code 1: there are gaps."""
    with open_reports(context) as reports:
        subject = reports.find(name)
        begin, end = reports.parse_range(subject, first, after)
        report, runs = reports.report_gaps(subject, begin, end, everything=everything)
        for run in runs:
            if each:
                for lot in run.iter_lots():
                    _print_run(
                        context,
                        {"class": run.name, "lot": str(lot), "cause": run.cause or None},
                        str(lot),
                        run.name,
                        run.cause,
                        1,
                    )
            else:
                _print_run(context, describe_run(run), str(run.first), run.name, run.cause, run.count)
        summary = {
            "name": subject.title,
            "first": str(begin),
            "after": str(end),
            "lots": begin.count_to(end),
            "counts": dict(report.counts),
            "gaps": report.gap_count,
        }
        if context.as_json:
            context.print_json(summary, line=True)
        else:
            counts = ", ".join(f"{count} {word}" for word, count in report.counts.items())
            context.print_line(
                f"{subject.title}: {begin.count_to(end)} lots from {begin} to before {end}: {counts or 'none'}"
            )
    return 1 if report.gap_count else 0


def _print_run(context: CommandContext, row: dict[str, Any], first: str, name: str, cause: str, count: int) -> None:
    if context.as_json:
        return context.print_json(row, line=True)
    context.print_line(f"{first:18} {count:7} {name:9} {cause}")
    return None


def show_calendar(
    context: CommandContext,
    name: SubjectArgument,
    first: FirstOption = "365d",
    after: AfterOption = "",
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write it as SVG.")] = None,
) -> None:
    """Show a calendar: one cell for each day, coloured by its worst lot."""
    with open_reports(context) as reports:
        subject = reports.find(name)
        days = list(reports.list_days(subject, *reports.parse_range(subject, first, after, default="365d")))
        title = subject.title
    if svg is not None:
        svg.write_text(render_svg(days, title=title, colours=SVG_COLOURS), encoding="utf-8")
        return context.print_note(f"Written to {svg}.")
    if context.as_json:
        from waybill.apps.lots.heat_map import day_of

        return context.print_json([{"day": str(day_of(number)), "class": each} for number, each in days])
    for line in render_text(days):
        text = Text()
        for piece, each in line:
            text.append(piece, style=COLOURS[each] if each is not None else "")
        context.out.print(text)
    context.print_line("  ".join(f"{symbol} {each}" for each, symbol in SYMBOLS.items()))
    return None


def show_lot(
    context: CommandContext, name: SubjectArgument, lot: Annotated[str, typer.Argument(metavar="LOT", help="A lot.")]
) -> None:
    """Show all that is known of one lot: its generations, and for an arc its run, parts and attempts."""
    with open_reports(context) as reports, context.open_store() as store:
        found = describe_lot(reports, store, reports.find(name), Lot.parse(lot))
    if context.as_json:
        return context.print_json(found)
    _print_tree(context, found)
    return None


def _print_tree(context: CommandContext, value: Any, indent: str = "") -> None:
    for key, each in value.items() if isinstance(value, dict) else enumerate(value, 1):
        if isinstance(each, (dict, list)) and each:
            context.print_line(f"{indent}{key}:")
            _print_tree(context, each, indent + "  ")
        elif each not in (None, "", [], {}):
            context.print_line(f"{indent}{key}: {each}")


__all__ = ["AfterOption", "FirstOption", "SubjectArgument", "iter_lots", "open_reports", "register"]
