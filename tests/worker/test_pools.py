"""Pools of threads: what fills one delays no other, decided by events and not by time."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from waybill import Done, Engine, Machine, New, Outcome, Record, StepContext, end, stores, work
from waybill.machine import UPKEEP_POOL
from waybill.objects import DirectoryObjects
from waybill.rules import Machines
from waybill.worker import Worker, queues_of
from waybill.worker.worker_group import split_pools

LONG = 3  # as many as the threads of their pool


class Traffic:
    """Long steps, which end when the quick ones have."""

    def __init__(self) -> None:
        self.long_began = threading.Semaphore(0)
        self.quick_done = threading.Event()
        self.release = threading.Event()

    def carry(self, record: Record, ctx: StepContext) -> Outcome:
        self.long_began.release()
        assert self.release.wait(120)
        return Done()

    def note(self, record: Record, ctx: StepContext) -> Outcome:
        self.quick_done.set()
        return Done()

    def build_machines(self) -> Machines:
        def make(name: str, pool: str, step: object) -> Machine:
            return Machine(
                name=name, plural=f"{name}s", prefix=name, description="-", steps={"Moving": step},  # type: ignore[dict-item]
                states=(work("Moving", to="There", description="-", pool=pool), end("There", description="-")),
            )  # fmt: skip

        return Machines.from_machines(
            [
                make("cargo", "transfer", self.carry),
                make("note", UPKEEP_POOL, self.note),
                make("desk", "work", self.note),
            ]
        )


@pytest.fixture(params=["sqlite", "postgres", "zookeeper"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    url: str = request.getfixturevalue("fast_postgres_url" if request.param == "postgres" else "zookeeper_url")
    return url


@pytest.mark.parametrize("kind", ["note", "desk"])
def test_long_steps_that_fill_their_pool_delay_no_other(tmp_path: Path, store_url: str, kind: str) -> None:
    traffic = Traffic()
    machines = traffic.build_machines()
    worker = Worker(
        lambda: stores.open_store(store_url, migrate=True),
        machines,
        host="here",
        work_root=tmp_path / "work",
        objects=DirectoryObjects(tmp_path / "objects"),
        threads=2,
        pools={"transfer": LONG, UPKEEP_POOL: 1},
    )
    thread = threading.Thread(target=worker.run)
    with closing(stores.open_store(store_url, migrate=True)) as store:
        engine = Engine(store, machines)
        for _ in range(3 * LONG):
            engine.submit(New("cargo"))
        thread.start()
        try:
            for _ in range(LONG):
                assert traffic.long_began.acquire(timeout=120)
            # all threads of the pool are busy now, and more cargo waits
            quick = engine.submit(New(kind))
            assert traffic.quick_done.wait(120), "it waits for the long steps"
            assert not traffic.long_began.acquire(blocking=False), "more steps of the pool than it has threads"
            assert store.count_by_state("cargo") == {"Moving": 3 * LONG}
        finally:
            traffic.release.set()
            while store.count_by_state("cargo") != {"There": 3 * LONG}:
                store.watch(0.1)
            worker.stop()
            thread.join(120)
        assert store.get(*quick.ref).state == "There"
        assert store.list_sessions() == []


def test_each_pool_has_its_queues_and_threads() -> None:
    machines = Traffic().build_machines()
    shares = split_pools(machines, queues_of(machines), {UPKEEP_POOL: 1, "transfer": 8}, 4)
    assert [([f"{q.kind}.{q.state}" for q in s.queues], s.threads) for s in shares] == [
        (["desk.Moving"], 4),
        (["cargo.Moving"], 8),
        (["note.Moving"], 1),
    ]
