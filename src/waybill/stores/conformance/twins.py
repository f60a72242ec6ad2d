"""A store and its model side by side: each record and each worker is there twice, under names of its own, and both
must tell the same.
"""

from __future__ import annotations

from typing import Any

import msgspec

from waybill.record import Change, Committed, Group, Record, Ref, Store
from waybill.stores.conformance.yard import LONG, Yard
from waybill.stores.model import ModelStore, World


class Pair(msgspec.Struct):
    """One record as both stores know it, and earlier readings of it."""

    real: Record
    model: Record
    old: list[tuple[Record, Record]] = []


class Hand(msgspec.Struct):
    """One worker: a connection and a session on each side."""

    real: Store
    model: Store
    real_session: str
    model_session: str


class Twins:
    def __init__(self, yard: Yard) -> None:
        self.yard, self.h = yard, yard.harness
        self.clock = 1_000_000.0
        self.world = World(lambda: self.clock)
        self.model = ModelStore(self.world)
        self.pairs: list[Pair] = []
        self.hands = [self.hand() for _ in range(3)]
        self.crates = [self.create_crate() for _ in range(2)]

    def hand(self) -> Hand:
        real, model = self.h.open(), ModelStore(self.world)
        about: dict[str, Any] = {}
        return Hand(
            real,
            model,
            real.open_session(host="here", ttl=LONG, about=about),
            model.open_session(host="here", ttl=LONG, about=about),
        )

    def create_crate(self) -> Pair:
        real = self.yard.crate()
        record = Record(real.kind, "crate*", real.state)
        answer = self.model.commit([Group((Change(None, record, event="create", who="suite"),))])[0]
        assert isinstance(answer, Committed)
        assert answer.records[0] is not None
        return Pair(real, answer.records[0])

    def seen(self, pair: Pair, real: Record, model: Record) -> None:
        pair.old.append((pair.real, pair.model))
        pair.real, pair.model = real, model

    def pair(self, real: Record) -> Pair:
        return next(pair for pair in self.pairs if pair.real.id == real.id)

    def name(self, ref: Ref | None, model: bool = False) -> str | None:
        """A name that is the same on both sides."""
        for place, pair in enumerate([*self.crates, *self.pairs]):
            if ref == (pair.model if model else pair.real).ref:
                return f"{ref.kind} {place}"
        return None

    def worker(self, session: str | None) -> int | None:
        return next(
            (i for i, hand in enumerate(self.hands) if session in (hand.real_session, hand.model_session)), None
        )

    def shape(self, record: Record) -> dict[str, Any]:
        fields = ("kind", "state", "owner", "priority", "message", "keys", "gates", "parked", "open")
        shape = {name: getattr(record, name) for name in fields}
        docs = {name: body for name, body in record.docs.raw.items() if name not in self.h.required}
        return {**shape, "docs": docs, "held by": self.worker(record.session), "waits": record.wake_at > 0}

    def same(self, real: Record, model: Record) -> None:
        assert self.shape(real) == self.shape(model)

    def compare(self) -> None:
        h, real, model = self.h, self.yard.store, self.model
        for pair in self.pairs:
            mine, theirs = self.yard.get(pair.real), model.get(pair.model.kind, pair.model.id)
            self.same(mine, theirs)
            assert mine.nudges == theirs.nudges
            assert [line[2:] for line in real.history(*pair.real.ref)] == [
                line[2:] for line in model.history(*pair.model.ref)
            ]
            self.seen(pair, mine, theirs)
            del pair.old[:-5]
        assert real.tally(h.kind) == model.tally(h.kind)
        for crate in self.crates:
            assert real.tally(h.kind, parent=crate.real.ref) == model.tally(h.kind, parent=crate.model.ref)
            assert self.listed(real, crate.real.ref) == self.listed(model, crate.model.ref, model=True)
        assert sorted(real.marks()) == sorted(model.marks())
        refs = [crate.real.ref for crate in self.crates]
        assert {self.name(ref) for ref in real.open_parents(refs)} == {
            self.name(ref, model=True) for ref in model.open_parents([crate.model.ref for crate in self.crates])
        }

    def listed(self, store: Store, crate: Ref, model: bool = False) -> list[list[str | None]]:
        """What each query finds, in its order."""
        queries: list[dict[str, Any]] = [{"state": s} for s in (*self.h.states, self.h.rest, self.h.end)]
        queries += [{"owner": "ann"}, {"parent": crate}, {"newest": True}, {}]
        return [
            [self.name(record.ref, model) for record in store.find(self.h.kind, limit=1000, **query).records]
            for query in queries
        ]
