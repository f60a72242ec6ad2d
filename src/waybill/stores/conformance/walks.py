"""Random histories over several connections: each call is made on the store and on the model, and both must tell the
same.

The connections take turns call by call, so that what one read is often stale when it writes. What a store may choose
freely (ids, numbers, which of several equal records a claim hands out) is carried over to the model: the model then
`take`s what the store gave, and refuses if it may not be given.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from waybill.record import Change, Claimed, Group, Role, StoreError
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.twins import Hand, Pair, Twins
from waybill.stores.conformance.yard import HOUR, Yard, change, commit

STEPS = 120


class Walks(Suite):
    @pytest.mark.parametrize("seed", range(6))
    def test_any_history_is_that_of_the_model(self, yard: Yard, seed: int) -> None:
        walk = Walk(yard, random.Random(seed))
        for _ in range(STEPS):
            walk.step()
        walk.compare()
        assert walk.written > STEPS // 4, "a walk that is mostly refused proves little"


class Walk(Twins):
    def __init__(self, yard: Yard, rng: random.Random) -> None:
        super().__init__(yard)
        self.rng = rng
        self.written = self.turn = 0

    def step(self) -> None:
        moves: list[tuple[int, Callable[[], None]]] = [
            (5, self.create),
            (6, self.claim),
            (8, self.release),
            (3, self.save),
            (4, self.go_on),
            (5, self.act),
            (1, self.remove),
            (3, self.nudge),
            (2, self.mark),
            (2, self.wake),
            (1, self.restart),
            (1, self.compare),
        ]
        self.rng.choices([move for _, move in moves], [weight for weight, _ in moves])[0]()

    # --- calls, on both

    def create(self) -> None:
        h, rng = self.h, self.rng
        crate = rng.choice([*self.crates, None]) if not h.needs_parent else rng.choice(self.crates)
        self.turn += 1
        fields: dict[str, Any] = {
            "state": rng.choice(h.states),
            "priority": rng.randrange(10),
            "owner": rng.choice(["ann", "bob"]),
            "turn": self.turn,
            "keys": tuple(rng.sample([self.yard.key(c) for c in "abc"], rng.choice([0, 0, 1]))),
            "gates": tuple(rng.sample([self.yard.gate(c) for c in "xy"], rng.choice([0, 0, 1]))),
            "parked": rng.choice([None, None, None, "wait", "children"]),
            "docs": {h.documents[0]: b"%d" % rng.randrange(100)},
        }
        delay = rng.randrange(1, 50) * HOUR
        real = self.yard.draft(parent=crate.real if crate else None, **fields)
        assert real.after is not None
        model = Change(
            None,
            msgspec.structs.replace(real.after, parent=crate.model.ref if crate else None),
            event=real.event,
            who=real.who,
            docs=real.docs,
        )
        hand = rng.choice(self.hands)
        self.both(
            hand, [(msgspec.structs.replace(real, delay=delay), msgspec.structs.replace(model, delay=delay))], None
        )

    def both(
        self, hand: Hand, changes: list[tuple[Change, Change]], pair: Pair | None, nudges: list[Pair] | None = None
    ) -> None:
        real = commit(hand.real, Group(tuple(c for c, _ in changes), tuple(p.real.ref for p in nudges or ())))[0]
        model = commit(hand.model, Group(tuple(c for _, c in changes), tuple(p.model.ref for p in nudges or ())))[0]
        assert type(real) is type(model), f"{real!r} on the store, {model!r} on the model, for {changes}"
        if isinstance(real, StoreError):
            return
        self.written += 1
        assert [self.name(ref) for ref in real.idle] == [self.name(ref, model=True) for ref in model.idle]
        for mine, theirs in zip(real.records, model.records, strict=True):
            if mine is None or theirs is None:
                assert mine is theirs is None
                assert pair is not None
                self.pairs.remove(pair)
            elif pair is None:
                self.pairs.append(Pair(mine, theirs))
                self.same(mine, theirs)
            else:
                self.seen(pair, mine, theirs)
                self.same(mine, theirs)

    def claim(self) -> None:
        """All that can be claimed in one state: whatever is left over is parked, on both."""
        h = self.h
        hand = self.rng.choice(self.hands)
        role = Role(h.kind, self.rng.choice(h.states), self.rng.random() < 0.3)
        for each in hand.real.claim([role], hand.real_session, 1000):
            pair = self.pair(each.record)
            if each.mark is not None:  # take() refuses at marks; the model's own claim must hand it out alike
                twin = self.world.hand_out(pair.model.ref, hand.model_session, role.holds)
                assert isinstance(twin, Claimed)
                assert twin.mark == each.mark
            else:
                twin = hand.model.take(pair.model.kind, pair.model.id, hand.model_session)
            self.seen(pair, each.record, twin.record)
            self.same(each.record, twin.record)
        assert hand.model.claim([role], hand.model_session, 1000) == [], "the store left something that can be claimed"

    def changed(self, pair: Pair, fields: dict[str, Any], **own: Any) -> list[tuple[Change, Change]]:
        """The change from the latest reading or, one time in six, from an older one."""
        real, model = self.rng.choice(pair.old) if pair.old and self.rng.random() < 0.17 else (pair.real, pair.model)
        return [(change(real, **own, **fields), change(model, **own, **fields))]

    def held(self, hand: Hand) -> Pair | None:
        mine = [pair for pair in self.pairs if pair.real.session == hand.real_session]
        return self.rng.choice(mine) if mine else None

    def after(self) -> dict[str, Any]:
        h, rng = self.h, self.rng
        state = rng.choice([*h.states, h.rest, h.end])
        return {
            "state": state,
            "open": state != h.end,
            "priority": rng.randrange(10),
            "message": rng.choice(["", "said"]),
            "keys": tuple(rng.sample([self.yard.key(c) for c in "abc"], rng.choice([0, 1]))),
            "gates": tuple(rng.sample([self.yard.gate(c) for c in "xy"], rng.choice([0, 0, 1]))),
        }

    def docs(self) -> dict[str, bytes | None]:
        return {
            name: self.rng.choice([None, b"1", b"[2]"])
            for name in self.rng.sample(list(self.h.documents[1:]), self.rng.randrange(2))
        }

    def release(self) -> None:
        hand = self.rng.choice(self.hands)
        if pair := self.held(hand):
            parked = self.rng.choice([None, None, "wait", "children"])
            delay = self.rng.randrange(1, 50) * HOUR
            fields = {**self.after(), "session": None, "parked": parked}
            self.both(hand, self.changed(pair, fields, event="done", docs=self.docs(), delay=delay), pair)

    def save(self) -> None:
        hand = self.rng.choice(self.hands)
        if pair := self.held(hand):
            keys = tuple(self.rng.sample([self.yard.key(c) for c in "abc"], self.rng.choice([0, 1])))
            self.both(hand, self.changed(pair, {"keys": keys}, event="", docs=self.docs()), pair)

    def go_on(self) -> None:
        hand = self.rng.choice(self.hands)
        if pair := self.held(hand):
            self.both(hand, self.changed(pair, self.after(), event="done", docs=self.docs()), pair)

    def act(self) -> None:
        free = [pair for pair in self.pairs if pair.real.session is None]
        if free:
            pair = self.rng.choice(free)
            parked = self.rng.choice([None, "wait", "children"])
            delay = self.rng.randrange(1, 50) * HOUR
            self.both(
                self.rng.choice(self.hands),
                self.changed(pair, {**self.after(), "parked": parked}, event="act", delay=delay),
                pair,
            )

    def remove(self) -> None:
        if self.pairs:
            pair = self.rng.choice(self.pairs)
            self.both(
                self.rng.choice(self.hands),
                [(Change(pair.real, None, event="x"), Change(pair.model, None, event="x"))],
                pair,
            )

    def nudge(self) -> None:
        some = self.rng.sample(self.pairs, min(len(self.pairs), 2))
        self.both(self.rng.choice(self.hands), [], None, nudges=[*some, self.rng.choice(self.crates)])

    def mark(self) -> None:
        name, on = self.yard.gate(self.rng.choice("xy")), self.rng.random() < 0.4
        hand = self.rng.choice(self.hands)
        hand.real.mark(name, on, who="ann")
        hand.model.mark(name, on, who="ann")

    def wake(self) -> None:
        seconds = self.rng.randrange(40) * HOUR  # a store's own clock runs on between the calls, the model's does not
        self.clock += seconds
        self.h.tick(seconds)
        hand = self.rng.choice(self.hands)
        real, model = hand.real.wake(), hand.model.wake()
        assert real.woken == model.woken
        assert (real.next is None) == (model.next is None)

    def restart(self) -> None:
        """A worker stops and starts again: its claims are free."""
        place = self.rng.randrange(3)
        hand = self.hands[place]
        hand.real.close_session(hand.real_session)
        hand.model.close_session(hand.model_session)
        self.hands[place] = self.hand()
        for pair in self.pairs:
            if pair.real.session == hand.real_session:
                self.seen(pair, self.yard.get(pair.real), hand.model.get(pair.model.kind, pair.model.id))
