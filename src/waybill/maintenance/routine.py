"""A maintenance routine runs by itself in rounds. It is a record of the built-in machine `maintenance`, so any worker
serves it and no two run it at once.

    Watching: a round -> Wait(poll_interval) -> a round -> ...        `waybill act maintenance NAME run` starts a round now

A round looks for what is wrong and repairs it: `check` yields findings, `repair` repairs one, and `waybill doctor` calls
the same two by hand. A round is bounded; the next one continues where it stopped. A routine that runs on each host
(working folders) has one record for each host, bound to it.

Two tasks are no routines, because a routine's own record might need them: ending expired sessions and releasing waits
that are due. Every worker does those itself, with its heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from waybill.config import DAY
from waybill.engine import Engine
from waybill.machine import STAY, UPKEEP_POOL, Backoff, Document, Machine, action, end, work
from waybill.record import (
    CommitOutcomeUnknown,
    DocumentStruct,
    Finding,
    Record,
    RecordExists,
    RecordNotFound,
    Ref,
    Store,
)
from waybill.rules import Machines, triggered_maintenance
from waybill.step import New, Outcome, StepContext, Wait
from waybill.worker.step_context import OwnerThreadStore

if TYPE_CHECKING:
    from waybill.environment import Environment
    from waybill.objects import Objects

MAX_FINDINGS = 1000  # findings repaired in one round


@dataclass
class MaintenanceContext:
    """What a routine works with."""

    store: Store
    machines: Machines
    host: str
    root: Path
    objects: Objects | None = None
    open_store: Callable[[], Store] | None = None  # a connection of its own, for a check that takes long
    retention: Mapping[str, float] = field(
        default_factory=dict
    )  # "kind.State" -> seconds, instead of the declared time
    memory: dict[str, Any] = field(default_factory=dict)  # stored from round to round; small
    stop: Callable[[], bool] = lambda: False
    who: str = "maintenance"
    resources_of: Callable[[str], Any] = lambda application_name: None
    thorough: bool = False  # check everything, also what a round of this hour has checked

    @property
    def engine(self) -> Engine:
        return Engine(self.store, self.machines)

    def has_record(self, ref: Ref) -> bool:
        try:
            self.store.get(*ref)
        except RecordNotFound:
            return False
        return True


class MaintenanceRoutine(Protocol):
    """`check` is read-only and may take long; `repair` is safe to repeat and does nothing when the finding no longer
    holds.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def poll_interval(self) -> float: ...

    @property
    def per_host(self) -> bool: ...

    @property
    def has_routine_findings(self) -> bool:
        """Whether its findings are work that is due, and nothing wrong: `waybill doctor` leaves them to the routine."""

    def check(self, context: MaintenanceContext) -> Iterator[Finding]: ...

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool: ...


def run_round(routine: MaintenanceRoutine, context: MaintenanceContext) -> int:
    """Repair what is found, at most MAX_FINDINGS; return how many."""
    repaired = 0
    for finding in islice(routine.check(context), MAX_FINDINGS):
        if context.stop():
            break
        if finding.repairable:
            repaired += routine.repair(context, finding)
    return repaired


class RoutineMemory(DocumentStruct, frozen=True):
    """What a routine stores from round to round, and what its last round did."""

    memory: dict[str, Any] = msgspec.field(default_factory=dict)
    repaired: int = 0
    at: float = 0.0


def memory_of(record: Record) -> dict[str, Any]:
    """Return what the routine of this record stores from round to round."""
    found = record.find_document(RoutineMemory)
    return dict(found.memory) if found is not None else {}


def _explain_trusted(record: Record, store: Store) -> str | None:
    if "clock_jump" in memory_of(record):
        return None
    return "No jump of the clock was noticed: there is nothing to confirm."


def _trust_clock(record: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
    memory = memory_of(record)
    jump = memory.pop("clock_jump")
    return {"memory": {**record.documents["memory"], "memory": {**memory, "clock_trusted": jump}}}


MAINTENANCE = Machine(
    name=triggered_maintenance.MAINTENANCE_KIND,
    plural="maintenance",
    description="Maintenance that runs by itself, in rounds.",
    is_internal=True,
    made_by="every process that starts",
    states=(
        work(
            "Watching",
            to="Ended",
            description="Does a round, then waits for the next.",
            on_fail=None,
            backoff=Backoff(5, 2, 600),
            pool=UPKEEP_POOL,
        ),
        end("Ended", description="Given up: this release has no such routine.", keep=0),
    ),
    actions=(
        action("run", "Watching", STAY, "Do a round now.", when_claimed="wait"),
        action(
            "trust-clock",
            "Watching",
            STAY,
            "Remove old records again, after a jump of the clock: it is right now.",
            guard=_explain_trusted,
            when_claimed="wait",
            writes=_trust_clock,
        ),
    ),
    documents=(
        Document(
            "memory", RoutineMemory, "step", "What the routine stores from round to round, and what its last round did."
        ),
    ),
)


@dataclass(frozen=True)
class MaintenanceScheduler:
    """The routines of a process, and what their rounds need from it."""

    routines: Mapping[str, MaintenanceRoutine]
    machines: Machines
    host: str
    root: Path
    objects: Objects | None = None
    open_store: Callable[[], Store] | None = None
    retention: Mapping[str, float] = field(default_factory=dict)
    resources_of: Callable[[str], Any] = lambda application_name: None

    @classmethod
    def from_environment(cls, environment: Environment) -> MaintenanceScheduler:
        """The built-in routines and those of the applications."""
        from waybill.maintenance import collect_routines

        return cls(
            collect_routines(environment.list_maintenance()),
            environment.machines,
            environment.host,
            environment.config.work.root,
            environment.objects,
            environment.open_store,
            {state: days * DAY for state, days in environment.config.retention.items()},
            environment.resources_of,
        )

    def make_context(self, store: Store, memory: dict[str, Any], who: str, **options: Any) -> MaintenanceContext:
        return MaintenanceContext(
            store, self.machines, self.host, self.root, self.objects, self.open_store, self.retention, memory,
            who=who, resources_of=self.resources_of, **options,
        )  # fmt: skip

    def run_step(self, record: Record, ctx: StepContext) -> Outcome:
        """Run one round. Safe to repeat: each repair is, and the memory is written with the commit that ends the round."""
        routine = self.routines.get(triggered_maintenance.routine_name_of(record))
        if routine is None:
            return Wait(3600, "this release has no such routine")
        store = cast(Store, OwnerThreadStore(ctx))
        context = self.make_context(store, memory_of(record), f"maintenance {routine.name}", stop=lambda: ctx.stop)
        repaired = run_round(routine, context)
        memory = RoutineMemory(context.memory, repaired, ctx.now())
        return Wait(routine.poll_interval, documents=(memory,))

    def ensure_records(self, engine: Engine) -> None:
        """Create the records that do not exist yet. Safe to repeat and to race: an id exists once."""
        for routine in self.routines.values():
            name = f"{routine.name}@{self.host}" if routine.per_host else routine.name
            new = New(triggered_maintenance.MAINTENANCE_KIND, id=name, host=self.host if routine.per_host else "")
            try:
                engine.submit(new, who="setup", why=routine.description)
            except RecordExists:
                continue
            except CommitOutcomeUnknown:
                with suppress(RecordExists):  # the first commit was written after all
                    engine.submit(new, who="setup", why=routine.description)

    def register_step(self) -> None:
        """Give the machine its step, which runs these routines, in this environment only: a process may have several."""
        self.machines[MAINTENANCE.name] = replace(MAINTENANCE, steps={MAINTENANCE.initial_state: self.run_step})


def ref_of(finding: Finding) -> Ref:
    if finding.ref is None:
        raise ValueError(f"the finding {finding.rule} names no record")
    return finding.ref
