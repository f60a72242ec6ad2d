"""A machine is the table that declares a kind of record: pure data in the words of its domain, checked when it is built.

A state is of one of four sorts: **work** (a step runs), **join** (a work state with a built-in step: until the children have settled),
**rest** (until a person or an event acts), **end**. A fifth, **retired**, is a state on its way out of the table: not entered, still left.

    JOB = Machine(
        name="job", plural="jobs", prefix="jid", doc="One parcel on its way.",
        states=(
            work("Packing", "Sending", "Put it into a box."),
            work("Sending", "Arrived", "Hand it to the carrier.", tries=5),
            rest("Failed", "A step gave up; resume goes on after the last one that was done.", settled=True),
            end("Arrived", "Signed for."),
        ),
        actions=(action("resume", "Failed", RESUME, "Try again from where it stopped."),),
    )

Every arrow of the machine follows from the table (`arrows`), and everything else from the arrows: the engine's checks, the worker's roles,
the API's routes, the page's buttons, the figures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from waybill.record import Record, Store
from waybill.step import Step

RESUME = "<resume>"  # the state after the last one that was done
STAY = "<stay>"  # an action that changes documents but not the state

Sort = Literal["work", "join", "rest", "end", "retired"]
Guard = Callable[[Record, Store], str | None]  # says why not, or None
Rewrite = Callable[[Record, Mapping[str, Any]], Mapping[str, Any]]  # from an action's arguments to the documents it writes


class MachineError(Exception):
    """A table contradicts itself."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before the next try: first, first * factor, ... up to most."""

    first: float = 1.0
    factor: float = 2.0
    most: float = 300.0

    def delay(self, tries: int) -> float:
        try:
            return float(min(self.most, self.first * self.factor ** min(tries, 64)))
        except OverflowError:
            return float(self.most)


@dataclass(frozen=True, slots=True)
class State:
    name: str
    sort: Sort
    doc: str  # one sentence, shown wherever the state is
    then: str | None = None  # where Done leads
    also: tuple[str, ...] = ()  # where Done(to=...) may lead instead
    fails: str | None = None  # where giving up leads; None: it never gives up
    holds: str | None = None  # where a mark in force sends a record that would enter this work
    gated: bool = False  # a mark in force parks the record here instead
    tries: int = 3  # how often the step may meet trouble before the record fails
    backoff: Backoff = Backoff()
    every: float = 0.0  # seconds between two looks while the step answers Wait without saying how long
    settled: bool = False  # the parent does not wait for a record in this state
    needs: tuple[str, ...] = ()  # the families of keys that a record holds while here
    leaves_files: bool = False  # its step leaves files in the working folder of its host
    remakes: str | None = None  # where the record goes when the host that had its working files is gone
    clears_files: bool = False  # the working folder is removed on entering
    opens: str | None = None  # of a join: the document that says whether all children are made; until it does, the step makes them
    keep: float | None = None  # seconds after which a record that rests or ended here is removed; None: never

    @property
    def works(self) -> bool:
        return self.sort in ("work", "join", "retired")

    @property
    def open(self) -> bool:
        """Whether the parent waits for a record in this state."""
        return not (self.settled or self.sort == "end")


def work(
    name: str,
    then: str,
    doc: str,
    *,
    also: Iterable[str] = (),
    fails: str | None = "Failed",
    holds: str | None = None,
    gated: bool = False,
    tries: int = 3,
    backoff: Backoff = Backoff(),  # noqa: B008 - frozen
    every: float = 0.0,
    needs: Iterable[str] = (),
    leaves_files: bool = False,
    remakes: str | None = None,
) -> State:
    """A state in which a step runs. An exception is trouble and tried again; `Fail` and the last try lead to `fails`."""
    return State(
        name, "work", doc, then, tuple(also), fails, holds, gated, tries, backoff, every,
        needs=tuple(needs), leaves_files=leaves_files, remakes=remakes,
    )  # fmt: skip


def join(
    name: str, then: str, doc: str, *, also: Iterable[str] = (), fails: str | None = None, needs: Iterable[str] = (),
    opens: str | None = None,
) -> State:  # fmt: skip
    """A state that lasts until no child is open. A step registered for it runs then, and may choose among `also`.

    With `opens` the step makes the children too: it runs until that document, as `ctx.spawn_each` writes it, says that they are whole.
    """
    return State(name, "join", doc, then, tuple(also), fails, needs=tuple(needs), opens=opens)


def rest(
    name: str, doc: str, *, settled: bool = False, needs: Iterable[str] = (), clears_files: bool = False, keep: float | None = None
) -> State:
    """A state that lasts until somebody acts."""
    return State(name, "rest", doc, settled=settled, needs=tuple(needs), clears_files=clears_files, keep=keep)


def end(name: str, doc: str, *, clears_files: bool = True, keep: float | None = None) -> State:
    """A state that nothing leaves."""
    return State(name, "end", doc, settled=True, clears_files=clears_files, keep=keep)


def retired(name: str, then: str, doc: str = "No longer entered; records found here go on.") -> State:
    """A state of the last release: kept for one more, so that records in it are led on."""
    return State(name, "retired", doc, then)


@dataclass(frozen=True, slots=True)
class Action:
    """A transition that a person, or another machine, asks for."""

    name: str
    sources: tuple[str, ...]
    target: str
    doc: str
    guard: Guard | None = None
    confirm: str | None = None  # what the asker must be told and agree to first
    claimed: Literal["refuse", "wait"] = "refuse"  # while a worker holds the record: refuse, or ask the worker to stop and apply it then
    role: Literal["submitter", "operator", "admin"] = "operator"
    writes: Rewrite | None = None
    unless: Callable[[Record, Store], bool] | None = None  # when it needs no confirmation after all

    def question(self, record: Record, store: Store) -> str | None:
        """What the asker must agree to first, for this record now; None: nothing."""
        return None if self.confirm is None or (self.unless is not None and self.unless(record, store)) else self.confirm


def action(
    name: str,
    sources: str,
    target: str,
    doc: str,
    *,
    guard: Guard | None = None,
    confirm: str | None = None,
    claimed: Literal["refuse", "wait"] = "refuse",
    role: Literal["submitter", "operator", "admin"] = "operator",
    writes: Rewrite | None = None,
    unless: Callable[[Record, Store], bool] | None = None,
) -> Action:
    """`sources` is a list of states, parted by spaces."""
    return Action(name, tuple(sources.split()), target, doc, guard, confirm, claimed, role, writes, unless)


@dataclass(frozen=True, slots=True)
class Document:
    """A named piece of JSON on a record. Whoever creates the record may write it; after that only its writer."""

    name: str
    writer: Literal["step", "service", "foreign"]
    doc: str
    v: int | None = 1  # the number in its "v"; readers take this one and the one before. None: a foreign format without one


@dataclass(frozen=True, slots=True)
class Keys:
    """A family of exclusive names, and which of them a record needs: known from its documents, or asked for by its step."""

    family: str
    doc: str
    of: Callable[[Record], Iterable[str]] | None = None


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the working folders of a machine's records lie below the working root, if not under <kind>/<id>."""

    top: str  # the first folder; no other machine's
    of: Callable[[Record], tuple[str, ...]]  # the folders below it, one record's own being the last


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

        A record that was led back (by an action, or because its files are gone) has done more than counts now; one that took another way,
        or began here, has not done what leads here.
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
                names = _list(s.name for s in self.working())
                raise MachineError(f"{self.name}: {state} is no state in which a step runs; those are {names}.")
            if state in self.steps:
                raise MachineError(f"{self.name}: {state} has two steps, {self.steps[state].__name__} and {function.__name__}.")
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
        # A failure leaves last_done at the state before the one that failed, so resume leads to any state that fails to `source`.
        return tuple(s.name for s in self.states if s.fails == source and s.sort != "retired") or (self.initial,)

    def leaves(self, source: str) -> tuple[Action, ...]:
        """The actions of a record in that state."""
        return tuple(a for a in self.actions if source in a.sources)

    def digest(self) -> str:
        """A short digest of the arrows: workers of two releases tell each other apart by it."""
        table = "\n".join(f"{a.source}>{a.target}:{a.label}" for a in self.arrows())
        return hashlib.sha256(table.encode()).hexdigest()[:12]


def check(machine: Machine) -> None:
    """Names once, every target declared, every state reachable, a way to an end from everywhere, keys taken in one order."""
    name, states = machine.name, machine.states

    def wrong(sentence: str) -> MachineError:
        return MachineError(f"{name}: {sentence}")

    if not states:
        raise wrong("a machine needs a state.")
    for word, names in (
        ("state", [s.name for s in states]),
        ("action", [a.name for a in machine.actions]),
        ("document", [d.name for d in machine.documents]),
        ("family of keys", [k.family for k in machine.keys]),
    ):
        if twice := [n for i, n in enumerate(names) if n in names[:i]]:
            raise wrong(f"the {word} {twice[0]} is declared twice.")
    for s in states:
        for target in (s.then, *s.also, s.fails, s.holds, s.remakes):
            if target is not None and machine.state(target) is None:
                raise wrong(f"{s.name} goes to {target}, which is no state.")
        if s.works and s.then is None:
            raise wrong(f"{s.name} does work but leads nowhere.")
        if s.holds and _state(machine, s.holds).sort != "rest":
            raise wrong(f"{s.name} is held in {s.holds}, which must be a rest state.")
        if (s.holds or s.gated) and machine.gates is None:
            raise wrong(f"{s.name} can be held, but the machine does not say by which marks (gates).")
        if s.sort == "work" and s.tries < 1:
            raise wrong(f"{s.name} must be tried at least once.")
        if s.sort == "end" and s.needs:
            raise wrong(f"{s.name} is an end and cannot keep keys.")
        if unknown := [f for f in s.needs if f not in [k.family for k in machine.keys]]:
            raise wrong(f"{s.name} needs keys of the family {unknown[0]}, which is not declared.")
    for begin in machine.begins:
        if machine.state(begin) is None:
            raise wrong(f"records may begin in {begin}, which is no state.")
    for a in machine.actions:
        if unknown := [source for source in a.sources if machine.state(source) is None]:
            raise wrong(f"the action {a.name} leaves {unknown[0]}, which is no state.")
        if a.target not in (RESUME, STAY) and machine.state(a.target) is None:
            raise wrong(f"the action {a.name} goes to {a.target}, which is no state.")
    _check_paths(machine, wrong)
    _check_keys(machine, wrong)


def _check_paths(machine: Machine, wrong: Callable[[str], MachineError]) -> None:
    arrows = list(machine.arrows())
    for arrow in arrows:
        if _state(machine, arrow.target).sort == "retired":
            raise wrong(f"{arrow.source} goes to {arrow.target}, which is retired.")
        if _state(machine, arrow.source).sort == "end" and arrow.source != arrow.target:
            raise wrong(f"{arrow.label} leaves {arrow.source}, which is an end; make it a rest state.")
    starts = {machine.initial, *machine.begins, *(s.name for s in machine.states if s.sort == "retired")}
    reached = _closure(starts, {(a.source, a.target) for a in arrows})
    if lost := [s.name for s in machine.states if s.name not in reached]:
        raise wrong(f"no path leads to {_list(lost)}.")
    ends = {s.name for s in machine.states if s.sort == "end"}
    if not ends:
        raise wrong("there is no end state.")
    homeward = _closure(ends, {(a.target, a.source) for a in arrows})
    if trapped := [s.name for s in machine.states if s.name not in homeward]:
        raise wrong(f"no path leads from {_list(trapped)} to an end.")


def _check_keys(machine: Machine, wrong: Callable[[str], MachineError]) -> None:
    """A record that holds a key may ask only for keys of later families: then no two records can wait for each other."""
    order = {k.family: i for i, k in enumerate(machine.keys)}
    for arrow in machine.arrows():
        held = set(_state(machine, arrow.source).needs) & set(_state(machine, arrow.target).needs)
        asked = set(_state(machine, arrow.target).needs) - held
        if held and asked and min(order[f] for f in asked) < max(order[f] for f in held):
            raise wrong(
                f"{arrow.source} to {arrow.target} keeps keys of {_list(sorted(held))} and asks for {_list(sorted(asked))}, "
                f"which the machine declares earlier; two records could wait for each other."
            )


def _state(machine: Machine, name: str) -> State:
    state = machine.state(name)
    if state is None:
        raise MachineError(f"{machine.name}: {name} is no state.")
    return state


def _closure(starts: set[str], arrows: set[tuple[str, str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(starts)
    while todo:
        if (name := todo.pop()) not in seen:
            seen.add(name)
            todo += [target for source, target in arrows if source == name]
    return seen


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
