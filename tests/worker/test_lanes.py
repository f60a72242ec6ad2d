"""Two lanes behind the face of one worker: they share the threads, end together, and a fault of one is the worker's."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from tests.worker.yard import Yard
from waybill.record import BadStore, Record, Store
from waybill.step import Context, Done, New, Outcome
from waybill.stores import open_store
from waybill.worker import Worker
from waybill.worker.lanes import shares


@pytest.mark.parametrize(
    ("url", "threads", "expected"),
    [
        ("sqlite:///store.db", 4, [4]),
        ("zookeeper://a:1,b:2/waybill", 4, [4]),
        ("postgresql://somebody@host/base", 5, [3, 2]),
        ("postgres://host/base", 1, [1]),
    ],
)
def test_threads_are_shared_out(url: str, threads: int, expected: list[int]) -> None:
    assert shares(url, threads) == expected


def test_both_lanes_work_and_end_together(postgres_url: str, tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=120)

    def pack(record: Record, ctx: Context) -> Outcome:
        both.wait()  # two steps at the same time: each lane has one thread
        return Done()

    yard = Yard(lambda: open_store(postgres_url), tmp_path / "work")
    yard.steps(Packing=pack)
    with yard.closing():
        parcels = [yard.engine.submit(New("parcel")) for _ in range(4)]
        worker = yard.worker(threads=2)
        for parcel in parcels:
            yard.until_state(parcel, "Sent")
        assert len(yard.store.sessions()) == 2
        yard.stop(worker)
        assert yard.store.sessions() == []


def test_a_lane_that_fails_ends_the_worker_with_its_error(postgres_url: str, tmp_path: Path) -> None:
    opened: list[Store] = []

    def opener() -> Store:
        if len(opened) == 2:  # the yard's own, the first lane's, and then
            raise BadStore("no more connections")
        opened.append(open_store(postgres_url))
        return opened[-1]

    yard = Yard(opener, tmp_path / "work")
    yard.steps()
    with yard.closing():
        worker = Worker(
            opener, yard.machines, host="h1", work_root=tmp_path / "work", objects=cast(Any, None), threads=2
        )
        with pytest.raises(BadStore, match="no more connections"):
            worker.run()
        assert yard.store.sessions() == []
