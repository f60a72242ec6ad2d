"""The machine itself: the table of one kind of record, its arrows, and the steps that are registered for its states.

Its life: declared -> checked when it is built -> steps registered -> read by all others, and never changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from waybill.machine.actions import RESUME, STAY, Action
from waybill.machine.belongings import Document, Folder, Keys
from waybill.machine.soundness import MachineError, check
from waybill.machine.states import State
from waybill.record import Record
from waybill.step import Step


class Arrow(NamedTuple):
    source: str
    target: str
    label: str  # "done", "fail", "hold", "remake" or an action's name
    by: Literal["step", "mark", "duty", "person"]


@dataclass(frozen=True, eq=False)
class Machine:
    name: str
    plural: str
    doc: str
    states: tuple[State, ...]  # the first is where records begin
    actions: tuple[Action, ...] = ()
    prefix: str = ""  # of minted ids; "": the caller names its records
    parent: str | None = None  # the kind of the record that waits for these
    begins: tuple[str, ...] = ()  # other states in which records may be created
    documents: tuple[Document, ...] = ()
    keys: tuple[Keys, ...] = ()  # in the order in which they may be taken
    gates: Callable[[Record], Iterable[str]] | None = None  # the marks that may hold or park a record
    queue: str = ""  # the mark that pauses all work of this machine; "": queue/<name>
    folder: Folder | None = None  # None: <kind>/<id>
    # the route or the part of the system that makes its records, and looks at them; "": whoever may submit
    made_by: str = ""
    v: int = 1  # moves when a state is added or retired
    steps: dict[str, Step] = field(default_factory=dict, repr=False)
    _by_name: dict[str, State] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.queue:
            object.__setattr__(self, "queue", f"queue/{self.name}")
        self._by_name.update((s.name, s) for s in self.states)
        check(self)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def initial(self) -> str:
        return self.states[0].name

    def state(self, name: str) -> State | None:
        """The state of that name, or None: a record may be in one that this release no longer, or not yet, declares."""
        return self._by_name.get(name)

    def action(self, name: str) -> Action | None:
        return next((a for a in self.actions if a.name == name), None)

    def document(self, name: str) -> Document | None:
        return next((d for d in self.documents if d.name == name), None)

    def resume(self, last_done: str | None) -> str:
        """Where a record goes on whose last success was `last_done`."""
        done = self._by_name.get(last_done) if last_done else None
        return done.then if done is not None and done.then is not None else self.initial

    def before(self, state: str, last_done: str | None) -> str | None:
        """What was last done when `state` failed, so that resume comes back to it.

        A record that was led back (by an action, or because its files are gone) has done more than counts now; one that
        took another way, or began here, has not done what leads here.
        """
        if self.resume(last_done) == state:
            return last_done
        if state == self.initial:
            return None
        return next((s.name for s in self.states if s.then == state), last_done)

    def working(self) -> tuple[State, ...]:
        return tuple(s for s in self.states if s.works)

    def step(self, state: str) -> Callable[[Step], Step]:
        """Register the function that does the work of `state`."""

        def register(function: Step) -> Step:
            if (declared := self.state(state)) is None or declared.sort not in ("work", "join"):
                names = ", ".join(s.name for s in self.working())
                raise MachineError(f"{self.name}: {state} is no state in which a step runs; those are {names}.")
            if state in self.steps:
                raise MachineError(
                    f"{self.name}: {state} has two steps, {self.steps[state].__name__} and {function.__name__}."
                )
            self.steps[state] = function
            return function

        return register

    def without_steps(self) -> tuple[str, ...]:
        """Work states that have no step yet: a worker cannot serve them."""
        return tuple(s.name for s in self.states if s.sort == "work" and s.name not in self.steps)

    def binds_files(self) -> bool:
        """Whether some state leaves working files, so that records may be bound to a host."""
        return any(s.leaves_files or s.remakes for s in self.states)

    def arrows(self) -> Iterator[Arrow]:
        """All that can happen to a record, in the order of the table."""
        for s in self.states:
            for target in (s.then, *s.also):
                if target:
                    yield Arrow(s.name, target, "done", "step")
            if s.fails:
                yield Arrow(s.name, s.fails, "fail", "step")
            if s.holds:
                yield Arrow(s.name, s.holds, "hold", "mark")
            if s.remakes:
                yield Arrow(s.name, s.remakes, "remake", "duty")
        for a in self.actions:
            for source in a.sources:
                for target in self.targets(a, source):
                    yield Arrow(source, target, a.name, "person")

    def targets(self, action: Action, source: str) -> tuple[str, ...]:
        if action.target == STAY:
            return (source,)
        if action.target != RESUME:
            return (action.target,)
        # A failure leaves last_done at the state before the one that failed, so resume leads to any state that fails to
        # `source`.
        return tuple(s.name for s in self.states if s.fails == source and s.sort != "retired") or (self.initial,)

    def leaves(self, source: str) -> tuple[Action, ...]:
        """The actions of a record in that state."""
        return tuple(a for a in self.actions if source in a.sources)

    def digest(self) -> str:
        """A short digest of the arrows: workers of two releases tell each other apart by it."""
        table = "\n".join(f"{a.source}>{a.target}:{a.label}" for a in self.arrows())
        return hashlib.sha256(table.encode()).hexdigest()[:12]
