"""Several workers in one process: they share the threads, stop together, and report an outage once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from tests.worker.worker_fixture import WorkerFixture
from waybill.record import BadStore, Record, Store, StoreUnavailable
from waybill.step import Done, New, Outcome, StepContext
from waybill.stores import open_store
from waybill.worker import Worker
from waybill.worker.worker_group import REPEAT_SECONDS, OutageLog, split_threads


@pytest.mark.parametrize(
    ("url", "threads", "expected"),
    [
        ("sqlite:///store.db", 4, [4]),
        ("zookeeper://a:1,b:2/waybill", 4, [4]),
        ("postgresql://somebody@host/base", 5, [3, 2]),
        ("postgres://host/base", 1, [1]),
    ],
)
def test_threads_are_split_by_store(url: str, threads: int, expected: list[int]) -> None:
    assert split_threads(url, threads) == expected


def test_both_workers_work_and_end_together(postgres_url: str, tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=120)

    def pack(record: Record, ctx: StepContext) -> Outcome:
        both.wait()  # two steps at the same time: each worker has one thread
        return Done()

    system = WorkerFixture(lambda: open_store(postgres_url), tmp_path / "work")
    system.set_steps(Packing=pack)
    with system.closing():
        parcels = [system.engine.submit(New("parcel")) for _ in range(4)]
        worker = system.start_worker(threads=2)
        for parcel in parcels:
            system.wait_for_state(parcel, "Sent")
        assert len(system.store.list_sessions()) == 2
        system.stop_worker(worker)
        assert system.store.list_sessions() == []


def test_a_worker_that_fails_ends_the_group_with_its_error(postgres_url: str, tmp_path: Path) -> None:
    opened: list[Store] = []

    def opener() -> Store:
        if len(opened) == 2:  # the fixture's own, the first worker's, and then
            raise BadStore("no more connections")
        opened.append(open_store(postgres_url))
        return opened[-1]

    system = WorkerFixture(opener, tmp_path / "work")
    system.set_steps()
    with system.closing():
        worker = Worker(
            opener, system.machines, host="h1", work_root=tmp_path / "work", objects=cast(Any, None), threads=2
        )
        with pytest.raises(BadStore, match="no more connections"):
            worker.run()
        assert system.store.list_sessions() == []


def test_an_outage_is_logged_when_it_begins_once_a_minute_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    outage, error = OutageLog(), StoreUnavailable("no route to host")
    for now in (0.0, 0.2, 0.4, REPEAT_SECONDS - 1, REPEAT_SECONDS, REPEAT_SECONDS + 0.2, 2 * REPEAT_SECONDS):
        outage.report_unavailable("worker 1", error, now)
        outage.report_unavailable("worker 2", error, now)
    outage.report_available("worker 2", 130.0)
    outage.report_unavailable("worker 1", error, 131.0)
    outage.report_available("worker 1", 132.0)
    outage.report_available("worker 1", 133.0)
    outage.report_unavailable("worker 1", error, 200.0)
    assert caplog.messages == [
        "the store is unavailable: no route to host",
        "the store has been unavailable for 60 s: no route to host",
        "the store has been unavailable for 120 s: no route to host",
        "the store is available again after 132 s",
        "the store is unavailable: no route to host",
    ]


def test_a_worker_logs_an_outage_once(system: WorkerFixture, caplog: pytest.LogCaptureFixture) -> None:
    opened = system.open_store
    refusals: list[int] = []

    def open_and_refuse() -> Any:
        store = opened()
        open_session = store.open_session

        def refuse(**about: Any) -> str:
            if len(refusals) < 4:
                refusals.append(1)
                raise StoreUnavailable("no route to host")
            return open_session(**about)

        store.open_session = refuse  # type: ignore[method-assign]
        return store

    parcel = system.engine.submit(New("parcel"))
    system.open_store = open_and_refuse
    system.set_steps()
    system.start_worker()
    system.wait_for_state(parcel, "Sent")
    lines = [message for message in caplog.messages if "the store" in message]
    assert (len(refusals), len(lines)) == (4, 2)
    assert lines[0] == "the store is unavailable: no route to host"
    assert lines[1].startswith("the store is available again after ")
