"""Times, lines and sentences as people read them. The command line and doctor share these."""

from __future__ import annotations

import time
from datetime import datetime


def format_age(moment: str | None, now: float | None = None) -> str:
    """How long ago an RFC 3339 time is, rounded to its largest unit."""
    if moment is None:
        return ""
    try:
        then = datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return clip_line(moment, 20)  # another service wrote it in its own format
    seconds = max(0.0, (now if now is not None else time.time()) - then)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit} ago"
    return f"{seconds:.0f}s ago"


def format_local_time(moment: str | None) -> str:
    """An RFC 3339 time in the time zone of this machine."""
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else ""
    except ValueError:
        return clip_line(moment or "", 40)  # another service wrote it in its own format


def clip_line(text: str, max_length: int = 80) -> str:
    """The text on one line, cut with an ellipsis when it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def to_sentence(text: str) -> str:
    """The text with a full stop, unless it ends with a mark of its own."""
    text = text.strip()
    return text if not text or text.rstrip(")")[-1:] in (".", "!", "?") else text + "."
