"""What the log says of a store that is away."""

from typing import Any

import pytest

from tests.worker.yard import Yard
from waybill.record import Unavailable
from waybill.step import New
from waybill.worker.outage import AGAIN, Outage


def test_an_outage_is_told_when_it_begins_seldom_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    outage, error = Outage(), Unavailable("no route to host")
    for now in (0.0, 0.2, 0.4, AGAIN - 1, AGAIN, AGAIN + 0.2, 2 * AGAIN):
        outage.away("lane 1", error, now)
        outage.away("lane 2", error, now)
    outage.back("lane 2", 130.0)
    outage.away("lane 1", error, 131.0)
    outage.back("lane 1", 132.0)
    outage.back("lane 1", 133.0)
    outage.away("lane 1", error, 200.0)
    assert caplog.messages == [
        "the store is away: no route to host",
        "the store has been away for 60 s: no route to host",
        "the store has been away for 120 s: no route to host",
        "the store is back after 132 s",
        "the store is away: no route to host",
    ]


def test_a_worker_tells_of_an_outage_once(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    opened = yard.open_store
    refusals: list[int] = []

    def open_and_refuse() -> Any:
        store = opened()
        open_session = store.open_session

        def refuse(**about: Any) -> str:
            if len(refusals) < 4:
                refusals.append(1)
                raise Unavailable("no route to host")
            return open_session(**about)

        store.open_session = refuse  # type: ignore[method-assign]
        return store

    parcel = yard.engine.submit(New("parcel"))
    yard.open_store = open_and_refuse
    yard.steps()
    yard.worker()
    yard.until_state(parcel, "Sent")
    said = [message for message in caplog.messages if "the store" in message]
    assert (len(refusals), len(said)) == (4, 2)
    assert said[0] == "the store is away: no route to host"
    assert said[1].startswith("the store is back after ")
