"""The priority of a job, from 0 (most urgent) to 99, so that a large batch does not delay small ones.

    1. The profile's, if it has one. Else it grows with the batch: 1 job 5, 10 jobs 28, 100 jobs 51, 1,000 jobs 74, at most 99.
    2. When the sizes are estimated, and again when all files are fetched: ten more if the size is unknown or large.

It is always computed from the first priority, so that computing it twice does not add twice.
"""

from __future__ import annotations

import math

LEAST_URGENT = 99
LARGE_JOB_PENALTY = 10  # for a job that is large, or may be


def initial_priority_of(jobs: int, profile: int | None = None) -> int:
    """The first priority of the jobs of a batch with this many jobs."""
    if profile is not None:
        return max(0, min(LEAST_URGENT, profile))
    return min(LEAST_URGENT, int(math.log(max(1, jobs)) * 10 + 5))


def adjust_for_size(priority: int, space: int | None, large_job_bytes: int) -> int:
    """The priority of a job that needs `space` bytes; None, 0 and -1 are "unknown", more than `large_job_bytes` is large."""
    is_large = space is None or space <= 0 or space > large_job_bytes
    return min(LEAST_URGENT, priority + LARGE_JOB_PENALTY) if is_large else priority
