"""Random walks over several connections: each call is made on the store and on the model, and both must give the same
answers. Each record and each worker exists twice, under its own names.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from waybill.record import (
    Change,
    ClaimedRecord,
    CommitGroup,
    CommitResult,
    Record,
    Ref,
    Store,
    StoreError,
    Visibility,
    WorkQueue,
)
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import HOUR, LONG_TTL, StoreTester, commit_groups, make_change
from waybill.stores.model import ModelDatabase, ModelStore

STEPS_PER_WALK = 120
READER = Visibility(("ann",), ("app/box/red",))


class RecordPair(msgspec.Struct):
    """One record as both stores know it, and earlier readings of it."""

    real: Record
    model: Record
    earlier: list[tuple[Record, Record]] = []


class WorkerPair(msgspec.Struct):
    """One worker: a connection and a session on each side."""

    real: Store
    model: Store
    real_session: str
    model_session: str


class ModelComparison:
    """The store and the model side by side."""

    def __init__(self, tester: StoreTester) -> None:
        self.tester, self.harness = tester, tester.harness
        self.clock = 1_000_000.0
        self.model_database = ModelDatabase(lambda: self.clock)
        self.model = ModelStore(self.model_database)
        self.pairs: list[RecordPair] = []
        self.workers = [self.open_worker_pair() for _ in range(3)]
        self.crates = [self.create_crate() for _ in range(2)]

    def open_worker_pair(self) -> WorkerPair:
        real, model = self.harness.open(), ModelStore(self.model_database)
        about: dict[str, Any] = {}
        return WorkerPair(
            real,
            model,
            real.open_session(host="here", ttl=LONG_TTL, about=about),
            model.open_session(host="here", ttl=LONG_TTL, about=about),
        )

    def create_crate(self) -> RecordPair:
        real = self.tester.make_crate()
        record = Record(real.kind, "crate*", real.state)
        answer = self.model.commit([CommitGroup((Change(None, record, cause="create", who="suite"),))])[0]
        assert isinstance(answer, CommitResult)
        assert answer.records[0] is not None
        return RecordPair(real, answer.records[0])

    def update_pair(self, pair: RecordPair, real: Record, model: Record) -> None:
        pair.earlier.append((pair.real, pair.model))
        pair.real, pair.model = real, model

    def find_pair(self, real: Record) -> RecordPair:
        return next(pair for pair in self.pairs if pair.real.id == real.id)

    def name_of(self, ref: Ref | None, model: bool = False) -> str | None:
        """A name that is the same on both sides."""
        for place, pair in enumerate([*self.crates, *self.pairs]):
            if ref == (pair.model if model else pair.real).ref:
                return f"{ref.kind} {place}"
        return None

    def worker_index_of(self, session: str | None) -> int | None:
        return next(
            (i for i, worker in enumerate(self.workers) if session in (worker.real_session, worker.model_session)), None
        )

    def comparable_fields_of(self, record: Record) -> dict[str, Any]:
        fields = ("kind", "state", "owner", "scope", "priority", "message", "locks", "hold_names", "blocked_by", "open")
        shape = {name: getattr(record, name) for name in fields}
        documents = {
            name: body for name, body in record.documents.raw.items() if name not in self.harness.required_documents
        }
        return {
            **shape,
            "documents": documents,
            "worker": self.worker_index_of(record.session),
            "waits": record.wake_at > 0,
        }

    def assert_same(self, real: Record, model: Record) -> None:
        assert self.comparable_fields_of(real) == self.comparable_fields_of(model)

    def compare(self) -> None:
        h, real, model = self.harness, self.tester.store, self.model
        for pair in self.pairs:
            mine, theirs = self.tester.get(pair.real), model.get(pair.model.kind, pair.model.id)
            self.assert_same(mine, theirs)
            assert mine.wake_count == theirs.wake_count
            assert [entry[2:] for entry in real.history(*pair.real.ref)] == [
                entry[2:] for entry in model.history(*pair.model.ref)
            ]
            self.update_pair(pair, mine, theirs)
            del pair.earlier[:-5]
        assert real.count_by_state(h.kind) == model.count_by_state(h.kind)
        assert real.count_by_state(h.kind, visibility=READER) == model.count_by_state(h.kind, visibility=READER)
        for crate in self.crates:
            assert real.count_by_state(h.kind, parent=crate.real.ref) == model.count_by_state(
                h.kind, parent=crate.model.ref
            )
            assert self.list_names(real, crate.real.ref) == self.list_names(model, crate.model.ref, model=True)
        assert sorted(real.list_holds()) == sorted(model.list_holds())
        refs = [crate.real.ref for crate in self.crates]
        assert {self.name_of(ref) for ref in real.parents_with_open_children(refs)} == {
            self.name_of(ref, model=True)
            for ref in model.parents_with_open_children([crate.model.ref for crate in self.crates])
        }

    def list_names(self, store: Store, crate: Ref, model: bool = False) -> list[list[str | None]]:
        """The records that each query finds, in its order, by their common names."""
        queries: list[dict[str, Any]] = [
            {"state": s} for s in (*self.harness.states, self.harness.rest_state, self.harness.end_state)
        ]
        queries += [{"owner": "ann"}, {"parent": crate}, {"newest": True}, {}]
        queries += [{"visibility": READER, **query} for query in queries]
        return [
            [self.name_of(record.ref, model) for record in store.find(self.harness.kind, limit=1000, **query).records]
            for query in queries
        ]


class RandomWalk(ModelComparison):
    """Random calls on both sides."""

    def __init__(self, tester: StoreTester, rng: random.Random) -> None:
        super().__init__(tester)
        self.rng = rng
        self.committed_count = self.last_queue_position = 0

    def step(self) -> None:
        moves: list[tuple[int, Callable[[], None]]] = [
            (5, self.create),
            (6, self.claim),
            (8, self.release),
            (3, self.save),
            (4, self.continue_claim),
            (5, self.act),
            (1, self.remove),
            (3, self.wake_some),
            (2, self.toggle_hold),
            (2, self.release_due_waits),
            (1, self.restart),
            (1, self.compare),
        ]
        self.rng.choices([move for _, move in moves], [weight for weight, _ in moves])[0]()

    # --- calls, on both

    def create(self) -> None:
        h, rng = self.harness, self.rng
        crate = rng.choice([*self.crates, None]) if not h.needs_parent else rng.choice(self.crates)
        self.last_queue_position += 1
        fields: dict[str, Any] = {
            "state": rng.choice(h.states),
            "priority": rng.randrange(10),
            "owner": rng.choice(["ann", "bob"]),
            "scope": rng.choice(["", "app/box/red", "app/box/blue"]),
            "queue_position": self.last_queue_position,
            "locks": self.pick_locks([0, 0, 1]),
            "hold_names": tuple(rng.sample([self.tester.hold_name_of(c) for c in "xy"], rng.choice([0, 0, 1]))),
            "blocked_by": rng.choice([None, None, None, "wait", "children"]),
            "documents": {h.document_names[0]: b"%d" % rng.randrange(100)},
        }
        delay = rng.randrange(1, 50) * HOUR
        real = self.tester.draft_parcel(parent=crate.real if crate else None, **fields)
        assert real.after is not None
        model = Change(
            None,
            msgspec.structs.replace(real.after, parent=crate.model.ref if crate else None),
            cause=real.cause,
            who=real.who,
            documents=real.documents,
        )
        worker = rng.choice(self.workers)
        self.commit_on_both(
            worker, [(msgspec.structs.replace(real, delay=delay), msgspec.structs.replace(model, delay=delay))], None
        )

    def commit_on_both(
        self,
        worker: WorkerPair,
        changes: list[tuple[Change, Change]],
        pair: RecordPair | None,
        wake: list[RecordPair] | None = None,
    ) -> None:
        real = commit_groups(
            worker.real, CommitGroup(tuple(c for c, _ in changes), tuple(p.real.ref for p in wake or ()))
        )[0]
        model = commit_groups(
            worker.model, CommitGroup(tuple(c for _, c in changes), tuple(p.model.ref for p in wake or ()))
        )[0]
        assert type(real) is type(model), f"{real!r} on the store, {model!r} on the model, for {changes}"
        if isinstance(real, StoreError):
            return
        self.committed_count += 1
        assert [self.name_of(ref) for ref in real.idle_parents] == [
            self.name_of(ref, model=True) for ref in model.idle_parents
        ]
        for mine, theirs in zip(real.records, model.records, strict=True):
            if mine is None or theirs is None:
                assert mine is theirs is None
                assert pair is not None
                self.pairs.remove(pair)
            elif pair is None:
                self.pairs.append(RecordPair(mine, theirs))
                self.assert_same(mine, theirs)
            else:
                self.update_pair(pair, mine, theirs)
                self.assert_same(mine, theirs)

    def claim(self) -> None:
        """Claim all that can be claimed in one state: the rest is blocked, on both."""
        h = self.harness
        worker = self.rng.choice(self.workers)
        queue = WorkQueue(h.kind, self.rng.choice(h.states), self.rng.random() < 0.3)
        for each in worker.real.claim([queue], worker.real_session, 1000):
            pair = self.find_pair(each.record)
            if each.hold is not None:  # claim_one() refuses records on hold; the model's try_claim must claim it alike
                model_claim = self.model_database.try_claim(pair.model.ref, worker.model_session, queue.claims_on_hold)
                assert isinstance(model_claim, ClaimedRecord)
                assert model_claim.hold == each.hold
            else:
                model_claim = worker.model.claim_one(pair.model.kind, pair.model.id, worker.model_session)
            self.update_pair(pair, each.record, model_claim.record)
            self.assert_same(each.record, model_claim.record)
        assert worker.model.claim([queue], worker.model_session, 1000) == [], (
            "the store left something that can be claimed"
        )

    def draft_changes(self, pair: RecordPair, fields: dict[str, Any], **own: Any) -> list[tuple[Change, Change]]:
        """The change from the latest reading or, one time in six, from an older one."""
        real, model = (
            self.rng.choice(pair.earlier) if pair.earlier and self.rng.random() < 0.17 else (pair.real, pair.model)
        )
        return [(make_change(real, **own, **fields), make_change(model, **own, **fields))]

    def pick_claimed(self, worker: WorkerPair) -> RecordPair | None:
        mine = [pair for pair in self.pairs if pair.real.session == worker.real_session]
        return self.rng.choice(mine) if mine else None

    def pick_fields(self) -> dict[str, Any]:
        h, rng = self.harness, self.rng
        state = rng.choice([*h.states, h.rest_state, h.end_state])
        return {
            "state": state,
            "open": state != h.end_state,
            "priority": rng.randrange(10),
            "message": rng.choice(["", "text"]),
            "locks": self.pick_locks([0, 1]),
            "hold_names": tuple(rng.sample([self.tester.hold_name_of(c) for c in "xy"], rng.choice([0, 0, 1]))),
        }

    def pick_locks(self, counts: list[int]) -> tuple[str, ...]:
        """Locks of all sorts: few names, so that the sorts meet."""
        names = self.rng.sample([self.tester.lock_name_of(c) for c in "abc"], self.rng.choice(counts))
        if not self.harness.has_shared_locks:
            return tuple(names)
        marks = self.rng.choices(["", "shared ", "at most 1 of ", "at most 2 of "], [3, 3, 1, 2], k=len(names))
        return tuple(f"{mark}{name}" for mark, name in zip(marks, names, strict=True))

    def pick_documents(self) -> dict[str, bytes | None]:
        return {
            name: self.rng.choice([None, b"1", b"[2]"])
            for name in self.rng.sample(list(self.harness.document_names[1:]), self.rng.randrange(2))
        }

    def release(self) -> None:
        worker = self.rng.choice(self.workers)
        if pair := self.pick_claimed(worker):
            blocked_by = self.rng.choice([None, None, "wait", "children"])
            delay = self.rng.randrange(1, 50) * HOUR
            fields = {**self.pick_fields(), "session": None, "blocked_by": blocked_by}
            self.commit_on_both(
                worker,
                self.draft_changes(pair, fields, cause="done", documents=self.pick_documents(), delay=delay),
                pair,
            )

    def save(self) -> None:
        worker = self.rng.choice(self.workers)
        if pair := self.pick_claimed(worker):
            locks = self.pick_locks([0, 1])
            self.commit_on_both(
                worker, self.draft_changes(pair, {"locks": locks}, cause="", documents=self.pick_documents()), pair
            )

    def continue_claim(self) -> None:
        worker = self.rng.choice(self.workers)
        if pair := self.pick_claimed(worker):
            self.commit_on_both(
                worker,
                self.draft_changes(pair, self.pick_fields(), cause="done", documents=self.pick_documents()),
                pair,
            )

    def act(self) -> None:
        free = [pair for pair in self.pairs if pair.real.session is None]
        if free:
            pair = self.rng.choice(free)
            blocked_by = self.rng.choice([None, "wait", "children"])
            delay = self.rng.randrange(1, 50) * HOUR
            self.commit_on_both(
                self.rng.choice(self.workers),
                self.draft_changes(pair, {**self.pick_fields(), "blocked_by": blocked_by}, cause="act", delay=delay),
                pair,
            )

    def remove(self) -> None:
        if self.pairs:
            pair = self.rng.choice(self.pairs)
            self.commit_on_both(
                self.rng.choice(self.workers),
                [(Change(pair.real, None, cause="x"), Change(pair.model, None, cause="x"))],
                pair,
            )

    def wake_some(self) -> None:
        some = self.rng.sample(self.pairs, min(len(self.pairs), 2))
        self.commit_on_both(self.rng.choice(self.workers), [], None, wake=[*some, self.rng.choice(self.crates)])

    def toggle_hold(self) -> None:
        name, on = self.tester.hold_name_of(self.rng.choice("xy")), self.rng.random() < 0.4
        worker = self.rng.choice(self.workers)
        for store in (worker.real, worker.model):
            if on:
                store.set_hold(name, who="ann")
            else:
                store.clear_hold(name)

    def release_due_waits(self) -> None:
        seconds = self.rng.randrange(40) * HOUR  # a store's own clock runs on between the calls, the model's does not
        self.clock += seconds
        self.harness.tick(seconds)
        worker = self.rng.choice(self.workers)
        real, model = worker.real.release_due_waits(), worker.model.release_due_waits()
        assert real.released_count == model.released_count
        assert (real.seconds_to_next is None) == (model.seconds_to_next is None)

    def restart(self) -> None:
        """A worker stops and starts again: its claims are released."""
        place = self.rng.randrange(3)
        worker = self.workers[place]
        worker.real.close_session(worker.real_session)
        worker.model.close_session(worker.model_session)
        self.workers[place] = self.open_worker_pair()
        for pair in self.pairs:
            if pair.real.session == worker.real_session:
                self.update_pair(pair, self.tester.get(pair.real), worker.model.get(pair.model.kind, pair.model.id))


class RandomWalkTests(StoreTestBase):
    @pytest.mark.parametrize("seed", range(6))
    def test_any_history_is_that_of_the_model(self, tester: StoreTester, seed: int) -> None:
        walk = RandomWalk(tester, random.Random(seed))
        for _ in range(STEPS_PER_WALK):
            walk.step()
        walk.compare()
        assert walk.committed_count > STEPS_PER_WALK // 4, "a walk that is mostly refused proves little"
