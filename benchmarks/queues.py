"""A short and a long queue, measured in turns; prints medians in milliseconds.

python -m benchmarks.queues URL COUNT URL COUNT ROUNDS
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import machines
from benchmarks.lifecycles import queue
from waybill import rules
from waybill.record import CommitGroup, CommitResult, Store, WorkQueue
from waybill.rules import Machines
from waybill.stores import open_store
from waybill.worker.core.worker_settings import queues_of

WARM = 3  # rounds that are not counted: what was just written is still on its way to the disk


class Queue:
    """A store with so many parcels queued, and a session to claim them with."""

    def __init__(self, url: str, count: int) -> None:
        self.table = Machines.from_machines((machines.parcel(),))
        self.store: Store = open_store(url)
        began = time.perf_counter()
        queue(self.store, self.table, "parcel", count)
        self.filled = count / (time.perf_counter() - began)
        self.session = self.store.open_session(host="bench", ttl=3600, about={})
        self.queues: tuple[WorkQueue, ...] = queues_of(self.table)

    def move(self, count: int) -> float:
        """Claim so many and commit what their step made of them; the seconds it took."""
        began = time.perf_counter()
        claimed = self.store.claim(self.queues, self.session, count)
        changes = [
            rules.apply_outcome(self.table["parcel"], each.record, machines.DONE, who="bench") for each in claimed
        ]
        answers = self.store.commit([CommitGroup((change,)) for change in changes])
        took = time.perf_counter() - began
        if len(claimed) != count or not all(isinstance(answer, CommitResult) for answer in answers):
            raise SystemExit(f"{count} were requested, {len(claimed)} claimed, and the commit returned {answers[:1]}.")
        return took


def clocked(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def main(short_url: str, short_count: int, long_url: str, long_count: int, rounds: int) -> None:
    short, long = Queue(short_url, short_count), Queue(long_url, long_count)
    times: dict[str, list[float]] = {}
    for turn in range(rounds + WARM):
        for word, count in (("one", 1), ("ten", 10)):
            for name, each in (("short", short), ("long", long)):
                took = each.move(count) * 1000
                if turn >= WARM:
                    times.setdefault(f"{word} {name}", []).append(took)
    found: dict[str, float] = {name: statistics.median(values) for name, values in times.items()}
    looks: dict[str, Callable[[], Any]] = {
        "counts": lambda: long.store.count_by_state("parcel"),
        "first page": lambda: long.store.find("parcel", limit=100),
        "newest page": lambda: long.store.find("parcel", limit=100, newest=True),
    }
    for name, look in looks.items():
        found[name] = max(clocked(look) for _ in range(rounds))
    print(json.dumps({**found, "filled": long.filled, "looks": rounds}))
    for each in (short, long):
        each.store.close_session(each.session)
        each.store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
