"""Embargoes: until when only operators get the files of an object, as its depositor wrote it in mrt-embargo.txt.

    1  a deposit with an embargo      closes its object before anything is stored (close_object)
    2  the version is stored          an object that the inventory does not have stays closed: nobody can tell whether it is open
    3  the version is recorded        the inventory says until when it is closed
    4  the date has come              it is open

A date that cannot be read never comes. Every way to the bytes of an object asks `explain_closed`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from waybill.apps.ingest.inventory import Inventory
from waybill.files.names import quote_text


def explain_closed(ark: str, row: Mapping[str, Any] | None, now: float) -> tuple[str, str]:
    """Return the error code and the reason why only operators get the files of an object now; empty if everybody does.

    `row`: the object in the inventory; None: it has none.
    """
    if row is None:
        return (
            "not-recorded",
            f"{quote_text(ark)} is not in the inventory, which alone says whether it is open: until it is recorded only operators "
            "get its files.",
        )
    if find_end(row["embargo"]) <= now:
        return "", ""
    return (
        "embargo",
        f"{quote_text(ark)} is under embargo until {row['embargo']}: until then only operators get its files.",
    )


def close_object(inventory: Inventory, ark: str, embargo: str) -> None:
    """Close an object for a deposit that is about to be stored, unless the object is closed for longer.

    Safe to repeat. A deposit that is not stored after all leaves the object closed, until its next version or a rebuild is recorded.
    """
    row = inventory.get_object(ark)
    if row is not None and find_end(row["embargo"]) < find_end(embargo):
        inventory.close_object(ark, embargo)


def find_end(text: str) -> float:
    """Return when an embargo ends, in seconds since 1970; 0 if there is none."""
    if text.lower() in ("", "none"):
        return 0.0
    try:
        end = datetime.fromisoformat(text)
        return (end if end.tzinfo is not None else end.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return math.inf
