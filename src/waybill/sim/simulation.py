"""One seed, from its first draw to its verdict.

    draw a profile -> start workers and people -> faults, interleavings, actions -> heal -> run until quiet -> stop ->
    audit

Everything that happens is drawn from one `random.Random`; time, fibers and stores are the simulation's own. `run`
answers a `Verdict`; a `Violation` anywhere ends the seed with a sentence.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from waybill.record import Answer, Change, Committed, Group, Record, Ref, Store, StoreError
from waybill.rules import Machines
from waybill.sim.audit import audit, restless
from waybill.sim.backends import BACKENDS
from waybill.sim.duty import SIMULATED, built_in
from waybill.sim.faults import Faults, Profile
from waybill.sim.fibers import START, Crashed, Hub
from waybill.sim.ledger import Entry, Ledger, Violation
from waybill.sim.people import Promises
from waybill.sim.process import Process
from waybill.sim.stage import Stage
from waybill.sim.steps import Steps
from waybill.sim.trace import Trace
from waybill.sim.world import World

if TYPE_CHECKING:
    from waybill.sim.scenario import Scenario

MEMORY = "/dev/shm"  # where Linux has files in memory
TURNS = 60_000  # of all fibers: a simulation that takes longer does not come to an end
TROUBLED = 120.0  # seconds of faults, at most
QUIET = 900.0  # seconds after healing within which all must be quiet
HOME = 60.0  # seconds within which workers that are told to stop must have stopped
# weather in which a step that is not stopped has no reason for trouble
SOUND = ("calm", "crashes", "late", "sleep", "deploys", "hosts")


@dataclass
class Verdict:
    seed: int
    problem: str | None = None
    turns: int = 0
    seconds: float = 0.0  # of virtual time
    commits: int = 0
    weather: str = ""
    faults: dict[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)

    def digest(self) -> str:
        """Of the trace: the same seed gives the same."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


def random_of(seed: int, scenario: str) -> Random:
    """All that is drawn in a simulation comes from here."""
    return Random(seed * 2**32 + crc32(scenario.encode()))


class Simulation:
    def __init__(self, seed: int, scenario: type[Scenario], store: str, *, trace: bool = False) -> None:
        self.seed = seed
        self.rng = random_of(seed, scenario.name)
        self.profile = Profile.draw(self.rng, scenario.aims)
        self.faults = Faults(self.profile, self.rng)
        self.hub = Hub(self.rng)
        self.trace = Trace(self.hub, trace)
        self.note = self.trace.note
        self.backend = BACKENDS[store](lambda: self.hub.now)
        self.observer: Store = self.backend.connect()  # nothing happens on it but the calls themselves
        self.world = World(self, self.rng)
        self.world.trouble = self.profile.trouble
        self.scenario = scenario(self.world)
        tables = self.scenario.machines()
        self.duties = (
            {d.name: d for d in (*built_in(scenario.real_files), *self.scenario.duties())}
            if self.profile.duties
            else {}
        )
        self.machines = Machines.of((*tables, SIMULATED) if self.duties else tables)
        self.ledger = Ledger(self.machines, lambda: self.hub.now)
        self.ledger.watch = self._changed
        self.marks = (*self.scenario.marks(), *(m.queue for m in tables))
        self.promises = Promises(self, list(self.scenario.submissions()), self.scenario.errands())
        self.steps = Steps(self)
        self.stage = Stage(self, self.profile.hosts if self.backend.many_hosts else 1)
        self.healed_at: float | None = None
        self._files: tempfile.TemporaryDirectory[str] | None = None

    @property
    def healed(self) -> bool:
        return self.healed_at is not None

    # --- the life of a simulation

    def run(self) -> Verdict:
        problem: str | None = None
        try:
            with self.world():
                self._live()
        except Violation as violation:
            problem = str(violation)
        except Exception as error:  # noqa: BLE001 - whatever a worker or a person dies of is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            self.note(traceback.format_exc())
        finally:
            self._clean_up()
        return Verdict(
            self.seed,
            problem,
            self.hub.turns,
            self.hub.now - START,
            self.ledger.commits,
            self.profile.weather,
            self.faults.counts,
            self.trace.lines,
        )

    def _live(self) -> None:
        self.note(f"profile: {self.profile}")
        self.stage.set_up()
        self._run(
            lambda: (
                self.hub.now > START + TROUBLED or (not self.stage.people and (not self.faults.rate or self._quiet()))
            )
        )
        self._heal()
        deadline = self.hub.now + QUIET
        self._run(lambda: self._quiet() or self.hub.now > deadline)
        if not self._quiet():
            stuck = [self._describe(e.ref) for e in restless(self.ledger)][:3]
            raise Violation(
                f"not quiet {QUIET:.0f} s after all was well again: {'; '.join(stuck) or 'people, or what they asked for'}"
            )
        self._go_home()
        for problem in audit(self, self.observer):
            raise Violation(problem)

    def _run(self, enough: Callable[[], bool]) -> None:
        self.hub.run(enough, TURNS)
        if self.hub.turns >= TURNS:
            raise Violation(f"still busy after {TURNS} turns")

    def _heal(self) -> None:
        """From now on nothing goes wrong."""
        self.note("--- all is well from now on")
        self.healed_at = self.hub.now
        self.faults.heal()
        self.world.trouble = 0.0
        self.stage.heal()

    def _quiet(self) -> bool:
        if self.healed:
            self._clear_marks()  # somebody may still be there who waits for what they hold up
        if self.stage.people:
            return False
        return not any(True for _ in restless(self.ledger)) and not self.observer.asks(1)

    def _clear_marks(self) -> None:
        queues = [machine.queue for machine in self.machines.values()]
        for name in [n for n in self.ledger.marks if n in queues or not self.profile.keep_marks]:
            self.observer.mark(name, False)
            del self.ledger.marks[name]
            self.note(f"mark {name} off")
            self.stage.ring()

    def _go_home(self) -> None:
        """Everybody goes home, must get there, and leaves nothing open."""
        self.note("--- everybody goes home")
        self.stage.stop()
        deadline = self.hub.now + HOME
        self._run(lambda: self.stage.everybody_is_home() or self.hub.now > deadline)
        for process in self.stage.processes:
            if process.serves:
                process.end()
            elif not process.dead:
                raise Violation(f"{process.name} was told to stop and did not within {HOME:.0f} s")
        for name, life in self.ledger.lives.items():
            # One whose opening or closing was cut, or came late, is not known to its worker, and expires.
            owner = self.stage.named(life.owner)
            if life.since > (self.healed_at or 0.0) and owner.exited and not owner.late:
                raise Violation(f"{life.owner} went home and left its session {self.trace.alias(name)} open")

    def _clean_up(self) -> None:
        self.stage.clear()
        self.backend.close()
        if self._files is not None:
            self._files.cleanup()

    def root_of(self, host: str) -> Path:
        """The working root of a host; a real folder where the scenario's steps use one."""
        if not self.scenario.real_files:
            return Path("unused")
        if self._files is None:
            # nothing simulated needs to survive the real machine
            memory = MEMORY if os.access(MEMORY, os.W_OK) else None
            self._files = tempfile.TemporaryDirectory(prefix="waybill-sim-", dir=memory)
        return Path(self._files.name, host)

    # --- what may happen

    def point(self, name: str, weight: float = 1.0) -> None:
        """Where anything may happen: the process may crash or be late, others may run. `weight`: how much is at
        stake here.
        """
        fiber = self.hub.current
        assert fiber is not None
        process = fiber.owner
        if process.dead:
            raise Crashed
        if self.faults.rate and (fault := self.faults.draw(name, weight)) is not None:
            assert isinstance(process, Process)
            self._strike(fault, process, name)
        if self.rng.random() < self.profile.switch:
            self.hub.give_way()

    def _strike(self, fault: str, process: Process, where: str) -> None:
        self.note(f"!! {fault} at {where}")
        rng, ttl = self.rng, self.profile.ttl
        if fault == "crash":
            self.stage.gone(process)
        elif fault == "freeze":
            process.late = True
            process.frozen_until = self.hub.now + rng.uniform(0.3, 4.0) * ttl
            self.hub.give_way()
        elif fault == "jump":
            self.hub.now += rng.uniform(0.1, 5.0) * ttl
        elif fault == "outage":
            self.faults.away_until = self.hub.now + rng.uniform(0.05, 2.5) * ttl
        elif fault == "cut":
            process.cut_until = self.hub.now + rng.uniform(0.3, 4.0) * ttl
        elif fault == "stop" and process.worker is not None:
            process.worker.stop()
        elif fault == "wipe" and process.worker is not None and self.backend.many_hosts:
            self.stage.wipe(process.host)
        elif fault in ("lost", "refused"):
            process.wire_fault = fault
        if process.dead:
            raise Crashed

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability

    def pass_time(self, seconds: float) -> None:
        """This fiber is busy for so long."""
        until = self.hub.now + seconds
        self.hub.sleep(until)
        while self.hub.now < until:
            self.hub.sleep(until)

    # --- what everybody sees

    def committed(self, groups: Sequence[Group], answers: Sequence[Answer]) -> None:
        self.trace.committed(groups, answers)
        self.ledger.committed(groups, answers)
        for group, answer in zip(groups, answers, strict=True):
            if isinstance(answer, Committed) and (
                group.nudges or any(r and r.session is r.parked is None for r in answer.records)
            ):
                self.stage.ring()
                break

    def _changed(self, change: Change, record: Record | None, entry: Entry) -> None:
        if (
            change.event == "retry"
            and not self.profile.trouble
            and self.profile.weather in SOUND
            and self.scenario.sound
        ):
            raise Violation(f"{entry.ref} met trouble in {entry.state} though nothing was wrong: {change.why}")
        self.scenario.changed(change, record, entry)

    def exited(self, process: Process) -> None:
        """A worker went home by itself."""
        process.exited = True
        self.note("exits")
        self.stage.gone(process)

    def is_live(self, record: Record) -> bool:
        """Whether the claim under which a step runs still holds: not so for a late worker."""
        return self.ledger.holds(record.ref, record.session)

    def _describe(self, ref: Ref) -> str:
        try:
            record = self.observer.get(*ref)
        except StoreError as error:
            return f"{ref}: {error}"
        holder = self.trace.alias(record.session)
        return f"{ref} is {record.state}, parked {record.parked}, held by {holder}, keys {record.keys}, host {record.host!r}"
