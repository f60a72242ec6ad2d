"""Whatever is done, and whichever process is killed: after every commit Merritt's own test finds nothing wrong in the
tree.
"""

import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.budget import Budget
from tests.servers.process import wait_until
from tests.stores.zookeeper import nodedump
from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.random_ingest import RandomIngest
from waybill.stores.zookeeper import ZookeeperStore


@pytest.mark.parametrize("seed", range(2))
def test_any_random_run_leaves_the_tree_consistent_after_every_step(
    merritt: MerrittHarness, zk: KazooClient, seed: int, budget: Budget
) -> None:
    """Three workers take turns, each often out of date."""
    rng = random.Random(seed)
    workers = [RandomIngest(merritt.open(), rng) for _ in range(3)]
    checker = merritt.open()
    steps = budget.pick(small=40, long=700)
    for n in range(steps):
        rng.choice(workers).step()
        merritt.tick(0.02)
        assert nodedump.faults(zk) == [], f"after step {n}"
        if n % 10 == 0:
            assert list(checker.check()) == [], f"after step {n}"
    assert list(checker.check()) == []
    assert sum(worker.written for worker in workers) > steps / 8


def test_a_killed_worker_leaves_the_tree_consistent_at_every_moment(
    merritt: MerrittHarness, zk: KazooClient, tmp_path: Path, budget: Budget
) -> None:
    """kill -9 at any time of two workers: nothing half written, and their claims come free."""
    rng = random.Random(1)
    store = merritt.open()
    log = tmp_path / "workers.log"
    for round in range(budget.pick(small=2, long=60)):
        with log.open("wb") as out:
            command = [
                sys.executable,
                "-m",
                "tests.stores.zookeeper.random_ingest",
                f"zookeeper://{merritt.hosts}{merritt.root}",
            ]
            workers = [
                subprocess.Popen(
                    [*command, str(10 * round + n)], stdout=subprocess.PIPE, stderr=out, cwd=Path(__file__).parents[3]
                )
                for n in range(2)
            ]
            try:
                for worker in workers:
                    assert worker.stdout is not None
                    assert worker.stdout.readline() == b"ready\n", log.read_text()
                written = zk.exists("/waybill/change_signal").version
                enough = rng.randrange(5, 60)
                wait_until(
                    lambda: zk.exists("/waybill/change_signal").version > written + enough,  # noqa: B023
                    "the workers to have done something",
                    seconds=60,
                )
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()
                    if worker.stdout is not None:
                        worker.stdout.close()
        # What they had sent when they died may still be on its way into the tree.
        with suppress(TimeoutError):  # what is wrong is shown below
            wait_until(lambda: nodedump.faults(zk) == [] == list(store.check()), "the tree to be consistent")
        assert nodedump.faults(zk) == []
        assert list(store.check()) == []
        assert b"Traceback" not in log.read_bytes(), log.read_text()
    wait_until(lambda: are_all_unclaimed(store), "the claims of the killed workers to end", seconds=60)
    assert nodedump.faults(zk) == []


def are_all_unclaimed(store: ZookeeperStore) -> bool:
    store.reap_sessions()
    return not store.list_sessions() and all(
        record.session is None for kind in ("job", "batch") for record in store.find(kind).records
    )
