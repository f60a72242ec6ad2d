"""Questions of scripts that need no store: `waybill lots lot` and `waybill lots match`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from waybill.apps.lots.path_filters import PathFilter
from waybill.apps.lots.units import UNITS, Lot, find_unit, format_instant, parse_instant
from waybill.cli.command_context import CommandContext, command
from waybill.errors import InputError

PANEL = "Questions that need no store"
DEFAULT_UNIT = "PT5M"

T = TypeVar("T")
_LOOKS_LIKE_LOT = re.compile(r"\d+P", re.IGNORECASE)


def register(app: typer.Typer) -> None:
    command(app, without_subcommand=True, examples=("waybill lots", "waybill lots --json"))(list_units)
    command(app, name="lot", panel=PANEL, examples=(
        "waybill lots lot 2023-02-06T23:52:06Z --unit PT15M",
        "waybill lots lot 20230206PT5M286 --json",
    ))(show_lot)  # fmt: skip
    command(app, name="match", panel=PANEL, examples=(
        "waybill lots match --root s3://bucket/ingress/ --exclude '**/_*' --json",
    ))(match_paths)  # fmt: skip


def list_units(context: CommandContext) -> None:
    """Datasets that grow lot by lot, and arcs that process each lot once. Without a command: the units of lots."""
    if context.as_json:
        return context.print_json(
            [{"unit": each.name, "minutes": each.minutes, "lots": each.lots_of_day} for each in UNITS.values()]
        )
    for each in UNITS.values():
        context.print_line(f"{each.name:6} {each.lots_of_day:5} a day")
    return None


def show_lot(
    context: CommandContext,
    lot: Annotated[str, typer.Argument(metavar="INSTANT|LOT", help="An instant as ISO 8601 writes it, or a lot.")],
    unit: Annotated[
        str,
        typer.Option(
            "--unit", metavar="UNIT", help="The unit of the lot.", show_default=f"{DEFAULT_UNIT}, or the lot's own"
        ),
    ] = "",
) -> None:
    """Say which lot an instant is in, and when it starts and ends."""
    found = _as_usage(lambda: _find_lot(lot, unit))
    answer = {
        "lot": str(found),
        "unit": found.unit.name,
        "start": format_instant(found.start),
        "end": _or_none(lambda: format_instant(found.end)),
        "ordinal": found.ordinal,
        "previous": _or_none(lambda: str(found.previous)),
        "next": _or_none(lambda: str(found.next)),
    }
    if context.as_json:
        return context.print_json(answer)
    for key, value in answer.items():
        context.print_line(f"{key:9} {'-' if value is None else value}")
    return None


def _find_lot(text: str, unit: str) -> Lot:
    """Return the lot that a text names, or the one of the unit in which it starts."""
    if not _LOOKS_LIKE_LOT.match(text):
        return Lot.at(parse_instant(text), find_unit(unit or DEFAULT_UNIT))
    found = Lot.parse(text)
    return Lot.at(found.start, find_unit(unit)) if unit else found


def _or_none(read: Callable[[], T]) -> T | None:
    """Before the year 1 and after the year 9999 there is nothing."""
    try:
        return read()
    except InputError:
        return None


def _as_usage(read: Callable[[], T]) -> T:
    """What is no lot is a wrong argument: exit code 2."""
    try:
        return read()
    except InputError as error:
        raise InputError(str(error), code="usage") from None


def match_paths(
    context: CommandContext,
    root: Annotated[
        str, typer.Option("--root", metavar="URI", help="The path of the dataset; patterns are meant below it.")
    ],
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="G", help="A pattern of what belongs to it; may be repeated."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="G", help="A pattern of what does not; may be repeated.")
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", help="Small and capital letters are alike.")] = False,
) -> None:
    """Say of each path in standard input whether it belongs to a dataset."""
    paths = _as_usage(lambda: PathFilter(root, include or (), exclude or (), ignore_case=ignore_case))
    for line in sys.stdin:
        path = line.rstrip("\r\n")
        if not path:
            continue
        keeps = paths.keeps(path)
        if context.as_json:
            context.print_json({"path": path, "keep": keeps}, line=True)
        elif keeps:
            context.print_line(path)
