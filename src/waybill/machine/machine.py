"""The machine of one kind of record: its states and actions, its arrows, and the steps of its states.

    declared -> completed with what is usual, and checked -> read by all other parts -> its steps are found when first needed

The step of a state has the name of the state, in lower case with underscores: `update_reporting` is the step of
UpdateReporting. `steps` of the machine says where:

    steps=__name__              functions of this module: def update_reporting(record, ctx)
    steps="bakery.steps.loaf"   modules of this package: bakery/steps/loaf/update_reporting.py, with its function `run_step`

Machines that share their steps name the same module. Steps that are made by a function, from settings for example, are
given as a mapping by state. A work state without a step is an error, which is found when a worker starts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, NamedTuple, cast

from waybill.machine.declarations import (
    RESUME,
    RESUME_ACTION,
    STAY,
    Action,
    LockFamily,
    State,
    WorkingFolder,
    add_failed_state,
)
from waybill.machine.validation import MachineError, check_machine
from waybill.record import Document, Record, StructType
from waybill.step import Step

BEFORE = "before "  # begins a `last_done` that names the state to resume in


class Arrow(NamedTuple):
    source: str
    target: str
    label: str  # "done", "fail", "hold", "rebuild-files" or an action's name
    by: Literal["step", "hold", "maintenance", "person"]


@dataclass(frozen=True, eq=False)
class Machine:
    """The declaration of a kind of record."""

    name: str
    plural: str
    description: str
    states: tuple[State, ...]  # the first is where records begin
    actions: tuple[Action, ...] = ()
    prefix: str = ""  # of minted ids; "": the caller chooses the ids
    # the kind of the record that waits for these; several, separated by spaces, where their parents are of several kinds
    parent: str | None = None
    initial_states: tuple[str, ...] = ()  # other states in which records may be created
    documents: tuple[Document, ...] = ()
    locks: tuple[LockFamily, ...] = ()  # in the order in which a record may acquire them
    hold_names: Callable[[Record], Iterable[str]] | None = None  # the holds that can stop a record
    # how the names of those holds begin ("carrier/"), or are (without a slash at the end); other names are refused. Without any,
    # every name is taken for a hold of these records
    hold_prefixes: tuple[str, ...] = ()
    queue: str = ""  # the hold that pauses all work of this machine; "": queue/<name>
    # within which scope a record is, APPLICATION/TYPE/NAME; without it a record is in the scope of its maker, or in none
    scope_of: Callable[[Record], str] | None = None
    is_internal: bool = False  # whose records the engine makes for itself: their owners do not see them
    folder: WorkingFolder | None = None  # None: <kind>/<id>
    # the route or the part of the system that creates its records; "": anybody who may submit
    made_by: str = ""
    v: int = 1  # increases when a state is added or retired
    # where its steps are: the name of a module or package, or the steps by state; "": other programs do the work
    steps: str | Mapping[str, Step] = field(default="", repr=False)
    _states_by_name: dict[str, State] = field(init=False, repr=False)
    _documents: dict[str | StructType, Document] = field(init=False, repr=False)  # by name and by type

    def __post_init__(self) -> None:
        if not self.queue:
            object.__setattr__(self, "queue", f"queue/{self.name}")
        self._add_what_is_usual()
        documents: dict[str | StructType, Document] = {d.name: d for d in self.documents}
        documents.update((d.type, d) for d in self.documents if d.type is not None)
        object.__setattr__(self, "_states_by_name", {s.name: s for s in self.states})
        object.__setattr__(self, "_documents", documents)
        check_machine(self)

    def _add_what_is_usual(self) -> None:
        """Add Failed and `resume`, if steps fail to it and the table does not declare it."""
        states = add_failed_state(self.states)
        if states != self.states and all(a.name != RESUME_ACTION.name for a in self.actions):
            object.__setattr__(self, "actions", (RESUME_ACTION, *self.actions))
        object.__setattr__(self, "states", states)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def parent_kinds(self) -> tuple[str, ...]:
        return tuple(self.parent.split()) if self.parent is not None else ()

    @property
    def initial_state(self) -> str:
        return self.states[0].name

    def find_state(self, name: str) -> State | None:
        """Return the state of that name, or None: a record may be in one that this release no longer, or not yet,
        declares.
        """
        return self._states_by_name.get(name)

    def find_action(self, name: str) -> Action | None:
        return next((a for a in self.actions if a.name == name), None)

    def find_document(self, name: str) -> Document | None:
        return self._documents.get(name)

    def find_document_of_type(self, type: StructType) -> Document | None:
        return self._documents.get(type)

    def find_resume_state(self, last_done: str | None) -> str:
        """Return the state where a record resumes whose last success was `last_done`.

        "before STATE" stands for a success that no state has: of a record that began in STATE, or came there by
        another way than a `to`.
        """
        if last_done is not None and last_done.startswith(BEFORE) and last_done[len(BEFORE) :] in self._states_by_name:
            return last_done[len(BEFORE) :]
        done = self._states_by_name.get(last_done) if last_done else None
        return done.to if done is not None and done.to is not None else self.initial_state

    def find_last_done(self, state: str, last_done: str | None) -> str | None:
        """Return what counts as last done when `state` failed, so that resume returns to it.

        A record that was sent back (by an action, or because its files are lost) has done more than counts now; one
        that took another way, or began here, has not done what leads here. Where no state leads here by its `to`,
        "before STATE" says where to resume: a GET that failed in its first state never becomes a PUT.
        """
        if self.find_resume_state(last_done) == state:
            return last_done
        if state == self.initial_state:
            return None
        return next((s.name for s in self.states if s.to == state), f"{BEFORE}{state}")

    def list_work_states(self) -> tuple[State, ...]:
        return tuple(s for s in self.states if s.works)

    @cached_property
    def bound_steps(self) -> dict[str, Step]:
        """The steps by state. Raises MachineError for a work state that has none."""
        if isinstance(self.steps, Mapping):
            for name in self.steps:
                if (state := self.find_state(name)) is None or state.type not in ("work", "join"):
                    names = ", ".join(s.name for s in self.list_work_states())
                    raise MachineError(f"{self.name}: no step runs in {name}; steps run in {names}.")
            return dict(self.steps)
        found = {s.name: _find_step(self, s) for s in self.states if s.type in ("work", "join") and self.steps}
        return {name: step for name, step in found.items() if step is not None}

    def list_states_without_step(self) -> tuple[str, ...]:
        """Return the work states that have no step yet: a worker cannot serve them."""
        return tuple(s.name for s in self.states if s.type == "work" and s.name not in self.bound_steps)

    def can_bind_to_host(self) -> bool:
        """Return whether some state leaves working files, so that records may be bound to a host."""
        return any(s.leaves_files or s.on_host_lost for s in self.states)

    def iter_arrows(self) -> Iterator[Arrow]:
        """Yield everything that can happen to a record, in the order of the declaration."""
        for s in self.states:
            for target in (s.to, *s.or_to):
                if target:
                    yield Arrow(s.name, target, "done", "step")
            if s.on_fail:
                yield Arrow(s.name, s.on_fail, "fail", "step")
            if s.on_hold:
                yield Arrow(s.name, s.on_hold, "hold", "hold")
            if s.on_host_lost:
                yield Arrow(s.name, s.on_host_lost, "rebuild-files", "maintenance")
        for a in self.actions:
            for source in a.sources:
                for target in self.find_targets(a, source):
                    yield Arrow(source, target, a.name, "person")

    def find_targets(self, action: Action, source: str) -> tuple[str, ...]:
        if action.target == STAY:
            return (source,)
        if action.target != RESUME:
            return (action.target,)
        # A failure leaves last_done at the state before the one that failed, so resume can lead to any state whose
        # on_fail is `source`; where actions alone lead to `source`, to any of the states that they leave.
        stopped = {name for a in self.actions if a.target == source for name in a.sources}
        return (
            tuple(s.name for s in self.states if s.on_fail == source and s.type != "retired")
            or tuple(s.name for s in self.states if s.name in stopped and s.works and s.type != "retired")
            or (self.initial_state,)
        )

    def list_actions_from(self, source: str) -> tuple[Action, ...]:
        """Return the actions of a record in that state."""
        return tuple(a for a in self.actions if source in a.sources)

    def compute_digest(self) -> str:
        """Return a short digest of the arrows: workers of two releases are told apart by it."""
        arrows = "\n".join(f"{a.source}>{a.target}:{a.label}" for a in self.iter_arrows())
        return hashlib.sha256(arrows.encode()).hexdigest()[:12]


def _find_step(machine: Machine, state: State) -> Step | None:
    """None: a join that only waits."""
    name, place = _to_snake_case(state.name), str(machine.steps)
    module = import_module(place)
    if hasattr(module, "__path__") and find_spec(f"{place}.{name}") is not None:
        return cast(Step, import_module(f"{place}.{name}").run_step)
    step = getattr(module, name, None)
    if not callable(step) and state.type == "work":
        raise MachineError(
            f"{machine.name}: {state.name} has no step. Write it as the function {name}(record, ctx) in {place}, "
            f"or as the function run_step in the module {name} of a package."
        )
    return cast(Step, step) if callable(step) else None


def _to_snake_case(name: str) -> str:
    """UpdateReporting -> update_reporting"""
    return re.sub(r"\W", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)).lower()
