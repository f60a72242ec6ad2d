"""DBOS Transact: workflows of 8 steps that do nothing, on SQLite or PostgreSQL, as DBOS ships.

    python -m benchmarks.peers.dbos_workflows URL COUNT sequential|threads|queue

`sequential` calls one workflow after the other, `threads` calls from 16 threads, `queue` enqueues all beforehand and
polls without a pause.
"""

from __future__ import annotations

import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS

from benchmarks.peers.report import report

STEPS = 8
THREADS = 16


@DBOS.step()
def step(number: int) -> int:
    return number


@DBOS.workflow()
def lifecycle() -> int:
    return sum(step(number) for number in range(STEPS))


def main(url: str, count: int, how: str) -> None:
    logging.disable(logging.WARNING)
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    queue = (
        DBOS.register_queue("bench", worker_concurrency=THREADS, polling_interval_sec=0.01) if how == "queue" else None
    )
    lifecycle()  # warm
    if queue is not None:
        # Enqueuing is not counted for us, so it is not counted here: the clock starts when the first one may run.
        handles = [DBOS.enqueue_workflow("bench", lifecycle) for _ in range(count)]
        began = time.perf_counter()
        for handle in handles:
            handle.get_result(polling_interval_sec=0.01)
    elif how == "threads":
        began = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda _: lifecycle(), range(count)))
    else:
        began = time.perf_counter()
        for _ in range(count):
            lifecycle()
    report(count, time.perf_counter() - began)
    DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
