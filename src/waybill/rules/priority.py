"""A record's place in the queue: a number from 0 to 99, lower first."""

from __future__ import annotations

from msgspec.structs import replace

from waybill.record import Change, Record
from waybill.rules.refusals import Refused, clip

PRIORITY = "priority"  # the one request that every machine understands and that stops no step
DEFAULT_PRIORITY = 5


def reprioritise(record: Record, priority: int, who: str = "", why: str = "", *, answers: bool = False) -> Change:
    """A new place in the queue; the store moves the queue entry in the same commit."""
    check_priority(priority)
    return Change(record, replace(record, priority=priority, session=None), PRIORITY, who, clip(why), answers=answers)


def check_priority(priority: int) -> None:
    if not isinstance(priority, int) or not 0 <= priority <= 99:
        raise Refused(f"A priority is a number from 0 to 99, lower first; {priority} is not.")
