"""Caveats: what is worth knowing of a job that is done all the same, in its document `warnings`, one sentence for
each file.

The message of such a job begins with SAID, so that lists and reports find it without its documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waybill.record import Record

MOST = 100  # sentences that the document holds
SAID = "With warnings: "


class Caveats:
    """Those of one job, counted; only the first are kept."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []

    def add(self, sentence: str) -> None:
        self.count += 1
        if len(self._first) < MOST:
            self._first.append(sentence)

    def document(self) -> dict[str, Any]:
        return {"count": self.count, "first": self._first}


def of(job: Record) -> list[str]:
    """The first of them."""
    found = job.docs.get("warnings")
    return [each for each in found.get("first", ()) if isinstance(each, str)] if isinstance(found, Mapping) else []


def message(job: Record) -> str:
    """All in one line; empty if there is nothing to say."""
    told = of(job)
    more = job.docs["warnings"].get("count", 0) - 1 if told else 0
    return f"{SAID}{told[0]}{f' (and {more} more)' if more > 0 else ''}" if told else ""


def has_some(job: Record) -> bool:
    """Whether a job that is done has caveats, also where its documents were not read."""
    return job.state == "Completed" and job.message.startswith(SAID)
