"""A worker that tells when each record's first step began, and what it costs to have nothing to do.

    python -m benchmarks.waiting URL ROOT

It prints {"id", "at"} for each record, and {"cpu", "calls"} of so many seconds for each line SECONDS that it reads. It
ends with its input.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

from benchmarks import machines
from waybill.record import Record, Store
from waybill.rules import Machines
from waybill.step import Done, Outcome, StepContext
from waybill.stores import open_store
from waybill.worker import Worker

SETTLE = 1.0  # seconds until what was begun is over


class CountedStore:
    """A store that counts the calls of each verb."""

    def __init__(self, store: Store, calls: Counter[str]) -> None:
        self._store, self._calls = store, calls

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if callable(value):
            self._calls[name] += 1
        return value


def say(**message: object) -> None:
    print(json.dumps(message), flush=True)


def first(record: Record, ctx: StepContext) -> Outcome:
    say(id=record.id, at=time.monotonic())
    return Done()


def main(url: str, root: Path) -> None:
    machine = machines.parcel()
    machine.bound_steps[machine.initial_state] = first
    calls: Counter[str] = Counter()

    def opener() -> Store:
        return cast(Store, CountedStore(open_store(url), calls))

    worker = Worker(opener, Machines.from_machines((machine,)), host="bench", work_root=root, objects=cast(Any, None))

    def listen() -> None:
        for line in sys.stdin:
            time.sleep(SETTLE)
            before, cpu = Counter(calls), time.process_time()
            time.sleep(float(line))
            say(cpu=time.process_time() - cpu, calls=dict(calls - before))
        worker.stop()

    threading.Thread(target=listen, daemon=True).start()
    worker.run()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
