"""Workers are killed with SIGKILL in a loop, on each store with its real server, and every record settles exactly once.

On the way PostgreSQL is restarted and the leader of the ZooKeeper ensemble is killed. What is checked at the end is
read from the store: every crate has exactly its parcels, each history is a path of its table and enters its end once,
nothing is claimed and no lock is owned.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.budget import Budget
from tests.crash.killed_worker import CHILDREN, CRATE, MACHINES, PARCEL, STORE_UNAVAILABLE
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until
from tests.servers.zookeeper import ZooKeeperEnsemble
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.record import Record, Store, StoreError
from waybill.rules import find_illegal_transition
from waybill.step import New
from waybill.stores import open_store

WORKERS = 2


class WorkerProcesses:
    """Worker processes that are started, killed and started again."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.rng = url, folder, random.Random(7)
        self.log = open(folder.parent / "workers.log", "wb")  # noqa: SIM115 - closed by `end`
        self.processes = [self._start() for _ in range(WORKERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.crash.killed_worker", self.url, str(self.folder)]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=Path(__file__).parents[2])

    def kill_one(self) -> None:
        place = self.rng.randrange(len(self.processes))
        self.processes[place].kill()
        self.processes[place].wait()
        self.processes[place] = self._start()

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        try:
            for process in self.processes:
                process.wait(60)
        finally:
            for process in self.processes:
                process.kill()
            self.log.close()

    def check(self) -> None:
        """All run; one whose store was unavailable at its start is started again, as a supervisor would."""
        for place, process in enumerate(self.processes):
            if process.poll() == STORE_UNAVAILABLE:
                self.processes[place] = self._start()
            else:
                assert process.poll() is None, (self.folder.parent / "workers.log").read_text()[-4000:]


def steady(call: Callable[[], object]) -> object:
    """The answer of the call, once the store is available."""
    answer: list[object] = []

    def tried() -> bool:
        try:
            answer.append(call())
        except StoreError:
            return False
        return True

    wait_until(tried, "the store to answer", seconds=60)
    return answer[0]


def pages(store: Store, kind: str) -> list[Record]:
    return list(store.each(kind, documents=True, page_size=500))


def run(url: str, tmp_path: Path, kills: int, hurt: Callable[[int], None]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    store = open_store(url)
    engine = Engine(store, MACHINES)
    crates = 0

    def more(number: int) -> None:
        nonlocal crates
        for n in range(number):
            steady(lambda n=n: engine.submit(New("crate", idempotency_key=f"crate-{crates + n}")))  # type: ignore[misc]
        crates += number

    def settled() -> int:
        counts = steady(lambda: store.count_by_state("crate"))
        assert isinstance(counts, dict)
        return int(counts.get("Shipped", 0))

    more(4)
    processes = WorkerProcesses(url, folder)
    try:
        for kill in range(kills):
            # Kill when there is work in hand: after some more crates have been shipped, or a moment has passed with none.
            before, moment = settled(), time.monotonic() + processes.rng.uniform(0.2, 1.5)
            wait_until(lambda b=before, m=moment: settled() > b or time.monotonic() > m, "work or a moment")  # type: ignore[misc]
            processes.check()
            processes.kill_one()
            hurt(kill)
            if crates - settled() < 4:
                more(4)

        def all_shipped() -> bool:
            processes.check()
            return settled() == crates

        wait_until(all_shipped, f"all {crates} crates to be shipped", seconds=180, every=0.1)
    finally:
        processes.end()
    check(store, crates)
    store.close()


def check(store: Store, crates: int) -> None:
    everything = {kind: pages(store, kind) for kind in ("crate", "parcel")}
    assert len(everything["crate"]) == crates
    children = Counter(r.parent.id for r in everything["parcel"] if r.parent is not None)
    assert children == {r.id: CHILDREN for r in everything["crate"]}
    for crate in everything["crate"]:
        assert crate.documents["report"] == {"Signed": CHILDREN}
    for machine, last in ((CRATE, "Shipped"), (PARCEL, "Signed")):
        for record in everything[machine.name]:
            check_record(store, machine, record, last)

    def sessions_ended() -> bool:
        store.reap_sessions()  # expired sessions are ended by any connection: here, this one
        return store.list_sessions() == []

    wait_until(sessions_ended, "the sessions of the killed to end")
    assert [f for f in store.check() if f.repairable] == []


def check_record(store: Store, machine: Machine, record: Record, last: str) -> None:
    assert (record.state, record.session, record.locks, record.open) == (last, None, (), False)
    lines = store.history(record.kind, record.id)
    assert find_illegal_transition(machine, [(x.before, x.after, x.cause) for x in lines]) is None, lines
    entered = Counter(x.after for x in lines if x.before != x.after)
    assert all(count == 1 for count in entered.values()), lines  # no state was entered twice: nobody resumed anything


def test_sqlite(tmp_path: Path, budget: Budget) -> None:
    run(f"sqlite:///{tmp_path}/store.db", tmp_path, budget.pick(small=8, long=100), lambda kill: None)


def test_postgres_with_restarts(tmp_path: Path, budget: Budget) -> None:
    with PostgresServer() as server:

        def hurt(kill: int) -> None:
            if kill % 7 == 3:
                server.restart(immediate=kill % 2 == 0)

        run(server.create_database(), tmp_path, budget.pick(small=8, long=100), hurt)


def test_zookeeper_ensemble_with_its_leader_killed(
    tmp_path: Path, budget: Budget, zookeeper_ensemble: ZooKeeperEnsemble
) -> None:
    def hurt(kill: int) -> None:
        if kill % 7 == 3:
            leader = zookeeper_ensemble.leader()
            zookeeper_ensemble.kill(leader)
            zookeeper_ensemble.leader()
            zookeeper_ensemble.start(leader)

    run(zookeeper_ensemble.create_chroot(), tmp_path, budget.pick(small=8, long=100), hurt)


@pytest.mark.parametrize("url", ["sqlite"])
def test_the_check_can_fail(url: str, tmp_path: Path) -> None:
    """A record that went through a state twice is noticed."""
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    engine = Engine(store, MACHINES)
    engine.submit(New("crate"))
    with pytest.raises(AssertionError):
        check(store, 1)
    store.close()
