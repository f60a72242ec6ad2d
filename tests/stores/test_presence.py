"""Which sessions a connection may reap, depending on how long it has been in contact with the store."""

from waybill.stores.presence import ConnectionPresence


def test_a_connection_without_gaps_reaps_at_once() -> None:
    presence = ConnectionPresence(0.0)
    for second in range(1, 31):
        presence.touch(second)
    assert presence.select_dead_sessions([("w", 15.0)], 30.0) == ["w"]


def test_after_a_gap_every_session_has_a_ttl_to_renew() -> None:
    presence = ConnectionPresence(0.0)
    for second in (*range(1, 31), 100):
        presence.touch(second)
    assert presence.select_dead_sessions([("w", 15.0)], 100.0) == []
    for second in range(101, 115):
        presence.touch(second)
        assert presence.select_dead_sessions([("w", 15.0)], second) == []
    presence.touch(115)
    assert presence.select_dead_sessions([("w", 15.0)], 115.0) == ["w"]


def test_a_connection_that_calls_seldom_reaps_what_it_finds_expired_twice() -> None:
    """All gaps of an idle worker are longer than a short ttl."""
    presence = ConnectionPresence(0.0)
    for second in range(5, 60, 5):
        presence.touch(second)
    assert presence.select_dead_sessions([("w", 2.0)], 55.0) == []
    presence.touch(60)
    assert presence.select_dead_sessions([("w", 2.0)], 60.0) == ["w"]


def test_a_session_that_was_renewed_in_between_starts_again() -> None:
    presence = ConnectionPresence(0.0)
    for second, expired in ((5, [("w", 2.0)]), (10, []), (15, [("w", 2.0)])):
        presence.touch(second)
        assert presence.select_dead_sessions(expired, second) == []
    presence.touch(20)
    assert presence.select_dead_sessions([("w", 2.0)], 20.0) == ["w"]


def test_a_clock_that_is_set_back_resets_everything() -> None:
    presence = ConnectionPresence(100.0)
    presence.touch(105)
    assert presence.select_dead_sessions([("w", 2.0)], 105.0) == []
    presence.touch(50)
    assert presence.select_dead_sessions([("w", 2.0)], 50.0) == []
