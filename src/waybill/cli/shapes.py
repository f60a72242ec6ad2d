"""How records and tables look in a terminal. What they contain is decided in waybill.views."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

WHOLE = ("id", "job", "batch", "object", "failed", "session")  # columns of names that people copy: never folded
STYLES = {"work": "cyan", "join": "cyan", "rest": "yellow", "end": "green", "retired": "magenta", None: "red"}


def table(*columns: str) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=column in WHOLE)
    return made


def amount(number: float, unit: str = "") -> str:
    """A number for people, with its unit: 3, 1,200, 7.3 MB."""
    if unit != "bytes":
        return f"{number:,.0f}" if number == int(number) else f"{number:,g}"
    name = "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if number < 1000:
            break
        number, name = number / 1000, larger
    return f"{number:.0f} {name}" if name == "B" or number >= 100 else f"{number:.1f} {name}"


def state(name: str, sort: str | None) -> Text:
    return Text(name, style=STYLES.get(sort, ""))


def progress(view: Any) -> str:
    """A bar for a step that says how far it is, with the numbers."""
    if not view:
        return ""
    unit = view["unit"]
    total = f"/{amount(view['total'], unit)}" if view["total"] is not None else ""
    numbers = f"{amount(view['done'], unit)}{total} {'' if unit == 'bytes' else unit}".rstrip()
    if view["fraction"] is None:
        return numbers
    full = round(view["fraction"] * 20)
    return f"{'━' * full}{'╌' * (20 - full)} {view['fraction']:4.0%} {numbers}"


def age(moment: str | None, now: float | None = None) -> str:
    """How long ago, roughly."""
    if moment is None:
        return ""
    try:
        then = datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return clip(moment, 20)  # as another service has written it
    seconds = max(0.0, (now if now is not None else time.time()) - then)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit} ago"
    return f"{seconds:.0f}s ago"


def local(moment: str | None) -> str:
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else ""
    except ValueError:
        return clip(moment or "", 40)  # as another service has written it


def clip(text: str, most: int = 80) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _clock(moment: str, now: float | None) -> str:
    """The time of a moment; with its date when that is not today's."""
    today = datetime.fromtimestamp(now if now is not None else time.time()).astimezone().strftime("%Y-%m-%d ")
    return local(moment).removeprefix(today)


def where(record: Any, now: float | None = None) -> str:
    """Why a record does not move, if it does not: who holds it, or what it waits for."""
    if record["session"]:
        return "running"
    if record["parked"] == "wait" and record["wake_at"]:
        return f"waits until {_clock(record['wake_at'], now)}"
    if record["parked"]:
        return f"waits for {record['parked'].removeprefix('key ').removeprefix('mark ')}"
    return ""


def records(found: Iterable[Any]) -> Table:
    made = table("id", "state", "prio", "owner", "updated", "", "message")
    for r in found:
        made.add_row(
            r["id"],
            state(r["state"], r["sort"]),
            str(r["priority"]),
            r["owner"],
            age(r["updated"]),
            progress(r["progress"]) or where(r),
            clip(r["message"]),
        )
    return made


def fields(pairs: Sequence[tuple[str, Any]]) -> Table:
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in pairs:
        if value not in (None, "", [], ()):
            made.add_row(name, value if isinstance(value, Text) else str(value))
    return made


def arrow(before: str | None, after: str | None) -> str:
    if before == after:
        return after or ""
    return f"{before or '·'} → {after or '·'}"
