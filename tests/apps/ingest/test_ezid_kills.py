"""Workers are killed with SIGKILL while they tell an EZID over HTTP of their ARKs: before it has heard, after it
has, and at any moment.

At the end EZID keeps exactly one ARK for each job, which is the job's own; the one that belonged to somebody else is
his still.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from tests.apps.ingest.ezid_server import EzidServer
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.test_kills import JOBS, Fleet, submit
from tests.budget import Budget
from tests.crash.test_kill import pages, steady
from tests.servers.process import wait_until
from waybill.apps.ingest import object_versions
from waybill.apps.ingest.identifiers import noid
from waybill.apps.ingest.identifiers.ezid import REQUEST_LABEL
from waybill.apps.ingest.identifiers.minter import EZID_PASSWORD, EZID_USER
from waybill.apps.ingest.profile import Profile, ProfileMinter, to_document
from waybill.record import Store
from waybill.step import New

SECRETS = {EZID_USER: "apitest", EZID_PASSWORD: "secret"}
SHOULDER = "fk5"
TAKEN = noid.mint(0, "99999", SHOULDER)  # the first that is drawn


class Killer:
    """Kills somebody now and then: so often before EZID has heard, so often after it has, so often at any moment."""

    ODDS: ClassVar = {"before": 0.3, "after": 0.3, "between": 0.05}

    def __init__(self, fleet: Fleet, kills: int) -> None:
        self.fleet, self.rng = fleet, random.Random(23)
        self.left = Counter(dict.fromkeys(self.ODDS, kills))
        self.lock = threading.Lock()  # EZID is asked by many at once

    def __call__(self, when: str) -> None:
        with self.lock:
            self.fleet.check()
            if self.left[when] and self.rng.random() < self.ODDS[when]:
                self.left[when] -= 1
                self.fleet.kill_one()


def test_each_job_has_one_ark(tmp_path: Path, budget: Budget) -> None:
    with EzidServer() as ezid, IngestFixture(tmp_path) as ingest:
        ezid.known[TAKEN] = {REQUEST_LABEL: "somebody else"}
        with ingest.engine() as engine:
            minter = ProfileMinter(url=f"{ezid.url}/shoulder/ark:/99999/{SHOULDER}")
            engine.submit(
                New("profile", {"profile": to_document(Profile(name="p", owner="ark:/99999/o", minter=minter))}, id="p")
            )
        fleet, batches = (
            Fleet(ingest, tmp_path, SECRETS, f'[app.ingest.minter]\nezid_hosts = ["{urlsplit(ezid.url).netloc}"]\n'),
            0,
        )
        killer = ezid.watch = Killer(fleet, budget.pick(small=2, long=34))

        def completed() -> int:
            with ingest.engine() as engine:
                return engine.store.count_by_state("job").get("Completed", 0)

        def enough() -> bool:
            killer("between")
            return steady(completed) == batches * JOBS

        try:
            while killer.left.total():
                steady(partial(submit, ingest, batches))
                batches += 1
                wait_until(enough, "all deposits", seconds=300)
        finally:
            fleet.end()
        with ingest.engine() as engine:
            check(engine.store, ezid, batches)


def check(store: Store, ezid: EzidServer, batches: int) -> None:
    # what the batches share is the same object, and was minted once
    jobs = [job for job in pages(store, "job") if "minted" in job.documents]
    assert len(jobs) == batches * JOBS - (batches - 1)
    fields = {ark: told[REQUEST_LABEL] for ark, told in ezid.known.items()}
    assert fields.pop(TAKEN) == "somebody else"
    assert fields == {job.documents["identifiers"]["primary_id"]: object_versions.job_name_of(job) for job in jobs}
    assert ezid.minted == []


def test_the_check_can_fail(tmp_path: Path) -> None:
    with EzidServer() as ezid, IngestFixture(tmp_path) as ingest, ingest.engine() as engine:
        ezid.known |= {TAKEN: {REQUEST_LABEL: "somebody else"}, "ark:/99999/fk5x": {REQUEST_LABEL: "a job"}}
        with pytest.raises(AssertionError):
            check(engine.store, ezid, 1)
