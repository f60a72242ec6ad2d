"""Where a look at waiting parents ended, as text that goes into the next call: the SQL stores walk them by priority,
turn and creation.
"""

from __future__ import annotations

from collections.abc import Sequence

from waybill.record import Idle, Ref

START = (-1, 0, 0)  # before every (priority, turn, seq)


def begin(after: str) -> tuple[int, ...]:
    return tuple(map(int, after.split())) if after else START


def idle(rows: Sequence[tuple[str, str, bool | int, int, int, int]], limit: int) -> Idle:
    """Of rows (kind, id, whether it is idle, priority, turn, seq), at most `limit` of which were asked for."""
    end = max((row[3:] for row in rows), default=START)
    return Idle(
        [Ref(kind, id) for kind, id, is_idle, *_ in rows if is_idle],
        " ".join(map(str, end)) if len(rows) >= limit else None,
    )
