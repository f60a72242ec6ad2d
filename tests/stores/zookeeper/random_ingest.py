"""A random ingest over the methods of a store alone: batches that spawn jobs, jobs that go through Merritt's states,
operators who interfere.

Each step is one random act of a worker or an operator, legal by Merritt's tables. As a program it runs until it is
killed: `python -m tests.stores.zookeeper.random_ingest URL SEED`.
"""

import random
import sys
from typing import Any

from msgspec.structs import replace

from tests.stores.zookeeper.records import TERMINAL, make_move
from waybill.record import (
    Change,
    CommitAnswer,
    CommitGroup,
    CommitResult,
    Record,
    RecordNotFound,
    SessionLost,
    StoreError,
    WorkQueue,
    encode_document,
)
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
WORK_QUEUES = [WorkQueue("job", state, claims_on_hold=state == "Pending") for state in JOB] + [
    WorkQueue("batch", state) for state in BATCH
]


class RandomIngest:
    def __init__(self, store: ZookeeperStore, rng: random.Random, ttl: float = 50, max_jobs: int = 12) -> None:
        self.store, self.rng, self.ttl, self.max_jobs = store, rng, ttl, max_jobs
        self.session = store.open_session(host="h", ttl=ttl, about={})
        self.claimed: list[Record] = []
        self.written = self.refused = 0

    def step(self) -> None:
        acts: list[tuple[int, Any]] = [
            (3, self.submit),
            (6, self.claim),
            (14, self.work),
            (2, self.act),
            (1, self.change_hold),
            (2, self.maintain),
            (1, self.remove_settled),
            (1, self.restart),
        ]
        self.rng.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()

    def commit(self, groups: list[CommitGroup]) -> list[CommitAnswer]:
        answers = self.store.commit(groups)
        self.written += sum(isinstance(answer, CommitResult) for answer in answers)
        self.refused += sum(not isinstance(answer, CommitResult) for answer in answers)
        for answer in answers:
            if isinstance(answer, CommitResult) and answer.idle_parents:
                self.store.commit([CommitGroup((), answer.idle_parents)])
        return answers

    def submit(self) -> None:
        if sum(self.store.count_by_state("job").values()) >= self.max_jobs:
            return
        submission = {"batchID": f"bid-{self.rng.randrange(10**9)}"} if self.rng.random() < 0.7 else {}
        self.commit(
            [
                CommitGroup(
                    (
                        Change(
                            None,
                            Record("batch", "bid*", "Pending"),
                            "submit",
                            "ann",
                            documents={"submission": encode_document(submission)},
                        ),
                    )
                )
            ]
        )

    def claim(self) -> None:
        try:
            claimed = self.store.claim(self.rng.sample(WORK_QUEUES, 9), self.session, self.rng.randrange(1, 5))
        except SessionLost:
            self.session, self.claimed = self.store.open_session(host="h", ttl=self.ttl, about={}), []
            return
        for each in claimed:
            if each.hold is not None:
                self.commit([CommitGroup((make_move(each.record, "Held", session=None, cause="hold"),))])
            else:
                self.claimed.append(each.record)

    def work(self) -> None:
        """Commit changes of some of the claimed records, all in one call."""
        if not self.claimed:
            self.claim()
        self.rng.shuffle(self.claimed)
        some = [self.claimed.pop() for _ in range(min(len(self.claimed), self.rng.randrange(1, 4)))]
        groups = [self._move_batch(record) if record.kind == "batch" else self._move_job(record) for record in some]
        for answer in self.commit(groups):
            if isinstance(answer, CommitResult):
                self.claimed += [
                    record for record in answer.records if record is not None and record.session is not None
                ]

    def _move_job(self, job: Record) -> CommitGroup:
        if self.rng.random() < 0.15:
            return CommitGroup((make_move(job, "Failed", session=None, cause="fail", message="no luck", locks=()),))
        if self.rng.random() < 0.2:
            return CommitGroup((make_move(job, job.state, session=None, cause="", blocked_by="wait", delay=0.01),))
        next_state = JOB[job.state]
        fields: dict[str, Any] = {
            "last_done": job.state,
            "priority": self.rng.choice([job.priority, self.rng.randrange(100)]),
        }
        if next_state in TERMINAL or self.rng.random() < 0.5:
            fields["session"] = None
        if next_state == "Processing":
            fields["locks"] = (f"storage/ark:/9/{self.rng.randrange(3)}",)
        elif next_state not in ("Storing", "Recording"):
            fields["locks"] = ()
        documents = (
            {"inventory": b'{"manifest_url":"u"}'}
            if next_state == "Recording"
            else {"space_needed": b"%d" % self.rng.randrange(10**9)}
        )
        return CommitGroup((make_move(job, next_state, documents=documents, **fields),))

    def _move_batch(self, batch: Record) -> CommitGroup:
        if batch.state == "Pending":
            drafts = []
            for _ in range(self.rng.choice([0, 1, 2, 3, 4])):
                job = Record(
                    "job",
                    "jid*",
                    "Pending",
                    parent=batch.ref,
                    priority=self.rng.randrange(100),
                    hold_names=("collections/c",),
                )
                drafts.append(Change(None, job, "spawn", "worker", documents={"configuration": b"{}"}))
            return CommitGroup((*drafts, make_move(batch, "Processing", session=None)))
        if batch.state == "Processing":
            if self.store.parents_with_open_children([batch.ref]):
                return CommitGroup((make_move(batch, "Processing", session=None, cause="", blocked_by="children"),))
            return CommitGroup((make_move(batch, "Reporting", session=None, requires_children_settled=True),))
        next_state = "Failed" if self.rng.random() < 0.3 else "Completed"
        return CommitGroup((make_move(batch, next_state, session=None, documents={"status-report": b"{}"}),))

    def act(self) -> None:
        """Act as an operator: hold, release, resume, delete, report again."""
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
            next_state = self.rng.choice(ways[record.state])
            self.commit(
                [
                    CommitGroup(
                        (replace(make_move(record, next_state, cause="act"), answers_request=self.rng.random() < 0.2),)
                    )
                ]
            )

    def change_hold(self) -> None:
        if self.rng.random() < 0.3:
            self.store.set_hold("collections/c", "ann")
        else:
            self.store.clear_hold("collections/c")

    def maintain(self) -> None:
        self.store.release_due_waits()
        self.store.maintain_indexes()
        self.store.commit([CommitGroup((), tuple(self.store.find_idle_parents().refs))])

    def remove_settled(self) -> None:
        """Remove what has settled, as retention does, jobs before their batch."""
        for state in ("Completed", "Deleted"):
            for batch in self.store.find("batch", state=state, limit=2).records:
                jobs = self.store.find("job", parent=batch.ref).records
                if all(not job.open for job in jobs):
                    self.commit([CommitGroup(tuple(Change(record, None, "remove") for record in [*jobs, batch]))])

    def restart(self) -> None:
        self.store.close_session(self.session)
        self.session, self.claimed = self.store.open_session(host="h", ttl=self.ttl, about={}), []


def main() -> None:
    url, seed = sys.argv[1:]
    # it is killed, and the test waits until its claims have ended
    ingest = RandomIngest(ZookeeperStore(url, listing_ttl=0), random.Random(int(seed)), ttl=2)
    print("ready", flush=True)
    while True:
        try:
            ingest.step()
        except (RecordNotFound, StoreError) as error:
            print(error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
