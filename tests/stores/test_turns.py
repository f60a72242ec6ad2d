"""The order of claims: applications, then kinds, take turns."""

from __future__ import annotations

from waybill.record import Record
from waybill.stores.turns import take_turns


def queue(kind: str, n: int, priority: int = 5, first: int = 0) -> list[Record]:
    return [Record(kind, f"{kind}{i}", "Waiting", priority=priority, queue_position=first + i) for i in range(n)]


def order(records: list[Record], first_turn: int = 0) -> list[str]:
    return [record.id for record in take_turns(records, lambda each: each, first_turn)]


def test_a_kind_keeps_its_own_order() -> None:
    assert order(list(reversed(queue("job", 3)))) == ["job0", "job1", "job2"]


def test_a_kind_that_was_paused_for_a_day_is_not_served_alone() -> None:
    """Its positions are far below those of the other."""
    assert order(queue("job", 3) + queue("lot", 3, first=9_000)) == ["job0", "lot0", "job1", "lot1", "job2", "lot2"]


def test_an_application_with_many_kinds_gets_no_more_than_one_with_a_single_kind() -> None:
    records = [record for kind in ("a.w", "a.x", "a.y", "a.z") for record in queue(kind, 2)] + queue("b.v", 4)
    assert order(records)[:8] == ["a.w0", "b.v0", "a.x0", "b.v1", "a.y0", "b.v2", "a.z0", "b.v3"]


def test_the_first_turn_moves_on() -> None:
    records = queue("a.job", 2) + queue("b.job", 2) + queue("c.job", 2)
    assert [order(records, turn)[0] for turn in range(4)] == ["a.job0", "b.job0", "c.job0", "a.job0"]


def test_priority_comes_before_turns() -> None:
    assert order(queue("job", 2, priority=1) + queue("lot", 2)) == ["job0", "job1", "lot0", "lot1"]
