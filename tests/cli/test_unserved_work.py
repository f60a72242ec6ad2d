"""Doctor finds work that waits and that no live worker serves, on every store; and only that."""

import os
import platform
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Start, Waybill, submit_shipment, take_step
from tests.cli.test_administration import write_past_driver
from tests.servers.process import wait_until
from waybill import doctor
from waybill.config import load
from waybill.demo import PARCEL, SHIPMENT
from waybill.environment import Environment
from waybill.rules import triggered_maintenance

MAINTENANCE_QUEUE = f"{triggered_maintenance.MAINTENANCE_KIND}.Watching"
EVERYTHING = ("shipment.Sorting", "shipment.Travelling", "parcel.Packing", "parcel.Sending", MAINTENANCE_QUEUE)


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is due counts as waiting from then on."""
    monkeypatch.setattr(doctor, "DUE_GRACE", -1.0)


@contextmanager
def worker(
    *queues: str, knows: Iterable[str] = ("shipment", "parcel", triggered_maintenance.MAINTENANCE_KIND), host: str = ""
) -> Iterator[None]:
    """A worker that is alive, and serves these queues."""
    store = Environment.from_config(load(env=dict(os.environ))).open_store()
    about = {"queues": list(queues), "machines": {kind: [1, "digest"] for kind in knows}}
    session = store.open_session(host=host or platform.node(), ttl=600, about=about)
    yield
    store.close_session(session)
    store.close()


def find_unserved(waybill: Waybill) -> dict[str, Any]:
    found = waybill("doctor", "--json")
    assert found.code == (1 if len(found.lines) > 1 else 0)
    assert found.lines[-1]["remark"] is None
    assert {line["rule"] for line in found.lines[:-1]} <= {doctor.UNSERVED_RULE}
    return {line["where"]: line for line in found.lines[:-1]}


def test_what_no_living_worker_serves_is_named_with_what_to_do(anywhere: Waybill) -> None:
    submit_shipment(anywhere, 3)
    take_step(anywhere, "shipment")
    take_step(anywhere, "parcel.Packing")
    with worker("parcel.Packing", "shipment.Travelling", MAINTENANCE_QUEUE):
        (finding,) = find_unserved(anywhere).values()
        assert finding["where"] == "parcel.Sending"
        assert finding["problem"].startswith("1 parcel has waited in Sending since ")
        assert finding["problem"].endswith(
            " ago), and no live worker serves parcel.Sending: 1 worker is alive, for other queues."
        )
        assert (finding["remedy"], finding["repairable"]) == (
            "start one that does: waybill work --queue parcel.Sending",
            False,
        )
        with worker("parcel.Sending"):
            assert find_unserved(anywhere) == {}
    assert anywhere("doctor").code == 0


def test_a_worker_without_the_application_is_told_from_one_with_other_queues(anywhere: Waybill) -> None:
    submit_shipment(anywhere)
    with (
        worker(MAINTENANCE_QUEUE, knows=[triggered_maintenance.MAINTENANCE_KIND]),
        worker(MAINTENANCE_QUEUE, knows=[triggered_maintenance.MAINTENANCE_KIND]),
    ):
        (finding,) = find_unserved(anywhere).values()
        assert finding["where"] == "shipment.Sorting"
        assert finding["problem"].endswith("2 workers are alive, without the application that declares shipments.")
        assert "install that application" in finding["remedy"]
        assert "--fix" not in anywhere("doctor", "--fix").out.splitlines()[0]


def test_a_real_worker_of_another_queue_is_not_blamed_for_what_it_serves(anywhere: Waybill, running: Start) -> None:
    submit_shipment(anywhere, 2)
    work = running("work", "--queue", "shipment", "--queue", "maintenance")
    wait_until(lambda: "Packing" in anywhere("ls", "parcel", "--json").out, "the shipment is sorted")
    assert list(find_unserved(anywhere)) == ["parcel.Packing"]
    assert work.end(signal.SIGTERM).code == 0


def test_what_is_paused_held_or_waits_is_no_alarm(anywhere: Waybill) -> None:
    submit_shipment(anywhere, 2)  # one by mule, one by barge
    take_step(anywhere, "shipment")
    with worker("shipment.Travelling", MAINTENANCE_QUEUE):
        assert list(find_unserved(anywhere)) == ["parcel.Packing"]
        anywhere("pause", "parcel")
        assert find_unserved(anywhere) == {}
        anywhere("unpause", "parcel")
        anywhere("hold", "queue/parcel.Packing")
        assert find_unserved(anywhere) == {}
        anywhere("release", "queue/parcel.Packing")
        anywhere("hold", "carrier/mule")
        assert find_unserved(anywhere)["parcel.Packing"]["problem"].startswith("1 parcel has")
        anywhere("hold", "carrier/barge")
        assert find_unserved(anywhere) == {}


def test_a_store_without_any_worker_is_remarked_on_and_nothing_is_wrong(anywhere: Waybill) -> None:
    assert anywhere("doctor").out.splitlines()[-1] == "Nothing is wrong."
    submit_shipment(anywhere, 2)
    take_step(anywhere, "shipment")
    looked = anywhere("doctor")
    assert looked.code == 0
    first, _, last = looked.out.splitlines()
    assert first.startswith("No worker is alive: 2 parcels have waited in Packing since ")
    assert first.endswith(". `waybill work` starts one.")
    assert last == "Nothing is wrong."
    assert anywhere("doctor", "--json").json["remark"].startswith("No worker is alive: ")


def test_what_became_due_just_now_is_no_alarm(waybill: Waybill, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DUE_GRACE", 3600.0)
    submit_shipment(waybill)
    with worker(MAINTENANCE_QUEUE):
        assert find_unserved(waybill) == {}
        write_past_driver(data, "update record set updated = updated - 1200")
        assert find_unserved(waybill) == {}
        write_past_driver(data, "update record set updated = updated - 6000")
        (finding,) = find_unserved(waybill).values()
        assert "(2h ago)" in finding["problem"]


def test_a_wait_counts_from_when_it_was_due(waybill: Waybill, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit_shipment(waybill)
    with worker(MAINTENANCE_QUEUE):
        write_past_driver(
            data, "update record set blocked_by = 'wait', updated = updated - 7200, wake_at = unixepoch() + 600"
        )
        assert find_unserved(waybill) == {}
        write_past_driver(data, "update record set wake_at = unixepoch() - 180")
        (finding,) = find_unserved(waybill).values()
        assert "(3m ago)" in finding["problem"]


def test_a_session_that_does_not_say_what_for_is_given_the_benefit_of_the_doubt(waybill: Waybill) -> None:
    submit_shipment(waybill)
    with worker(MAINTENANCE_QUEUE):
        store = Environment.from_config(load(env=dict(os.environ))).open_store()
        session = store.open_session(host=platform.node(), ttl=600, about={"pid": 7})
        assert find_unserved(waybill) == {}
        store.close_session(session)
        store.close()
        assert list(find_unserved(waybill)) == ["shipment.Sorting"]


def test_a_worker_that_expired_serves_nothing(waybill: Waybill, data: Path) -> None:
    submit_shipment(waybill)
    with worker(*EVERYTHING):
        assert find_unserved(waybill) == {}
        write_past_driver(data, "update session set expires = expires - 1200")
        with worker(MAINTENANCE_QUEUE):
            rules = {
                line["where"] for line in waybill("doctor", "--json").lines[:-1] if line["rule"] == doctor.UNSERVED_RULE
            }
            assert rules == {"shipment.Sorting"}


def test_maintenance_that_no_worker_serves_is_found_too(waybill: Waybill, running: Start) -> None:
    work = running("work", "--queue", "parcel")
    wait_until(
        lambda: list(find_unserved(waybill)) == [MAINTENANCE_QUEUE],
        "the worker is there, and the maintenance records that it has made are due",
    )
    assert work.end(signal.SIGTERM).code == 0


def test_no_more_than_a_limit_is_read(waybill: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MAX_RECORDS_READ", 2)
    for _ in range(3):
        submit_shipment(waybill)
    with worker(MAINTENANCE_QUEUE):
        assert find_unserved(waybill)["shipment.Sorting"]["problem"].startswith(
            "at least 2 shipments have waited in Sorting since "
        )


def test_a_state_that_is_left_to_another_service_is_not_missed(
    waybill: Waybill, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_shipment(waybill)
    monkeypatch.delitem(SHIPMENT.bound_steps, "Sorting")
    assert PARCEL.bound_steps
    with worker(MAINTENANCE_QUEUE):
        assert find_unserved(waybill) == {}


@pytest.mark.usefixtures("films")
def test_files_on_a_host_whose_workers_do_something_else(waybill: Waybill, data: Path) -> None:
    waybill("submit", "film")
    take_step(waybill, "film.Load")
    with worker("film.Load", "film.Show", MAINTENANCE_QUEUE):
        assert find_unserved(waybill) == {}
        # As on PostgreSQL, where there may be workers of another host; a SQLite file refuses them.
        write_past_driver(
            data,
            "update record set host = 'mill' where kind = 'film'",
            "insert into session select 'm', 'mill', ttl, since, expires,"
            ' cast(\'{"queues": ["film.Load"]}\' as blob), progress from session limit 1',
        )
        (finding,) = find_unserved(waybill).values()
        assert finding["where"] == "film.Show on mill"
        assert "with their working files on mill, whose workers do not serve film.Show." in finding["problem"]
