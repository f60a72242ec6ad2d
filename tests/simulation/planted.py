"""Bugs that are planted to see whether the simulator finds them: each breaks one rule that the design rests on.

A bug is a function that breaks the real code through pytest's `monkeypatch`; what it says is what the rule prevents.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from waybill import rules
from waybill.engine import Engine
from waybill.machine import Machine, State
from waybill.record import Answer, Change, Claimed, ClaimLost, Committed, Group, Record, Ref, Role, StoreError, Taken
from waybill.rules import outcomes
from waybill.sim.run import Case, profile_of
from waybill.sim.wire import Wire, closed_for
from waybill.sim.world import current
from waybill.step import New, Wait
from waybill.stores.model import ModelStore
from waybill.stores.model import World as Shelves
from waybill.worker import messages as m
from waybill.worker.context import StepContext
from waybill.worker.core import Core
from waybill.worker.core.answers import Answers
from waybill.worker.core.bench import Bench
from waybill.worker.core.claims import Claims
from waybill.worker.core.outcomes import Outcomes

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Bug:
    plant: Callable[[Patch], None]
    scenario: str
    weather: str  # the weather in which it shows; "": any
    says: str  # a part of the sentence that it is found with

    @property
    def name(self) -> str:
        return self.plant.__name__

    def seeds(self) -> list[int]:
        """Those within which it must be found."""
        fitting = (
            s for s in itertools.count() if self.weather in ("", profile_of(Case(s, "model", self.scenario)).weather)
        )
        return list(itertools.islice(fitting, SEEDS))


BUGS: list[Bug] = []
SEEDS = 1000


def bug(
    scenario: str = "orders", weather: str = "", says: str = ""
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def keep(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BUGS.append(Bug(plant, scenario, weather, says))
        return plant

    return keep


# --- the store


@bug(weather="late", says="is written")
def a_commit_is_not_fenced(patch: Patch) -> None:
    """A worker that was thought dead comes back and writes (rule 3)."""
    original = Shelves._write

    def write(self: Shelves, change: Change, now: float) -> Record | None:
        if change.before is not None and (current := self.shelf.records.get(change.before.ref)) is not None:
            change = replace(change, before=replace(change.before, version=current.version, session=current.session))
        return original(self, change, now)

    patch.setattr(Shelves, "_write", write)


@bug()
def a_commit_is_fenced_by_the_version_only_and_a_reaper_does_not_move_it(patch: Patch) -> None:
    """The late commit of a session that was reaped is taken for the present one (A1, A3)."""
    original = Shelves._write

    def write(self: Shelves, change: Change, now: float) -> Record | None:
        if change.before is not None and (current := self.shelf.records.get(change.before.ref)) is not None:
            change = replace(change, before=replace(change.before, session=current.session))
        return original(self, change, now)

    def end_session(self: Shelves, name: str) -> None:
        self.shelf.sessions.pop(name, None)
        for record in list(self.shelf.records.values()):
            if record.session == name:
                self.shelf.records[record.ref] = replace(record, session=None)

    patch.setattr(Shelves, "_write", write)
    patch.setattr(Shelves, "end_session", end_session)


@bug(weather="late", says="which has ended")
def a_claim_by_a_session_that_has_ended_is_accepted(patch: Patch) -> None:
    """A3 (a): it would never be freed."""
    original = ModelStore._host
    patch.setattr(
        ModelStore,
        "_host",
        lambda self, session: original(self, session) if session in self._shelf.sessions else "host0",
    )


@bug(says="before its time")
def a_session_is_reaped_by_whoever_looks(patch: Patch) -> None:
    """A3: expiry is decided by the store's clock and the session's ttl alone."""

    def reap(self: ModelStore) -> list[str]:
        now = self.now()
        dead = [n for n, (info, ttl) in self._shelf.sessions.items() if info.expires - ttl / 2 <= now]
        for name in dead:
            self.world.end_session(name)
        return dead

    patch.setattr(ModelStore, "reap", reap)


@bug("crates", weather="calm", says="not quiet")
def a_parent_is_looked_at_inside_the_commit(patch: Patch) -> None:
    """A5: of the last two children that close at once, neither sees the other gone."""

    def whole(self: Wire, groups: Sequence[Group]) -> list[Answer]:
        parents = [closed_for(group) for group in groups]
        seen = {parent: self.ledger.open_children.get(parent, 0) for of_group in parents for parent in of_group}
        if self.simulation.hub.current is not None:
            self.simulation.point("in the transaction")
        answers = self.store.commit(groups)
        self.simulation.committed(groups, answers)
        looked: list[Answer] = []
        for group, of_group, answer in zip(groups, parents, answers, strict=True):
            if isinstance(answer, Committed):
                closed = [
                    c.before.parent
                    for c in group.changes
                    if c.before and c.before.open and not (c.after and c.after.open)
                ]
                idle = tuple(p for p in of_group if seen[p] - closed.count(p) <= 0)
                answer = replace(answer, idle=idle)
            looked.append(answer)
        return looked

    patch.setattr(Wire, "_whole", whole)
    patch.setattr(Wire, "_look_after", lambda self, groups, answers: answers)


@bug("crates", weather="calm", says="not quiet")
def a_nudge_is_lost_while_the_parent_answers_wait(patch: Patch) -> None:
    """A5: the join was being looked at when the last child called."""
    original = Shelves._update

    def update(self: Shelves, change: Change, current: Record, after: Record, now: float) -> Record:
        assert change.before is not None
        return original(
            self, replace(change, before=replace(change.before, nudges=current.nudges)), current, after, now
        )

    patch.setattr(Shelves, "_update", update)


@bug("transfers", says="not quiet")
def whoever_waits_for_a_key_is_not_called(patch: Patch) -> None:
    """A10: the commit that frees a key unparks its first waiter."""
    patch.setattr(Shelves, "pass_turn", lambda self, keys: 0)


@bug("transfers", weather="calm", says="not quiet")
def a_claim_parks_on_a_key_that_was_freed_meanwhile(patch: Patch) -> None:
    """A10: the key must be locked and seen again before parking on it."""

    def park(self: Shelves, ref: Ref, reason: str) -> None:
        for _ in range(10):
            current().point("between looking and parking")
        record = self.shelf.records.get(ref)
        if record is not None and record.session is None and record.parked is None:
            self.shelf.records[ref] = replace(record, parked=reason)

    patch.setattr(Shelves, "park", park)


@bug("transfers", says="is held by")
def two_records_get_the_same_key(patch: Patch) -> None:
    """A9: a key is held by one record."""
    original = Shelves.hand_out

    def hand_out(self: Shelves, ref: Ref, session: str, holds: bool) -> Claimed | str:
        for key in self.shelf.records[ref].keys:
            self.shelf.keys.pop(key, None)
        return original(self, ref, session, holds)

    patch.setattr(Shelves, "hand_out", hand_out)


@bug(says="the request")
def a_request_that_is_repeated_makes_a_second_record(patch: Patch) -> None:
    """A11: the answer was lost, the submitter asks again."""
    patch.setattr(Shelves, "_requested", lambda self, change: None)


@bug(says="is weighed on")
def a_record_is_claimed_on_a_host_that_has_not_its_files(patch: Patch) -> None:
    original = ModelStore.claim

    def claim(self: ModelStore, roles: Sequence[Role], session: str, limit: int) -> list[Claimed]:
        hosts = {ref: record.host for ref, record in self._shelf.records.items()}
        for ref, record in self._shelf.records.items():
            self._shelf.records[ref] = replace(record, host="")
        claimed = original(self, roles, session, limit)
        for ref, host in hosts.items():
            self._shelf.records[ref] = replace(self._shelf.records[ref], host=host)
        return [replace(c, record=self._shelf.records[c.record.ref]) for c in claimed]

    patch.setattr(ModelStore, "claim", claim)


@bug(says="though it is marked to stop")
def going_on_skips_the_marks(patch: Patch) -> None:
    """B14."""
    original = Shelves._update

    def update(self: Shelves, change: Change, current: Record, after: Record, now: float) -> Record:
        marks, self.shelf.marks = self.shelf.marks, {}
        try:
            return original(self, change, current, after, now)
        finally:
            self.shelf.marks = marks

    patch.setattr(Shelves, "_update", update)


# --- the rules


@bug("transfers", says="loses the key")
def keys_are_dropped_while_waiting(patch: Patch) -> None:
    """A9 (a): another is let in between two looks."""
    original = outcomes._wait

    def wait(machine: Machine, state: State, record: Record, outcome: Wait, who: str) -> Change:
        change = original(machine, state, record, outcome, who)
        assert change.after is not None
        return replace(change, after=replace(change.after, keys=()))

    patch.setattr(outcomes, "_wait", wait)


@bug(says="leaves Gathering with an open child")
def a_join_believes_one_look(patch: Patch) -> None:
    """Rule 6: whether the children have settled is decided in the parent's own commit."""
    original = outcomes._done
    patch.setattr(outcomes, "_done", lambda *args: replace(original(*args), closes=False))
    looked = Claims.looked
    patch.setattr(Claims, "looked", lambda self, event, now: looked(self, m.Looked(event.tasks, set()), now))


# --- the worker


@bug(weather="late", says="have the attempt")
def the_core_goes_on_with_a_claim_that_it_has_lost(patch: Patch) -> None:
    """A4: neither the refusal nor the age of its session stops it."""
    refused, watch = Answers._refused, Core._watch_session

    def ignore(self: Answers, entry: m.Entry, task: m.Task, answer: StoreError, now: float) -> None:
        if isinstance(answer, ClaimLost) and not entry.saves:
            self.claims.run(task)
        else:
            refused(self, entry, task, answer, now)

    def never_old(self: Core, now: float) -> None:
        self.lease.renewed = max(self.lease.renewed, now - 1)
        watch(self, now)

    patch.setattr(Answers, "_refused", ignore)
    patch.setattr(Core, "_watch_session", never_old)


@bug(weather="wire", says="not quiet")
def an_unknown_answer_does_not_end_the_session(patch: Patch) -> None:
    """A11: what it holds is not known, and its heartbeat keeps it for ever."""

    def drain(self: Core, why: str) -> None:
        for task in list(self.bench.tasks.values()):
            task.dead = True
            self.bench.signal(task)
            self.bench.forget(task)
        self.bench.starts.clear()
        self.bench.looks.clear()
        self.bench.commands.append(m.Recall())

    patch.setattr(Core, "_drain", drain)


@bug(weather="deploys", says="is closed while its step")
def a_worker_that_must_go_closes_its_session_at_once(patch: Patch) -> None:
    """B14: a second step would begin beside the one that still runs."""
    original = Core._watch_session

    def watch(self: Core, now: float) -> None:
        if self.lease.stopping and self.lease.session is not None:
            self.bench.commands.append(m.Close(self.lease.session))
            self._lose("closed")
        original(self, now)

    patch.setattr(Core, "_watch_session", watch)


@bug(weather="split", says="has not told its own to stop")
def a_worker_does_not_count_the_life_of_its_session(patch: Patch) -> None:
    """A4: cut off from the store, it must tell its steps to stop before others begin."""
    original = Core._watch_session

    def watch(self: Core, now: float) -> None:
        self.lease.renewed = now
        original(self, now)

    patch.setattr(Core, "_watch_session", watch)


@bug(says="have the attempt")
def going_on_keeps_the_attempt(patch: Patch) -> None:
    """B14, A4: two runs would write under the same names."""
    original = Answers._written

    def written(self: Answers, entry: m.Entry, task: m.Task, answer: Committed, now: float) -> None:
        attempt = task.attempt
        original(self, entry, task, answer, now)
        task.attempt = attempt

    patch.setattr(Answers, "_written", written)


@bug(weather="deploys", says="met trouble")
def a_deploy_fails_what_it_stops(patch: Patch) -> None:
    """SIGTERM: nothing is failed by a deploy."""
    original = Outcomes.finish

    def finish(self: Outcomes, task: m.Task, outcome: Any, now: float) -> None:
        if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
            task.stopping, outcome = False, OSError("stopped")
        original(self, task, outcome, now)

    patch.setattr(Outcomes, "finish", finish)


@bug("crates", weather="crashes", says="children")
def children_are_made_in_a_commit_of_their_own(patch: Patch) -> None:
    """Rule 5: what is announced and what is there come in one commit."""

    def settled(self: Bench, task: m.Task, change: Change, spawn: tuple[Change, ...] = ()) -> None:
        self.out.append(m.Entry(Group((change,)), task))
        if spawn:
            self.out.append(m.Entry(Group(spawn)))

    patch.setattr(Bench, "settled", settled)


@bug(weather="calm")
def what_was_asked_of_a_worker_is_forgotten(patch: Patch) -> None:
    """B11."""
    original = Answers._written

    def heard(self: Core, event: m.Heard, now: float) -> None:
        if event.renewed.alive:
            self.lease.renewed = event.sent
        else:
            self._lose("the session has expired")

    patch.setattr(Core, "_heard", heard)
    patch.setattr(
        Answers,
        "_written",
        lambda self, entry, task, answer, now: original(self, entry, task, replace(answer, asked=()), now),
    )


@bug(weather="crashes", says="were made")
def children_are_made_without_a_cursor(patch: Patch) -> None:
    """B16: after a crash the portions that are there are made again."""

    def spawn_each(self: StepContext, children: Iterable[New], cursor: str = "spawned", portion: int = 200) -> int:
        news = list(children)
        for n in range(0, len(news), portion):
            self.spawn(news[n : n + portion])
        return len(news)

    patch.setattr(StepContext, "spawn_each", spawn_each)


@bug(says="is deleted, and has items")
def children_that_are_held_are_not_counted(patch: Patch) -> None:
    """B16: a child that a worker holds is still there."""
    original = StepContext.remove_children
    patch.setattr(StepContext, "remove_children", lambda self, kind: original(self, kind) and 0)
    patch.setattr(StepContext, "tally", lambda self, kind, parent=None: {})


@bug("transfers")
def a_key_that_is_taken_is_trouble(patch: Patch) -> None:
    """A9 (b): the record waits for it, and has not failed."""
    original = Answers._refused

    def refused(self: Answers, entry: m.Entry, task: m.Task, answer: StoreError) -> None:
        if isinstance(answer, Taken):
            self.bench.reply(task, OSError(str(answer)))
        else:
            original(self, entry, task, answer)

    patch.setattr(Answers, "_refused", refused)


# --- the engine


@bug(weather="late", says="is done twice")
def a_request_left_behind_is_applied_by_everybody_who_read_it(patch: Patch) -> None:
    def pending(self: Engine, limit: int = 100) -> int:
        for ask in self.store.asks(limit):
            record = self.store.get(*ask.ref)
            if record.session is None:
                change = rules.answer(self.machines[ask.ref.kind], record, ask, store=self.store)
                answer = self.store.commit([Group((change,))])[0]
                if isinstance(answer, Committed):
                    self._after(answer)
        return 1

    patch.setattr(Engine, "pending", pending)


@bug(weather="calm", says="not quiet")
def an_action_that_closes_a_child_does_not_call_its_parent(patch: Patch) -> None:
    """A5."""
    patch.setattr(Engine, "_after", lambda self, answer: None)
