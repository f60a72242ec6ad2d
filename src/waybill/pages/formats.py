"""How templates write times, ages, sizes, numbers and links to records.

A time is written in UTC with the moment in `datetime`; `static/page.js` writes it in the viewer's zone and leaves UTC in the title.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec
from markupsafe import Markup

from waybill.views import format_time

MINUTE, HOUR, DAY = 60, 3600, 86400


def seconds_since(moment: str | None, now: float | None = None) -> float:
    """Seconds since an RFC 3339 time; 0 for one that cannot be read."""
    try:
        then = datetime.fromisoformat(moment).timestamp() if moment else None
    except ValueError:
        then = None
    return max(0.0, (time.time() if now is None else now) - then) if then is not None else 0.0


def format_duration(seconds: float) -> str:
    """3 h 12 min, 41 s, 2 d 4 h: the two largest units."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if seconds < MINUTE:
        return f"{seconds:.0f} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE:.0f} min"
    if seconds < DAY:
        return f"{seconds // HOUR:.0f} h {seconds % HOUR // MINUTE:.0f} min"
    return f"{seconds // DAY:.0f} d {seconds % DAY // HOUR:.0f} h"


def format_age(moment: str | None) -> str:
    return format_duration(seconds_since(moment)) if moment else ""


def render_time(moment: str | float | None) -> Markup:
    """An RFC 3339 time, or seconds since 1970."""
    if not moment:
        return Markup("")
    if not isinstance(moment, str):
        moment = format_time(moment) or ""
    try:
        at = datetime.fromisoformat(moment).astimezone(UTC)
    except ValueError:
        return Markup("{}").format(moment)  # another service wrote it in its own format
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        moment, f"{at:%Y-%m-%d %H:%M:%S} UTC", f"{at:%Y-%m-%d %H:%M} UTC"
    )


def render_ago(moment: str | float | None) -> Markup:
    """How long ago, with the time itself in the title."""
    if not moment:
        return Markup("")
    if not isinstance(moment, str):
        moment = format_time(moment) or ""
    try:
        at = datetime.fromisoformat(moment).astimezone(UTC)
    except ValueError:
        return Markup("{}").format(moment)
    return Markup('<time class="ago" datetime="{}" title="{}">{}</time>').format(
        moment, f"{at:%Y-%m-%d %H:%M:%S} UTC", format_age(moment)
    )


def format_bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(size) < 1000 or unit == "PB":
            return f"{size:,.0f} {unit}" if unit == "B" or abs(size) >= 100 else f"{size:,.1f} {unit}"
        size /= 1000
    raise AssertionError


def format_number(number: float) -> str:
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}"


def format_amount(number: float, unit: str) -> str:
    return format_bytes(number) if unit in ("B", "bytes") else f"{format_number(number)} {unit}".strip()


def format_json(body: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


FILTERS: dict[str, Callable[..., Any]] = {
    "age": format_age,
    "ago": render_ago,
    "amount": format_amount,
    "bytes": format_bytes,
    "duration": format_duration,
    "json_text": format_json,
    "number": format_number,
    "plural": plural,
    "time": render_time,
}


def record_url(kind: str, id: str) -> str:
    return f"/records/{quote(kind, safe='')}/{quote(id, safe='')}"


def list_url(kind: str, state: str | None = None) -> str:
    return f"/records/{quote(kind, safe='')}" + (f"?state={quote(state, safe='')}" if state else "")
