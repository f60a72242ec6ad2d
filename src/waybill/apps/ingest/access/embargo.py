"""Embargo: until when the files of an object are for operators alone, as its depositor said in mrt-embargo.txt.

The newest version counts, for all versions: an update that says otherwise moves or ends it. What is known of the
object, its versions and the names of its files, is shown all the same. An end that cannot be read (another service
recorded it) has not come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from waybill.apps.ingest.names import shown

HINT = "Ask again when it is over, or ask an operator."


def in_force(row: Mapping[str, Any] | None, now: float) -> str:
    """Why the files of an object of the inventory are not to be had now, as a sentence; empty if they are."""
    if row is None or row["embargo"].lower() in ("", "none") or _end(row["embargo"]) <= now:
        return ""
    return f"{shown(row['ark'])} is under embargo until {row['embargo']}: until then only operators get its files."


def _end(text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return math.inf
