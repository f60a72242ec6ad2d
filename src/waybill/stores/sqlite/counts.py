"""The tally: how many records of each kind, and of each parent, are in each state.

Counted with the commit that moves them.
"""

from __future__ import annotations

from collections import Counter

from waybill.record import Ref
from waybill.stores.sqlite.database import Execute
from waybill.stores.sqlite.rows import SQL

Place = tuple[str, str, str, str]  # a row of the tally: kind, parent's kind and id, state
# kind, parent, from and to: hundreds of one call are the same few
Move = tuple[str, Ref | None, str | None, str | None]


def write(execute: Execute, moves: Counter[Move]) -> None:
    """Each move is one less there and one more here, of all records of its kind and of those of its parent."""
    counts: Counter[Place] = Counter()
    for (kind, parent, before, after), n in moves.items():
        for family in (("", ""),) if parent is None else (("", ""), parent):
            if before is not None:
                counts[kind, *family, before] -= n
            if after is not None:
                counts[kind, *family, after] += n
    for place, n in counts.items():
        if n > 0:
            execute(SQL["count"], (*place, n))
        elif n < 0:
            execute(SQL["count_less"], (*place, n))
            execute(SQL["forget_count"], place)
