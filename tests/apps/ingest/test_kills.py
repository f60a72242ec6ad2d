"""Workers of ingest are killed with SIGKILL in a loop while deposits go through, on each store with its real server.

At the end every batch is reported once, with all its jobs; every file is in storage, byte for byte and in one version
of one object, and in the inventory; no ARK belongs to two, no lock and no working folder is left. PostgreSQL is
restarted on the way, the leader of the ZooKeeper ensemble killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.budget import Budget
from tests.crash.test_kill import pages, steady
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until
from tests.servers.zookeeper import ZooKeeperEnsemble
from waybill.apps.ingest.profile import Profile, ProfileMail, to_document
from waybill.apps.ingest.storage import StorageService
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.errors import STORE
from waybill.maintenance import MaintenanceContext, run_round
from waybill.maintenance.working_folders import WorkingFolderRoutine
from waybill.record import Record, Store
from waybill.rules import find_illegal_transition
from waybill.step import New

WORKERS = 2
JOBS = 12  # of one batch
SETTINGS = """
applications = ["ingest"]
[app.ingest]
url = "http://waybill.test"
takes_batches_of_others = true
[app.ingest.fetch]
allow = ["127.0.0.0/8"]
[app.ingest.disk_space]
keep_free = 0
unknown_size_bytes = 0
poll_interval = 1.0
"""


class Fleet:
    """`waybill work`, started, killed and started again."""

    def __init__(
        self, ingest: IngestFixture, folder: Path, more: Mapping[str, str] | None = None, settings: str = ""
    ) -> None:
        """`more`: variables of the workers' environment. `settings`: further ones, in TOML."""
        self.ingest, self.rng, self.more = ingest, random.Random(11), more or {}
        self.settings = folder / "waybill.toml"
        self.settings.write_text(SETTINGS + settings)
        self.log = open(folder / "workers.log", "wb")  # noqa: SIM115 - closed with the fleet
        self.processes = [self._start() for _ in range(WORKERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        config = self.ingest.environment.config
        environment = {
            "WAYBILL_WORK_HOST": config.work.host,
            "WAYBILL_WORK_ROOT": str(config.work.root),
            "WAYBILL_WORK_TTL": "2",
            "WAYBILL_OBJECTS": config.objects,
            "WAYBILL_INDEX": config.index,
            "PATH": "/usr/bin:/bin",
            "PYTHONFAULTHANDLER": "1",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            **self.more,
        }
        options = ["--data", str(config.data), "--store", config.store, "--config", str(self.settings)]
        command = [sys.executable, "-c", "from waybill.cli import main; main()", "work", *options]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment)

    def kill_one(self) -> None:
        place = self.rng.randrange(len(self.processes))
        self.processes[place].kill()
        self.processes[place].wait()
        self.processes[place] = self._start()

    def check(self) -> None:
        """All run; one that found no store when it started is started again, as a supervisor would."""
        for place, process in enumerate(self.processes):
            if process.poll() is not None:
                assert process.returncode == STORE, Path(self.log.name).read_text()[-3000:]
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


def submit(ingest: IngestFixture, number: int) -> Record:
    """A batch of files, one of which is asked for under a local id that the batches share."""
    rows = []
    for n in range(JOBS):
        name = f"b{number}-{n}.txt"
        url = ingest.web.put(name, name.encode() * 100)
        rows.append(f"{url} | | | | | {name} | | {'shared' if n == 0 else f'loc-{number}-{n}'} | | title {n} | 2026")
    head = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest\n"
    url = ingest.web.put(f"b{number}.checkm", (head + "\n".join(rows) + "\n#%eof\n").encode())
    submission = Submission(
        profile="p",
        url=url,
        type=PayloadType.FILES,
        filename=f"b{number}.checkm",
        batch_id=f"bid-{number}",
        owner="ark:/99999/o",
    )
    with ingest.engine() as engine:
        return engine.submit(New("batch", {"submission": submission.to_document()}, idempotency_key=f"bid-{number}"))


def run(ingest: IngestFixture, folder: Path, kills: int, hurt: Callable[[int], None]) -> None:
    with ingest.engine() as engine:
        profile = Profile(name="p", owner="ark:/99999/o", mail=ProfileMail(to=("jane@example.org",)))
        engine.submit(New("profile", {"profile": to_document(profile)}, id="p"))
    batches = 0

    def more() -> None:
        nonlocal batches
        steady(lambda: submit(ingest, batches))
        batches += 1

    def tally(kind: str) -> dict[str, int]:
        def asked() -> dict[str, int]:
            with ingest.engine() as engine:
                return engine.store.count_by_state(kind)

        found = steady(asked)
        assert isinstance(found, dict)
        return found

    def done() -> int:
        return tally("job").get("Completed", 0)

    more()
    fleet = Fleet(ingest, folder)
    try:
        for kill in range(kills):
            wanted = min(done() + fleet.rng.randrange(1, 4), batches * JOBS)

            def enough(wanted: int = wanted) -> bool:
                fleet.check()
                return done() >= wanted

            wait_until(enough, "some deposits", seconds=120)
            fleet.kill_one()
            hurt(kill)
            if batches * JOBS - done() < JOBS:
                more()

        def over() -> bool:
            fleet.check()
            return tally("batch").get("Completed", 0) + tally("batch").get("Failed", 0) == batches

        wait_until(over, f"all {batches} batches to be reported", seconds=300, every=0.2)
    finally:
        fleet.end()
    with ingest.engine() as engine:
        check(ingest, engine.store, batches)


def check(ingest: IngestFixture, store: Store, batches: int) -> None:
    jobs, resources = pages(store, "job"), ingest.resources
    storage: StorageService = resources.storage
    assert Counter(job.parent.id for job in jobs if job.parent) == {batch.id: JOBS for batch in pages(store, "batch")}
    for batch in pages(store, "batch"):
        assert batch.state == "Completed", (batch.message, batch.documents)
        assert batch.documents["status-report"]["counts"]["completed"] == JOBS
        entered = Counter(line.after for line in store.history("batch", batch.id) if line.before != line.after)
        assert entered["Reporting"] == entered["Completed"] == 1
    for job in jobs:
        check_job(ingest, store, storage, job)
    arks = Counter(job.documents["identifiers"]["primary_id"] for job in jobs)
    shared = {
        job.documents["identifiers"]["primary_id"]
        for job in jobs
        if "shared" in job.documents["identifiers"]["local_id"]
    }
    assert len(shared) == 1
    assert all(count == (batches if ark in shared else 1) for ark, count in arks.items())
    for ark, count in arks.items():
        versions = storage.list_versions(ark)
        assert len(versions) == len({version.request for version in versions}) == count
        assert list(storage.verify(ark)) == []

    def buried() -> bool:
        store.reap_sessions()
        return store.list_sessions() == []

    wait_until(buried, "the sessions of the killed to end")
    assert [finding for finding in store.check() if finding.repairable] == []
    hand = MaintenanceContext(
        store, ingest.environment.machines, ingest.environment.host, ingest.root, ingest.environment.objects
    )
    run_round(WorkingFolderRoutine(), hand)  # of one who was killed between the last commit and the clearing
    assert not [path for path in (ingest.root / "queue").rglob("*") if path.name == "producer"]


def check_job(ingest: IngestFixture, store: Store, storage: StorageService, job: Record) -> None:
    assert (job.state, job.session, job.locks) == ("Completed", None, ())
    lines = [(line.before, line.after, line.cause) for line in store.history("job", job.id)]
    assert find_illegal_transition(ingest.environment.machines["job"], lines) is None, lines
    ark, stored, name = (
        job.documents["identifiers"]["primary_id"],
        job.documents["stored"],
        job.documents["configuration"]["filename"],
    )
    assert stored["object"] == ark
    with storage.open_file(ark, f"producer/{name}", stored["version"]) as body:
        assert body.read() == name.encode() * 100
    assert ingest.resources.inventory.get_version(ark, stored["version"]) is not None


def test_sqlite(tmp_path: Path, budget: Budget) -> None:
    with IngestFixture(tmp_path) as ingest:
        run(ingest, tmp_path, budget.pick(small=5, long=100), lambda kill: None)


def test_postgres_with_restarts(tmp_path: Path, budget: Budget) -> None:
    with PostgresServer() as server, IngestFixture(tmp_path, store=server.create_database()) as ingest:

        def hurt(kill: int) -> None:
            if kill % 7 == 3:
                server.restart(immediate=kill % 2 == 0)
                ingest.environment.close()  # the inventory's connections are of the old server

        run(ingest, tmp_path, budget.pick(small=5, long=100), hurt)


def test_zookeeper_ensemble_with_its_leader_killed(
    tmp_path: Path, budget: Budget, zookeeper_ensemble: ZooKeeperEnsemble
) -> None:
    def hurt(kill: int) -> None:
        if kill % 7 == 3:
            leader = zookeeper_ensemble.leader()
            zookeeper_ensemble.kill(leader)
            zookeeper_ensemble.leader()
            zookeeper_ensemble.start(leader)

    with IngestFixture(tmp_path, store=zookeeper_ensemble.create_chroot()) as ingest:
        run(ingest, tmp_path, budget.pick(small=5, long=100), hurt)


def test_the_check_can_fail(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        steady(lambda: submit(ingest, 0))
        with ingest.engine() as engine, pytest.raises(AssertionError):
            check(ingest, engine.store, 1)
