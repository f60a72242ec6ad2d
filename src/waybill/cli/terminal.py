"""How records and tables look in a terminal. waybill.views decides what they contain."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from waybill.text_format import clip_line, format_age, format_local_time

STATE_STYLES = {"work": "cyan", "join": "cyan", "rest": "yellow", "end": "green", "retired": "magenta", None: "red"}


def make_table(*columns: str, unfolded: Collection[str] = ("id", "session")) -> Table:
    """`unfolded`: the columns with names that people copy, which are never broken into lines."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in unfolded)
    return table


def format_amount(number: float, unit: str = "") -> str:
    """A number with separators, bytes with a unit: 3, 1,200, 7.3 MB."""
    if unit != "bytes":
        return f"{number:,.0f}" if number == int(number) else f"{number:,g}"
    name = "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if number < 1000:
            break
        number, name = number / 1000, larger
    return f"{number:.0f} {name}" if name == "B" or number >= 100 else f"{number:.1f} {name}"


def format_size(count: int | None) -> str:
    """A number of bytes; empty if it is unknown."""
    return "" if count is None or count < 0 else format_amount(count, "bytes")


def pluralize(count: int, noun: str, plural: str = "") -> str:
    """Return "1 object", "2 objects"."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def style_state(name: str, state_type: str | None) -> Text:
    return Text(name, style=STATE_STYLES.get(state_type, ""))


def format_progress(view: Any) -> str:
    """The progress that a step reports, as a bar with its numbers."""
    if not view:
        return ""
    unit = view["unit"]
    total = f"/{format_amount(view['total'], unit)}" if view["total"] is not None else ""
    numbers = f"{format_amount(view['done'], unit)}{total} {'' if unit == 'bytes' else unit}".rstrip()
    if view["fraction"] is None:
        return numbers
    full = round(view["fraction"] * 20)
    return f"{'━' * full}{'╌' * (20 - full)} {view['fraction']:4.0%} {numbers}"


def _format_clock(moment: str, now: float | None) -> str:
    """The local time of a moment; with its date when that is not today."""
    today = datetime.fromtimestamp(now if now is not None else time.time()).astimezone().strftime("%Y-%m-%d ")
    return format_local_time(moment).removeprefix(today)


def describe_wait(record: Any, now: float | None = None) -> str:
    """What a record is doing: it is running, or what it waits for."""
    if record["session"]:
        return "running"
    if record["blocked_by"] == "wait" and record["wake_at"]:
        return f"waits until {_format_clock(record['wake_at'], now)}"
    if record["blocked_by"]:
        return f"waits for {record['blocked_by'].removeprefix('lock ').removeprefix('hold ')}"
    return ""


def make_record_table(records: Iterable[Any]) -> Table:
    table = make_table("id", "state", "prio", "owner", "updated", "", "message")
    for r in records:
        table.add_row(
            r["id"],
            style_state(r["state"], r["type"]),
            str(r["priority"]),
            r["owner"],
            format_age(r["updated"]),
            format_progress(r["progress"]) or describe_wait(r),
            clip_line(r["message"]),
        )
    return table


def make_field_table(pairs: Sequence[tuple[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value not in (None, "", [], ()):
            table.add_row(name, value if isinstance(value, Text) else str(value))
    return table


def format_transition(before: str | None, after: str | None) -> str:
    if before == after:
        return after or ""
    return f"{before or '·'} → {after or '·'}"
