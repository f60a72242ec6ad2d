"""Pages of find_idle_parents on the SQL stores: they read the parents that wait for children by priority and
creation, and the position at which a page ends is a text that the next call takes as `after`.
"""

from __future__ import annotations

from collections.abc import Sequence

from waybill.record import IdleParents, Ref

START_POSITION = (-1, 0)  # before every (priority, seq)


def parse_position(after: str) -> tuple[int, ...]:
    return tuple(map(int, after.split())) if after else START_POSITION


def idle_page_of(rows: Sequence[tuple[str, str, bool | int, int, int]], limit: int) -> IdleParents:
    """The page of these rows (kind, id, is idle, priority, seq), of which at most `limit` were requested."""
    end = max((row[3:] for row in rows), default=START_POSITION)
    return IdleParents(
        [Ref(kind, id) for kind, id, is_idle, *_ in rows if is_idle],
        " ".join(map(str, end)) if len(rows) >= limit else None,
    )
