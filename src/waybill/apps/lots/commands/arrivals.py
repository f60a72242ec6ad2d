"""`waybill lots arrive`: say what has arrived for a dataset."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from waybill.apps.lots.arrival_service import find_boundary
from waybill.apps.lots.arrivals import ReportedArrival, report_arrivals
from waybill.apps.lots.declaration.changes import read_applied
from waybill.apps.lots.machine import BOUNDARY
from waybill.apps.lots.subjects import find_dataset_named
from waybill.cli.command_context import CommandContext, command
from waybill.errors import InputError
from waybill.record import Ref

PANEL = "Lots"


def register(app: typer.Typer) -> None:
    command(app, name="arrive", panel=PANEL, examples=(
        "waybill lots arrive orders a.csv b.csv",
        "waybill lots arrive orders < names.txt",
        "waybill lots arrive orders/1 s3://bucket/orders/a.csv --at 2023-02-06T23:52:06Z",
    ))(arrive)  # fmt: skip


def arrive(
    context: CommandContext,
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="NAME/VERSION; NAME alone is version 1.")],
    uris: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URI...",
            help="Files, or URIs of objects. Without any: one in each line of standard input, a URI or JSON.",
        ),
    ] = None,
    at: Annotated[str, typer.Option("--at", metavar="INSTANT", help="When they arrived.", show_default="now")] = "",
    copy: Annotated[bool, typer.Option("--copy", help="Copy files into the path of the dataset first.")] = False,
) -> None:
    """Say that objects have arrived. When it ends, that is on disk; what was said before is not said twice."""
    resources = context.environment.resources_of("lots")
    now = datetime.now(UTC)
    with context.runtime.open_engine() as engine, resources.open_catalogue() as tables:
        applied = read_applied(engine.store)
        declared = find_dataset_named(dataset, applied)
        boundary = find_boundary(declared, applied)
        reported = _iter_reported(uris, at)
        if copy:
            reported = resources_copy(resources, declared, reported)
        counts = report_arrivals(tables, resources.locations, declared, boundary, reported, now=now)
        engine.wake([Ref(BOUNDARY.name, boundary.id)])
    if context.as_json:
        return context.print_json(
            {"dataset": declared.title, "new": counts.new, "known": counts.known, "filtered": counts.filtered}
        )
    context.print_line(
        f"{counts.new} arrived for {declared.title}; {counts.known} were known, {counts.filtered} left out by the filter."
    )
    return None


def resources_copy(
    resources: object, declared: object, reported: Iterator[ReportedArrival]
) -> Iterator[ReportedArrival]:
    from waybill.apps.lots.arrival_service import copy_arrivals

    return copy_arrivals(resources, declared, reported)  # type: ignore[arg-type]


def _iter_reported(uris: list[str] | None, at: str) -> Iterator[ReportedArrival]:
    lines = uris if uris else (line.rstrip("\r\n") for line in sys.stdin)
    for line in lines:
        if not line:
            continue
        if line.startswith("{"):
            try:
                yield msgspec.json.decode(line, type=ReportedArrival)
            except msgspec.MsgspecError as error:
                raise InputError(
                    f"{line[:80]!r} is no arrival: {error}. Write a URI, or JSON with uri, size, sha256, modified and at."
                ) from error
        else:
            yield ReportedArrival(_uri_of(line), at=at or None)


def _uri_of(text: str) -> str:
    """A file of this host is named by its URI."""
    if "://" in text:
        return text
    path = Path(text)
    if not path.is_file():
        raise InputError(f"There is no file {text}. Name a file of this host, or the URI of an object.")
    return path.absolute().as_uri()
