"""Both sides at work in one tree, in an order that a seed chooses; and Waybill killed at any moment.

After each of Waybill's actions Merritt's own test finds nothing wrong, except what a killed service of theirs has left,
and that is repaired by the next round of maintenance. At the end every batch has been reported, and every job has
settled.
"""

import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.budget import Budget
from tests.interop.merritt.admin import Admin
from tests.interop.merritt.batches import Batch, delete_completed_batches
from tests.interop.merritt.client import Client, Killed
from tests.interop.merritt.jobs import Job
from tests.interop.merritt.locks import is_locked, lock, unlock
from tests.interop.merritt.services import LINE, Service
from tests.interop.merritt.states import StateError
from tests.interop.trees import assert_consistent
from tests.interop.trivial_ingest import TrivialIngest
from tests.servers.process import wait_until
from tests.stores.zookeeper import nodedump
from waybill.record import Conflict, Record, RecordNotFound
from waybill.rules import ActionRefused

ClientFactory = Callable[..., Client]
SETTLED = ("Completed", "Failed", "Deleted")


class RandomActors:
    """All who act on the tree, one at a time. `dirty`: a service was killed, or has removed too little, and the tree is as
    it left it.
    """

    def __init__(self, ingest: TrivialIngest, make_client: ClientFactory, rng: random.Random) -> None:
        self.ingest, self.make_client, self.rng = ingest, make_client, rng
        self.clients = {ruby: make_client(ruby=ruby) for ruby in (False, True)}
        self.admin = Admin(self.clients[True])
        self.dirty = False
        self.actions: list[str] = []

    def act(self) -> bool:
        """Take one random action. Returns whether Waybill wrote."""
        acts: list[tuple[int, Callable[[], bool]]] = [
            (10, self.our_step),
            (2, self.our_maintenance),
            (2, self.our_action),
            (1, self.our_submission),
            (6, self.their_step),
            (2, self.their_killed_step),
            (1, self.their_batch),
            (1, self.their_report),
            (2, self.their_click),
            (1, self.their_hold),
            (1, self.their_overwriting),
            (1, self.their_cleaning),
        ]
        action = self.rng.choices([act for _, act in acts], [weight for weight, _ in acts])[0]
        self.actions.append(action.__name__)
        return action()

    @property
    def client(self) -> Client:
        return self.clients[self.rng.random() < 0.5]

    # --- ours

    def our_step(self) -> bool:
        return self.ingest.run_one_step() is not None

    def our_maintenance(self) -> bool:
        self.ingest.run_maintenance()
        self.dirty = False
        return True

    def our_submission(self) -> bool:
        if sum(self.ingest.store.count_by_state("batch").values()) < 6:
            self.ingest.submit(jobs=self.rng.randrange(3), batchID=f"bid-{self.rng.randrange(10**9)}")
        return True

    def our_action(self) -> bool:
        kind, action = self.rng.choice(
            [
                ("job", "hold"),
                ("job", "release"),
                ("job", "resume"),
                ("job", "delete"),
                ("batch", "report"),
                ("batch", "hold"),
                ("batch", "release"),
                ("batch", "delete"),
            ]
        )
        found = self.ingest.store.find(kind).records
        if found:
            try:
                self.ingest.engine.act(self.rng.choice(found).ref, action, who="ann", confirmed=True)
            except (ActionRefused, Conflict, RecordNotFound):
                return False
        return True

    # --- theirs

    def their_step(self) -> bool:
        fails = "no luck" if self.rng.random() < 0.15 else ""
        Service(self.client).work(self.rng.choice(LINE), fails=fails)
        return False

    def their_killed_step(self) -> bool:
        client = self.make_client(ruby=self.rng.random() < 0.5, dies_after=self.rng.randrange(12))
        try:
            Service(client).work(self.rng.choice(LINE))
        except Killed:
            self.dirty = True
        else:
            client.close()
        return False

    def their_batch(self) -> bool:
        if sum(self.ingest.store.count_by_state("batch").values()) < 6:
            Batch.create(self.client, {"batchID": f"bid-{self.rng.randrange(10**9)}", "profile": "p", "jobs": 1})
            if self.rng.random() < 0.5:
                Service(self.client).take_batch(lambda submission: [{"profile": "p"}] * self.rng.randrange(1, 3))
        return False

    def their_report(self) -> bool:
        try:
            Service(self.client).report()
        except StateError:
            self.dirty = True  # it failed on what it deleted itself, and left its lock
        return False

    def their_click(self) -> bool:
        job = self._any_job()
        if job is not None:
            click = self.rng.choice([self.admin.hold, self.admin.release, self.admin.requeue])
            click(job)
        return False

    def their_overwriting(self) -> bool:
        job = self._any_job()
        if job is not None and Job(self.clients[True], job).load(writes=False).status not in SETTLED:
            self.admin.force_fail(job)
        return False

    def their_hold(self) -> bool:
        client = self.client
        if is_locked(client, "collections", "p"):
            unlock(client, "collections", "p")
        else:
            lock(client, "collections", "p")
        return False

    def their_cleaning(self) -> bool:
        delete_completed_batches(self.clients[True])
        # A job that an operator forced to fail is in no list of its batch: then they report the batch as Completed, and
        # delete it alone.
        self.dirty = self.dirty or nodedump.faults(self.clients[False].zk) != []
        return False

    def _any_job(self) -> str | None:
        jobs = [name for name in self.clients[True].children("/jobs") if name != "states"]
        return self.rng.choice(jobs) if jobs else None

    # --- the end

    def finish(self) -> None:
        """Release what is held, leave failed what failed, and run until everything has settled."""
        client = self.clients[False]
        if is_locked(client, "collections", "p"):
            unlock(client, "collections", "p")
        for each in self.clients.values():
            each.close()  # which ends the locks that failures left
        wait_until(
            lambda: not any(record.session for kind in ("batch", "job") for record in self._all(kind)),
            "their locks to end",
        )
        self.ingest.run_maintenance()
        with self.ingest.run_worker():
            wait_until(self._have_all_settled, "every batch to be reported and every job to settle", seconds=150)

    def _have_all_settled(self) -> bool:
        for kind in ("job", "batch"):
            for record in self._all(kind):
                if record.state == "Held":
                    # its collection is on hold, or somebody else was faster: try again next time
                    with suppress(ActionRefused, Conflict, RecordNotFound):
                        self.ingest.engine.act(record.ref, "release")
        return all(record.state in SETTLED for kind in ("job", "batch") for record in self._all(kind))

    def _all(self, kind: str) -> list[Record]:
        return self.ingest.store.find(kind).records


@pytest.mark.parametrize("seed", range(4))
def test_in_any_order_the_tree_is_consistent_after_each_step_of_ours_and_everything_ends(
    ingest: TrivialIngest, make_client: ClientFactory, seed: int, budget: Budget
) -> None:
    rng = random.Random(seed)
    actors = RandomActors(ingest, make_client, rng)
    written = 0
    for round in range(budget.pick(small=1, long=25)):
        for n in range(budget.pick(small=90, long=200)):
            try:
                mine = actors.act()
            except NoNodeError as error:
                if actors.dirty and nodedump.faults(zk_of(actors)):
                    continue  # it failed on what one of theirs has left
                raise AssertionError(f"a service of theirs found a node missing: {actors.actions[-5:]}") from error
            written += mine
            if mine and not actors.dirty:
                assert nodedump.faults(zk_of(actors)) == [], f"round {round}, action {n}: {actors.actions[-5:]}"
    actors.finish()
    ingest.run_maintenance()
    ingest.run_maintenance()
    for job in ingest.store.find("job").records:
        assert job.state in SETTLED, job
    assert_consistent(ingest, make_client())
    assert written > 10


def zk_of(actors: RandomActors) -> KazooClient:
    return actors.clients[False].zk


def all_sessions_ended(ingest: TrivialIngest) -> bool:
    ingest.store.reap_sessions()
    return not ingest.store.list_sessions()


def test_waybill_killed_while_both_work_leaves_the_tree_consistent(
    ingest: TrivialIngest, make_client: ClientFactory, zookeeper_url: str, tmp_path: Path, budget: Budget
) -> None:
    """kill -9 of two workers while a service of theirs works."""
    rng = random.Random(7)
    client = make_client()
    service = Service(client)
    log = tmp_path / "workers.log"
    for _ in range(budget.pick(small=2, long=40)):
        for n in range(3):
            ingest.submit(jobs=3, batchID=f"bid-{rng.randrange(10**9)}-{n}")
        command = [sys.executable, "-m", "tests.interop.trivial_ingest", zookeeper_url, str(tmp_path / "program")]
        with log.open("wb") as out:
            workers = [
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, cwd=Path(__file__).parents[2])
                for _ in range(2)
            ]
            try:
                for worker in workers:
                    assert worker.stdout is not None
                    assert worker.stdout.readline() == b"ready\n", log.read_text()
                for _ in range(rng.randrange(5, 25)):
                    service.work(rng.choice(LINE))
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()
                    if worker.stdout is not None:
                        worker.stdout.close()
        # What they had sent when they died may still be on its way into the tree.
        wait_until(lambda: nodedump.faults(client.zk) == [], f"the tree to be consistent: {nodedump.faults(client.zk)}")
        assert b"Traceback" not in log.read_bytes(), log.read_text()
    wait_until(lambda: all_sessions_ended(ingest), "the claims of the killed workers to end")
    with ingest.run_worker():
        for batch in ingest.store.find("batch").records:
            ingest.wait_for("batch", batch.id, "Completed")
    assert set(ingest.store.count_by_state("job")) == {"Completed"}
    assert_consistent(ingest, client)
