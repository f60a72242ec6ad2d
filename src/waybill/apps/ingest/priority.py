"""Priority: how urgent a job is at first, from 0 (next) to 99, so that a large batch does not stand before small ones.

    1. The profile's, if it has one. Else it grows with the batch: 1 job 5, 10 jobs 28, 100 jobs 51, 1,000 jobs 74, at most 99.
    2. Once the sizes have been asked for, and again when all files have come: ten more if the size is unknown or large.

Always reckoned from the first priority, so that looking twice does not add twice.
"""

from __future__ import annotations

import math

LEAST_URGENT = 99
BURDEN = 10  # for a job that is large, or may be


def first(jobs: int, profile: int | None = None) -> int:
    """The first priority of each of so many jobs of one batch."""
    if profile is not None:
        return max(0, min(LEAST_URGENT, profile))
    return min(LEAST_URGENT, int(math.log(max(1, jobs)) * 10 + 5))


def weighed(priority: int, space: int | None, large: int) -> int:
    """The priority of a job that needs so many bytes; None, 0 and -1 are "unknown", and more than `large` is large."""
    heavy = space is None or space <= 0 or space > large
    return min(LEAST_URGENT, priority + BURDEN) if heavy else priority
