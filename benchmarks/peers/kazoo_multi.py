"""A kazoo client on Merritt's layout that does one `multi` per transition, one after the other: what careful but
plain code reaches.

    python -m benchmarks.peers.kazoo_multi URL COUNT

It neither lists nor locks nor writes a history: it knows its jobs by heart, so it does less than any worker has to.
"""

from __future__ import annotations

import itertools
import json
import sys
import time

from kazoo.client import KazooClient

from benchmarks.machines import MERRITT
from benchmarks.peers.report import report

STATES = (*MERRITT, "Completed")
BATCH = "/batches/bid0000000000"


def status(state: str, before: str | None) -> bytes:
    written = {
        "status": state,
        "last_successful_status": before,
        "retry_count": 0,
        "last_modified": time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime()),
        "message": "",
    }
    return json.dumps(written).encode()


def create(client: KazooClient, job: str) -> None:
    multi = client.transaction()
    multi.create(f"/jobs/{job}")
    for name, body in (
        ("bid", BATCH[9:].encode()),
        ("priority", b"5"),
        ("space_needed", b"0"),
        ("configuration", b"{}"),
    ):
        multi.create(f"/jobs/{job}/{name}", body)
    multi.create(f"/jobs/{job}/status", status(STATES[0], None))
    multi.create(f"/jobs/states/{STATES[0].lower()}/05-{job}")
    multi.create(f"{BATCH}/states/batch-processing/{job}")
    check(multi.commit())


def lead(client: KazooClient, job: str) -> None:
    """Through all states, each a transaction of its own."""
    for version, (before, after) in enumerate(itertools.pairwise(STATES)):
        multi = client.transaction()
        multi.set_data(f"/jobs/{job}/status", status(after, before), version)
        multi.delete(f"/jobs/states/{before.lower()}/05-{job}")
        multi.create(f"/jobs/states/{after.lower()}/05-{job}")
        if after == STATES[-1]:
            multi.delete(f"{BATCH}/states/batch-processing/{job}")
            multi.create(f"{BATCH}/states/batch-completed/{job}")
        check(multi.commit())


def check(answers: list[object]) -> None:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer


def main(url: str, count: int) -> None:
    client = KazooClient(url.removeprefix("zookeeper://"))
    client.start()
    for state in STATES:
        client.ensure_path(f"/jobs/states/{state.lower()}")
    for folder in ("batch-processing", "batch-completed"):
        client.ensure_path(f"{BATCH}/states/{folder}")
    jobs = [f"jid{number:010d}" for number in range(1, count + 1)]
    for job in jobs:
        create(client, job)
    began = time.perf_counter()
    for job in jobs:
        lead(client, job)
    report(count, time.perf_counter() - began)
    client.stop()
    client.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
