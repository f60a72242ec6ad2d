"""A client that makes the requests of Merritt's Java library, one by one: jobs are made, acquired, led on and unlocked.

    python -m benchmarks.peers.merritt_requests URL COUNT THREADS

Each thread has a session of its own. A lifecycle is a job made and eight transitions. Java itself is not run here; of
these requests it was seen to make about 17 writes and 20 reads for a new job, 7.5 and 34 for a step, which is somewhat
more than is made here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.interop.merritt.batches import Batch
from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import Job

from benchmarks.machines import MERRITT
from benchmarks.peers.report import report

PATIENCE = 60.0
TOP = (
    "/batches",
    "/batch-uuids",
    "/jobs",
    "/jobs/states",
    *(f"/jobs/states/{state.lower()}" for state in (*MERRITT, "Completed")),
)


class Counted(Client):
    """Notes how many requests it makes."""

    def __init__(self, hosts: str) -> None:
        super().__init__(hosts)
        self.reads = 0
        for verb in ("exists", "get", "get_children"):
            setattr(self.zk, verb, self._counted(getattr(self.zk, verb)))

    def _counted(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.reads += 1
            return verb(*args, **options)

        return call


def acquire(client: Client, state: str) -> Job:
    """The next job in this state. Others may hold all that are listed, or have led one on before it was locked: then
    it asks again.
    """
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        job = Job.acquire(client, state)
        if job is not None and job.status == state:
            return job
        if job is not None:
            job.unlock()
    raise TimeoutError(f"no job came to {state} within {PATIENCE} s")


def lead(client: Client, bid: str, count: int) -> None:
    """Make so many jobs, then lead each through its states. Others do the same: whichever job is acquired is led on."""
    for number in range(count):
        Job.create(client, bid, {"title": f"number {number}"})
    for state in MERRITT:
        for _ in range(count):
            job = acquire(client, state)
            if state == "Pending":
                job.set_status("Estimating")
            else:
                job.success()
            job.unlock()


def main(url: str, count: int, threads: int) -> None:
    hosts = url.removeprefix("zookeeper://")
    clients = [Counted(hosts) for _ in range(threads)]
    for path in TOP:
        clients[0].create_if_needed(path)
    bids = []
    for client in clients:
        bids.append(Batch.create(client, {"batchID": ""}).id)
    before = sum(client.writes for client in clients), sum(client.reads for client in clients)
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for done in [
            pool.submit(lead, client, bid, count // threads) for client, bid in zip(clients, bids, strict=True)
        ]:
            done.result()
    seconds = time.perf_counter() - began
    led = count // threads * threads
    writes, reads = (
        sum(client.writes for client in clients) - before[0],
        sum(client.reads for client in clients) - before[1],
    )
    for client in clients:
        client.close()
    report(led, seconds, writes=writes / led, reads=reads / led)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
