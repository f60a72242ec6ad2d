"""A small ingest over the store's verbs alone: batches that spawn jobs, jobs that go through Merritt's states,
people who interfere.

Each step is one random act of a worker or a person, legal by Merritt's tables. As a program it goes on until it is
killed: `python -m tests.stores.zookeeper.ingest URL SEED`.
"""

import random
import sys
from typing import Any

from msgspec.structs import replace

from tests.stores.zookeeper.records import TERMINAL, moving
from waybill.record import Answer, Change, Committed, Group, NotFound, Record, Role, SessionLost, StoreError, encode
from waybill.stores.zookeeper import ZookeeperStore

JOB = {
    "Pending": "Estimating",
    "Estimating": "Provisioning",
    "Provisioning": "Downloading",
    "Downloading": "Processing",
    "Processing": "Storing",
    "Storing": "Recording",
    "Recording": "Notify",
    "Notify": "Completed",
}
BATCH = {"Pending": "Processing", "Processing": "Reporting", "Reporting": "Completed", "UpdateReporting": "Completed"}
ROLES = [Role("job", state, holds=state == "Pending") for state in JOB] + [Role("batch", state) for state in BATCH]


class Ingest:
    def __init__(self, store: ZookeeperStore, rng: random.Random, ttl: float = 50, most_jobs: int = 12) -> None:
        self.store, self.rng, self.ttl, self.most_jobs = store, rng, ttl, most_jobs
        self.session = store.open_session(host="h", ttl=ttl, about={})
        self.held: list[Record] = []
        self.written = self.refused = 0

    def step(self) -> None:
        acts: list[tuple[int, Any]] = [
            (3, self.submit),
            (6, self.claim),
            (14, self.work),
            (2, self.act),
            (1, self.mark),
            (2, self.wake),
            (1, self.tidy),
            (1, self.restart),
        ]
        self.rng.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()

    def commit(self, groups: list[Group]) -> list[Answer]:
        answers = self.store.commit(groups)
        self.written += sum(isinstance(answer, Committed) for answer in answers)
        self.refused += sum(not isinstance(answer, Committed) for answer in answers)
        for answer in answers:
            if isinstance(answer, Committed) and answer.idle:
                self.store.commit([Group((), answer.idle)])
        return answers

    def submit(self) -> None:
        if sum(self.store.tally("job").values()) >= self.most_jobs:
            return
        submission = {"batchID": f"bid-{self.rng.randrange(10**9)}"} if self.rng.random() < 0.7 else {}
        self.commit(
            [
                Group(
                    (
                        Change(
                            None,
                            Record("batch", "bid*", "Pending"),
                            "submit",
                            "ann",
                            docs={"submission": encode(submission)},
                        ),
                    )
                )
            ]
        )

    def claim(self) -> None:
        try:
            claimed = self.store.claim(self.rng.sample(ROLES, 9), self.session, self.rng.randrange(1, 5))
        except SessionLost:
            self.session, self.held = self.store.open_session(host="h", ttl=self.ttl, about={}), []
            return
        for each in claimed:
            if each.mark is not None:
                self.commit([Group((moving(each.record, "Held", session=None, event="hold"),))])
            else:
                self.held.append(each.record)

    def work(self) -> None:
        """Commit for some of what is held, all in one call."""
        if not self.held:
            self.claim()
        self.rng.shuffle(self.held)
        some = [self.held.pop() for _ in range(min(len(self.held), self.rng.randrange(1, 4)))]
        groups = [self._batch(record) if record.kind == "batch" else self._job(record) for record in some]
        for answer in self.commit(groups):
            if isinstance(answer, Committed):
                self.held += [record for record in answer.records if record is not None and record.session is not None]

    def _job(self, job: Record) -> Group:
        if self.rng.random() < 0.15:
            return Group((moving(job, "Failed", session=None, event="fail", message="no luck", keys=()),))
        if self.rng.random() < 0.2:
            return Group((moving(job, job.state, session=None, event="", parked="wait", delay=0.01),))
        then = JOB[job.state]
        fields: dict[str, Any] = {
            "last_done": job.state,
            "priority": self.rng.choice([job.priority, self.rng.randrange(100)]),
        }
        if then in TERMINAL or self.rng.random() < 0.5:
            fields["session"] = None
        if then == "Processing":
            fields["keys"] = (f"storage/ark:/9/{self.rng.randrange(3)}",)
        elif then not in ("Storing", "Recording"):
            fields["keys"] = ()
        docs = (
            {"inventory": b'{"manifest_url":"u"}'}
            if then == "Recording"
            else {"space_needed": b"%d" % self.rng.randrange(10**9)}
        )
        return Group((moving(job, then, docs=docs, **fields),))

    def _batch(self, batch: Record) -> Group:
        if batch.state == "Pending":
            drafts = []
            for _ in range(self.rng.choice([0, 1, 2, 3, 4])):
                job = Record(
                    "job",
                    "jid*",
                    "Pending",
                    parent=batch.ref,
                    priority=self.rng.randrange(100),
                    gates=("collections/c",),
                )
                drafts.append(Change(None, job, "spawn", "worker", docs={"configuration": b"{}"}))
            return Group((*drafts, moving(batch, "Processing", session=None)))
        if batch.state == "Processing":
            if self.store.open_parents([batch.ref]):
                return Group((moving(batch, "Processing", session=None, event="", parked="children"),))
            return Group((moving(batch, "Reporting", session=None, closes=True),))
        then = "Failed" if self.rng.random() < 0.3 else "Completed"
        return Group((moving(batch, then, session=None, docs={"status-report": b"{}"}),))

    def act(self) -> None:
        """A person: hold, release, resume, delete, report again."""
        kind = self.rng.choice(["job", "batch"])
        again = "UpdateReporting" if kind == "batch" else "Downloading"
        ways = {
            "Held": ["Pending", "Pending", "Deleted"],
            "Pending": ["Held", "Pending", "Pending"],
            "Failed": ["Deleted", again, again],
        }
        found = [record for state in ways for record in self.store.find(kind, state=state, limit=5).records]
        free = [record for record in found if record.session is None]
        if free:
            record = self.rng.choice(free)
            then = self.rng.choice(ways[record.state])
            self.commit([Group((replace(moving(record, then, event="act"), answers=self.rng.random() < 0.2),))])

    def mark(self) -> None:
        self.store.mark("collections/c", self.rng.random() < 0.3, "ann")

    def wake(self) -> None:
        self.store.wake()
        self.store.sweep()
        self.store.commit([Group((), tuple(self.store.idle_parents().refs))])

    def tidy(self) -> None:
        """Retention: what has settled goes, jobs before their batch."""
        for state in ("Completed", "Deleted"):
            for batch in self.store.find("batch", state=state, limit=2).records:
                jobs = self.store.find("job", parent=batch.ref).records
                if all(not job.open for job in jobs):
                    self.commit([Group(tuple(Change(record, None, "remove") for record in [*jobs, batch]))])

    def restart(self) -> None:
        self.store.close_session(self.session)
        self.session, self.held = self.store.open_session(host="h", ttl=self.ttl, about={}), []


def main() -> None:
    url, seed = sys.argv[1:]
    # it is killed, and what it holds is waited for
    ingest = Ingest(ZookeeperStore(url, listing=0), random.Random(int(seed)), ttl=2)
    print("ready", flush=True)
    while True:
        try:
            ingest.step()
        except (NotFound, StoreError) as error:
            print(error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
