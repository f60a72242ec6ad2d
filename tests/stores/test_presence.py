"""Who may be called dead, by a connection that was or was not there to see."""

from waybill.stores.presence import Presence


def test_whoever_was_there_all_the_time_buries_at_once() -> None:
    presence = Presence(0.0)
    for second in range(1, 31):
        presence.touch(second)
    assert presence.dead([("w", 15.0)], 30.0) == ["w"]


def test_after_a_gap_everybody_has_a_ttl_to_come_back() -> None:
    presence = Presence(0.0)
    for second in (*range(1, 31), 100):
        presence.touch(second)
    assert presence.dead([("w", 15.0)], 100.0) == []
    for second in range(101, 115):
        presence.touch(second)
        assert presence.dead([("w", 15.0)], second) == []
    presence.touch(115)
    assert presence.dead([("w", 15.0)], 115.0) == ["w"]


def test_whoever_comes_by_seldom_buries_what_it_finds_expired_twice() -> None:
    """All gaps of an idle worker are longer than a short ttl."""
    presence = Presence(0.0)
    for second in range(5, 60, 5):
        presence.touch(second)
    assert presence.dead([("w", 2.0)], 55.0) == []
    presence.touch(60)
    assert presence.dead([("w", 2.0)], 60.0) == ["w"]


def test_whoever_came_back_in_between_begins_anew() -> None:
    presence = Presence(0.0)
    for second, expired in ((5, [("w", 2.0)]), (10, []), (15, [("w", 2.0)])):
        presence.touch(second)
        assert presence.dead(expired, second) == []
    presence.touch(20)
    assert presence.dead([("w", 2.0)], 20.0) == ["w"]


def test_a_clock_that_is_set_back_makes_everything_unknown() -> None:
    presence = Presence(100.0)
    presence.touch(105)
    assert presence.dead([("w", 2.0)], 105.0) == []
    presence.touch(50)
    assert presence.dead([("w", 2.0)], 50.0) == []
