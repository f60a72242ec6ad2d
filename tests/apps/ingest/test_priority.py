"""Priority: the first of a job, and what its size adds."""

import pytest

from waybill.apps.ingest.priority import adjust_for_size, initial_priority_of

LARGE = 1_000_000


@pytest.mark.parametrize(
    ("jobs", "priority"),
    [(0, 5), (1, 5), (2, 11), (10, 28), (100, 51), (1000, 74), (10_000, 97), (12_087, 98), (12_089, 99), (10**9, 99)],
)
def test_the_first_grows_with_the_batch(jobs: int, priority: int) -> None:
    assert initial_priority_of(jobs) == priority


@pytest.mark.parametrize(("profile", "priority"), [(0, 0), (7, 7), (99, 99), (100, 99), (-1, 0)])
def test_the_profile_decides(profile: int, priority: int) -> None:
    assert initial_priority_of(1000, profile) == priority


@pytest.mark.parametrize(("space", "priority"), [(1, 28), (LARGE, 28), (LARGE + 1, 38), (None, 38), (0, 38), (-1, 38)])
def test_large_and_unknown_jobs_are_less_urgent(space: int | None, priority: int) -> None:
    assert adjust_for_size(28, space, LARGE) == priority


def test_nothing_is_less_urgent_than_99() -> None:
    assert adjust_for_size(95, None, LARGE) == 99
