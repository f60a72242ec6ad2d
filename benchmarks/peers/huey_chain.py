"""Huey on SQLite with every commit synced: a chain of 8 tasks that do nothing, each enqueuing the next.

    python -m benchmarks.peers.huey_chain FILE COUNT THREADS

A crash loses the task that a consumer took, so Huey promises less than is promised here.
"""

from __future__ import annotations

import logging
import sys
import threading
import time

from huey import SqliteHuey

from benchmarks.peers.report import report

LINKS = 8


def main(file: str, count: int, threads: int) -> None:
    logging.disable(logging.WARNING)
    huey = SqliteHuey("bench", filename=file, fsync=True, results=False)
    ended, lock, done = [0], threading.Lock(), threading.Event()

    @huey.task()
    def link(number: int) -> None:
        if number < LINKS:
            link(number + 1)
            return
        with lock:
            ended[0] += 1
            if ended[0] == count:
                done.set()

    for _ in range(count):
        link(1)
    consumer = huey.create_consumer(
        workers=threads, worker_type="thread", periodic=False, initial_delay=0.001, max_delay=0.01, backoff=1.1
    )
    began = time.perf_counter()
    consumer.start()
    done.wait()
    report(count, time.perf_counter() - began)
    consumer.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
