"""What the rules refuse, and with which words: sentences that every store can keep."""

from __future__ import annotations

from waybill.record import MAX_MESSAGE


class Refused(Exception):
    """This is not allowed now."""


class Held(Refused):
    """A worker holds the record now; try again when it has let go."""


class UnknownState(Refused):
    """A kind has no such state."""


def clip(text: str) -> str:
    """A message or a reason as every store can keep it: not too long, no half characters, no null."""
    text = text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"
    if not text.isascii():
        text = text.encode(errors="replace").decode()
    return text.replace("\0", "?")


def said(error: BaseException) -> str:
    """What an exception says, even of one that cannot say it."""
    try:
        return str(error)
    except Exception as worse:  # noqa: BLE001 - whatever __str__ of a stranger's class may raise
        return f"{type(error).__name__}, which raises {type(worse).__name__} when asked what it says"
