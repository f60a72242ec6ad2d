"""Keys inside a transaction: who holds a name, taking it, letting go of it, and whose turn it is then."""

from __future__ import annotations

from collections.abc import Sequence

from waybill.record import Record
from waybill.stores.sqlite.database import Execute
from waybill.stores.sqlite.rows import SQL

HOLDER, TAKE, DROP, PASS = SQL["holder"], SQL["take_key"], SQL["drop_key"], SQL["pass_turn"]


def taken(execute: Execute, keys: Sequence[str], seq: int) -> str | None:
    """The first of these keys that another record than `seq` holds."""
    for key in keys:
        holder = execute(HOLDER, (key,)).fetchall()
        if holder and holder[0][0] != seq:
            return key
    return None


def take(execute: Execute, keys: Sequence[str], seq: int) -> None:
    for key in keys:
        execute(TAKE, (key, seq))


def drop(execute: Execute, before: Record, kept: Sequence[str]) -> None:
    """Let go of what it held and keeps no longer; what it asked for and did not take is for the next one."""
    for key in before.keys:
        if key not in kept:
            execute(DROP, (key, before.seq))
    pass_turn(execute, before.keys)


def pass_turn(execute: Execute, keys: Sequence[str]) -> None:
    """Unpark the first waiter of each of these keys that nobody holds."""
    for key in keys:
        if not execute(HOLDER, (key,)).fetchall():
            execute(PASS, (f"key {key}",))
