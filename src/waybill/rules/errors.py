"""The errors of the rules, and texts that every store can keep."""

from __future__ import annotations

from waybill.errors import ActionRefused
from waybill.record import MAX_MESSAGE


class ClaimedByWorker(ActionRefused):
    """A worker has claimed the record; try again when the claim has ended."""

    code = "claimed"


def clip(text: str) -> str:
    """Return a message or a reason as every store can keep it: not too long, no lone surrogates, no null."""
    text = text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"
    if not text.isascii():
        text = text.encode(errors="replace").decode()
    return text.replace("\0", "?")


def describe_error(error: BaseException) -> str:
    """Return the text of an exception, even of one whose `__str__` raises."""
    try:
        return str(error)
    except Exception as worse:  # noqa: BLE001 - `__str__` of a foreign class may raise anything
        return f"{type(error).__name__}, whose text cannot be read: {type(worse).__name__}"
