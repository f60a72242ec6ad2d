"""Doctor names work that waits and that no living worker serves, on every store; and only that."""

import os
import platform
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Start, Waybill, ship, stepped
from tests.cli.test_upkeep import planted
from tests.servers.process import wait_until
from waybill.cli import unserved
from waybill.config import load
from waybill.demo import PARCEL, SHIPMENT
from waybill.depot import Depot
from waybill.record import MAX_PAGE
from waybill.rules import calls

DUTIES = f"{calls.DUTY}.Watching"
EVERYTHING = ("shipment.Sorting", "shipment.Travelling", "parcel.Packing", "parcel.Sending", DUTIES)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is due counts as waiting from then on."""
    monkeypatch.setattr(unserved, "GRACE", -1.0)


@contextmanager
def worker(*roles: str, knows: Iterable[str] = ("shipment", "parcel", calls.DUTY), host: str = "") -> Iterator[None]:
    """One that is alive, and was started for these roles."""
    store = Depot.of(load(env=dict(os.environ))).open_store()
    about = {"roles": list(roles), "tables": {kind: [1, "digest"] for kind in knows}}
    session = store.open_session(host=host or platform.node(), ttl=600, about=about)
    yield
    store.close_session(session)
    store.close()


def named(waybill: Waybill) -> dict[str, Any]:
    found = waybill("doctor", "--json")
    assert found.code == (1 if len(found.lines) > 1 else 0)
    assert found.lines[-1]["remark"] is None
    assert {line["rule"] for line in found.lines[:-1]} <= {unserved.RULE}
    return {line["where"]: line for line in found.lines[:-1]}


def test_what_no_living_worker_serves_is_named_with_what_to_do(anywhere: Waybill) -> None:
    ship(anywhere, 3)
    stepped(anywhere, "shipment")
    stepped(anywhere, "parcel.Packing")
    with worker("parcel.Packing", "shipment.Travelling", DUTIES):
        (finding,) = named(anywhere).values()
        assert finding["where"] == "parcel.Sending"
        assert finding["problem"].startswith("1 parcel has waited in Sending since ")
        assert finding["problem"].endswith(
            " ago), and no living worker serves parcel.Sending: 1 worker is alive, for other roles."
        )
        assert (finding["remedy"], finding["mendable"]) == (
            "start one that does: waybill work --role parcel.Sending",
            False,
        )
        with worker("parcel.Sending"):
            assert named(anywhere) == {}
    assert anywhere("doctor").code == 0


def test_a_worker_without_the_application_is_told_from_one_with_other_roles(anywhere: Waybill) -> None:
    ship(anywhere)
    with worker(DUTIES, knows=[calls.DUTY]), worker(DUTIES, knows=[calls.DUTY]):
        (finding,) = named(anywhere).values()
        assert finding["where"] == "shipment.Sorting"
        assert finding["problem"].endswith("2 workers are alive, without the application that declares shipments.")
        assert "install that application" in finding["remedy"]
        assert "--fix" not in anywhere("doctor", "--fix").out.splitlines()[0]


def test_a_real_worker_of_another_role_is_not_blamed_for_what_it_serves(anywhere: Waybill, running: Start) -> None:
    ship(anywhere, 2)
    work = running("work", "--role", "shipment", "--role", "duty")
    wait_until(lambda: "Packing" in anywhere("ls", "parcel", "--json").out, "the shipment is sorted")
    assert list(named(anywhere)) == ["parcel.Packing"]
    assert work.end(signal.SIGTERM).code == 0


def test_what_is_paused_held_or_waits_is_no_alarm(anywhere: Waybill) -> None:
    ship(anywhere, 2)  # one by mule, one by barge
    stepped(anywhere, "shipment")
    with worker("shipment.Travelling", DUTIES):
        assert list(named(anywhere)) == ["parcel.Packing"]
        anywhere("pause", "parcel")
        assert named(anywhere) == {}
        anywhere("unpause", "parcel")
        anywhere("hold", "queue/parcel.Packing")
        assert named(anywhere) == {}
        anywhere("release", "queue/parcel.Packing")
        anywhere("hold", "carrier/mule")
        assert named(anywhere)["parcel.Packing"]["problem"].startswith("1 parcel has")
        anywhere("hold", "carrier/barge")
        assert named(anywhere) == {}


def test_a_store_without_any_worker_is_remarked_on_and_nothing_is_wrong(anywhere: Waybill) -> None:
    assert anywhere("doctor").out == "Nothing is wrong.\n"
    ship(anywhere, 2)
    stepped(anywhere, "shipment")
    looked = anywhere("doctor")
    assert looked.code == 0
    first, last = looked.out.splitlines()
    assert first.startswith("No worker is alive: 2 parcels have waited in Packing since ")
    assert first.endswith(". `waybill work` starts one.")
    assert last == "Nothing is wrong."
    assert anywhere("doctor", "--json").json["remark"].startswith("No worker is alive: ")


def test_what_became_due_just_now_is_no_alarm(waybill: Waybill, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unserved, "GRACE", 3600.0)
    ship(waybill)
    with worker(DUTIES):
        assert named(waybill) == {}
        planted(data, "update record set updated = updated - 1200")
        assert named(waybill) == {}
        planted(data, "update record set updated = updated - 6000")
        (finding,) = named(waybill).values()
        assert "(2h ago)" in finding["problem"]


def test_a_wait_counts_from_when_it_was_due(waybill: Waybill, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(waybill)
    with worker(DUTIES):
        planted(data, "update record set parked = 'wait', updated = updated - 7200, wake_at = unixepoch() + 600")
        assert named(waybill) == {}
        planted(data, "update record set wake_at = unixepoch() - 180")
        (finding,) = named(waybill).values()
        assert "(3m ago)" in finding["problem"]


def test_a_session_that_does_not_say_what_for_is_given_the_benefit_of_the_doubt(waybill: Waybill) -> None:
    ship(waybill)
    with worker(DUTIES):
        store = Depot.of(load(env=dict(os.environ))).open_store()
        session = store.open_session(host=platform.node(), ttl=600, about={"pid": 7})
        assert named(waybill) == {}
        store.close_session(session)
        store.close()
        assert list(named(waybill)) == ["shipment.Sorting"]


def test_a_worker_that_expired_serves_nothing(waybill: Waybill, data: Path) -> None:
    ship(waybill)
    with worker(*EVERYTHING):
        assert named(waybill) == {}
        planted(data, "update session set expires = expires - 1200")
        with worker(DUTIES):
            rules = {line["where"] for line in waybill("doctor", "--json").lines[:-1] if line["rule"] == unserved.RULE}
            assert rules == {"shipment.Sorting"}


def test_upkeep_that_nobody_serves_is_named_too(waybill: Waybill, running: Start) -> None:
    work = running("work", "--role", "parcel")
    wait_until(lambda: list(named(waybill)) == [DUTIES], "the worker is there, and the duties that it has made are due")
    assert work.end(signal.SIGTERM).code == 0


def test_no_more_than_a_portion_is_looked_at(waybill: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unserved, "LOOKED", 2)
    monkeypatch.setattr(unserved, "MAX_PAGE", 2)
    assert MAX_PAGE > 2
    for _ in range(3):
        ship(waybill)
    with worker(DUTIES):
        assert named(waybill)["shipment.Sorting"]["problem"].startswith(
            "at least 2 shipments have waited in Sorting since "
        )


def test_a_state_that_is_left_to_another_service_is_not_missed(
    waybill: Waybill, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(waybill)
    monkeypatch.delitem(SHIPMENT.steps, "Sorting")
    assert PARCEL.steps
    with worker(DUTIES):
        assert named(waybill) == {}


@pytest.mark.usefixtures("films")
def test_files_on_a_host_whose_workers_do_something_else(waybill: Waybill, data: Path) -> None:
    waybill("submit", "film")
    stepped(waybill, "film.Load")
    with worker("film.Load", "film.Show", DUTIES):
        assert named(waybill) == {}
        # As on PostgreSQL, where there may be workers of another host; a SQLite file refuses them.
        planted(
            data,
            "update record set host = 'mill' where kind = 'film'",
            "insert into session select 'm', 'mill', ttl, since, expires,"
            ' cast(\'{"roles": ["film.Load"]}\' as blob), progress from session limit 1',
        )
        (finding,) = named(waybill).values()
        assert finding["where"] == "film.Show on mill"
        assert "with their working files on mill, whose workers do not serve film.Show." in finding["problem"]
