"""How fast a store is: claims, commits and pages with a short and a long queue.

    python benchmarks/stores.py sqlite:////tmp/bench.db --queued 1000 --queued 1000000
    python benchmarks/stores.py postgresql://user@host/scratch --queued 1000

The store must be empty, and is full of parcels afterwards. Figures are of one connection and one thread; each is the
middle one of several rounds, with the fastest and the slowest beside it. Never compare figures of two machines, nor of
two runs beside other work.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from waybill.record import Change, ClaimedRecord, CommitGroup, CommitResult, Record, Ref, Store, WorkQueue
from waybill.stores import open_store

T = TypeVar("T")

KIND, PORTION = "parcel", 100
# records in each call
EACH = {"claim": PORTION, "go on": PORTION, "release": PORTION, "claim one": 1, "release one": 1}
STATES = [f"State{i}" for i in range(8)]
LABEL = b'{"v":1,"profile":"bench","files":[{"name":"a.txt","size":1234},{"name":"b.txt","size":5678}]}'


def fill(store: Store, n: int, crates: int) -> float:
    """So many parcels, queued, in so many crates that take turns; without crates if 0."""
    began = time.perf_counter()
    parents: list[Ref | None] = [None]
    if crates:
        drafts = [
            Change(None, Record("crate", "crt*", "Filling", blocked_by="children"), cause="create")
            for _ in range(crates)
        ]
        parents = [record.ref for record in written(store.commit([CommitGroup(tuple(drafts))])[0])]
    for place, parent in enumerate(parents):
        left = n // len(parents) + (place < n % len(parents))
        while left:
            changes = [
                Change(None, draft(parent), cause="create", who="bench", documents={"label": LABEL})
                for _ in range(min(1000, left))
            ]
            left -= len(written(store.commit([CommitGroup(tuple(changes))])[0]))
    return time.perf_counter() - began


def draft(parent: Ref | None) -> Record:
    return Record(KIND, "pcl*", STATES[0], parent=parent, owner="bench")


def written(answer: object) -> list[Record]:
    if not isinstance(answer, CommitResult):
        raise SystemExit(f"refused: {answer}")
    return [record for record in answer.records if record is not None]


def step(record: Record, state: str, *, keep: bool) -> CommitGroup:
    after = msgspec.structs.replace(
        record, state=state, last_done=record.state, session=record.session if keep else None
    )
    return CommitGroup((Change(record, after, cause="done", who="bench"),))


class Round:
    """Some records, claimed, moved through some states under the claim, and released."""

    def __init__(self, store: Store, session: str) -> None:
        self.store, self.session = store, session
        self.times: dict[str, list[float]] = {}

    def timed(self, name: str, call: Callable[[], T]) -> T:
        began = time.perf_counter()
        answer = call()
        self.times.setdefault(name, []).append(time.perf_counter() - began)
        return answer

    def run(self) -> None:
        claimed: list[ClaimedRecord] = self.timed(
            "claim", lambda: self.store.claim([WorkQueue(KIND, STATES[0])], self.session, PORTION)
        )
        records = [each.record for each in claimed]
        for state in STATES[1:4]:
            groups = [step(record, state, keep=True) for record in records]
            answers = self.timed("go on", lambda: self.store.commit(groups))  # noqa: B023
            records = [written(answer)[0] for answer in answers]
        groups = [step(record, STATES[4], keep=False) for record in records]
        answers = self.timed("release", lambda: self.store.commit(groups))
        for answer in answers:
            written(answer)

    def pair(self) -> None:
        """One record alone: what a worker with nothing to batch pays."""
        (one,) = self.timed("claim one", lambda: self.store.claim([WorkQueue(KIND, STATES[0])], self.session, 1))
        self.timed("release one", lambda: self.store.commit([step(one.record, STATES[4], keep=False)]))

    def look(self) -> None:
        self.timed("counts", lambda: self.store.count_by_state(KIND))
        self.timed("first page", lambda: self.store.find(KIND, state=STATES[0], limit=100))
        self.timed("newest page", lambda: self.store.find(KIND, newest=True, limit=100))


def format_times(name: str, times: list[float], per: int) -> str:
    middle = statistics.median(times)
    rate = f"{per / middle:>10,.0f}/s" if per else " " * 12
    return f"  {name:12} {middle * 1000:8.3f} ms {rate}   ({min(times) * 1000:.3f} .. {max(times) * 1000:.3f} ms)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument(
        "--queued",
        type=int,
        action="append",
        help="measure with so many in the queue; may be given several times, rising",
    )
    parser.add_argument(
        "--crates", type=int, default=100, help="spread over so many parents that take turns; 0: no parents"
    )
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    store = open_store(options.url)
    session = store.open_session(host="bench", ttl=3600, about={})
    present = 0
    for queued in options.queued or [1_000, 10_000]:
        took = fill(store, queued - present, options.crates)
        print(f"{queued:,} queued (filled at {(queued - present) / took:,.0f} records/s)")
        round = Round(store, session)
        for _ in range(min(options.rounds, queued // PORTION)):
            round.run()
        fill(store, min(options.rounds, queued // PORTION) * PORTION, 0)
        for _ in range(options.rounds):
            round.pair()
            round.look()
        for name, times in round.times.items():
            print(format_times(name, times, EACH.get(name, 0)))
        present = sum(store.count_by_state(KIND).get(state, 0) for state in STATES[:1])
    store.close_session(session)
    store.close()


if __name__ == "__main__":
    main()
