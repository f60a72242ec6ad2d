"""Embargo: until when the files of an object are for operators alone, as its depositor said in mrt-embargo.txt.

The newest version counts, for all versions: an update that says otherwise moves or ends it. What is known of the object, its versions and
the names of its files, is shown all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from waybill.apps.ingest.names import shown

HINT = "Ask again when it is over, or ask an operator."


def in_force(row: Mapping[str, Any] | None, now: float) -> str:
    """Why the files of an object of the inventory are not to be had now, as a sentence; empty if they are."""
    until = _end(str(row["embargo"])) if row is not None and row["embargo"] else None
    if row is None or until is None or until.timestamp() <= now:
        return ""
    return f"{shown(row['ark'])} is under embargo until {row['embargo']}: until then only operators get its files."


def _end(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None  # another program's words, of which nobody knows when they end
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
