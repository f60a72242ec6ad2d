"""One seed, from its first draw to its verdict.

    draw a profile -> start workers and clients -> faults, interleavings, actions -> end the faults -> run until quiet ->
    stop -> audit

Everything that happens is drawn from one `random.Random`; time, fibers and stores are the simulation's own. `run`
returns a `SimulationVerdict`; an `InvariantViolation` anywhere ends the seed with its sentence.
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

from waybill.events import SUBSCRIPTION_KIND
from waybill.machine import Machine
from waybill.record import Change, CommitAnswer, CommitGroup, CommitResult, Record, Ref, Store, StoreError
from waybill.rules import Machines
from waybill.sim.audit import find_problems, find_restless
from waybill.sim.backends import BACKENDS
from waybill.sim.cluster import SimulatedCluster
from waybill.sim.faults import FaultSchedule, SimulationProfile
from waybill.sim.fibers import START_TIME, FiberScheduler, ProcessCrashed
from waybill.sim.invariant_checker import CheckedRecord, InvariantChecker, InvariantViolation, RunningSteps
from waybill.sim.process import SimulatedProcess
from waybill.sim.simulated_clients import ClientExpectations
from waybill.sim.simulated_maintenance import SIMULATED_MAINTENANCE, build_routines
from waybill.sim.trace import SimulationTrace
from waybill.sim.world import SimulatedWorld
from waybill.subscriptions import EVENT, SubscriptionScheduler, build_routing
from waybill.subscriptions.event_log import find_log_end
from waybill.subscriptions.machines import LISTENING, make_subscription_machine, position_of

if TYPE_CHECKING:
    from waybill.sim.scenario import Scenario

MEMORY_FOLDER = "/dev/shm"  # where Linux has files in memory
MAX_TURNS = 60_000  # of all fibers: a simulation that takes longer does not end
FAULT_SECONDS = 120.0  # at most
QUIET_SECONDS = 900.0  # after the faults end, within which all must be quiet
SUBSCRIPTION_POLL = 2.0  # seconds between two looks of a subscription into the log
STOP_SECONDS = 60.0  # within which workers that are told to stop must have stopped
# fault mixes in which a step that is not stopped has no reason for a transient error
RETRY_FREE_MIXES = ("none", "crashes", "freezes", "clock-jumps", "stops", "host-losses")


@dataclass
class SimulationVerdict:
    seed: int
    problem: str | None = None
    turn_count: int = 0
    virtual_seconds: float = 0.0  # of virtual time
    commit_count: int = 0
    fault_mix: str = ""
    fault_counts: dict[str, int] = field(default_factory=dict)
    trace_lines: list[str] = field(default_factory=list)

    def compute_digest(self) -> str:
        """A digest of the trace: the same seed gives the same."""
        return hashlib.sha256("\n".join(self.trace_lines).encode()).hexdigest()


def random_of(seed: int, scenario: str) -> Random:
    """The one source of everything that is drawn in a simulation."""
    return Random(seed * 2**32 + crc32(scenario.encode()))


class Simulation:
    def __init__(self, seed: int, scenario: type[Scenario], store: str, *, trace: bool = False) -> None:
        self.seed = seed
        self.rng = random_of(seed, scenario.name)
        self.profile = SimulationProfile.draw(self.rng, scenario.target_points)
        self.faults = FaultSchedule(self.profile, self.rng)
        self.scheduler = FiberScheduler(self.rng)
        self.trace = SimulationTrace(self.scheduler, trace)
        self.note = self.trace.add_line
        self.backend = BACKENDS[store](lambda: self.scheduler.now)
        self.observer: Store = self.backend.connect()  # without faults
        self.world = SimulatedWorld(self, self.rng)
        self.world.transient_error_rate = self.profile.transient_error_rate
        self.scenario = scenario(self.world)
        machines = self.scenario.build_machines()
        self.maintenance_routines = (
            {
                routine.name: routine
                for routine in (*build_routines(scenario.uses_real_files), *self.scenario.build_maintenance_routines())
            }
            if self.profile.has_maintenance
            else {}
        )
        subscribers = self.scenario.build_subscribers()
        built_in: tuple[Machine, ...] = (SIMULATED_MAINTENANCE,) if self.maintenance_routines else ()
        if subscribers:
            built_in = (*built_in, EVENT, make_subscription_machine(subscribers))
        self.machines = Machines.from_machines((*machines, *built_in))
        self.subscriptions = SubscriptionScheduler(subscribers, self.machines, poll_interval=SUBSCRIPTION_POLL)
        if subscribers:
            self.machines.event_routing = build_routing(self.scenario.list_event_types(), subscribers)
            self.subscriptions.register_step()
        self.checker = InvariantChecker(self.machines, lambda: self.scheduler.now)
        self.checker.check_change = self._check_change
        self.hold_names = (*self.scenario.list_hold_names(), *(m.queue for m in machines))
        self.expectations = ClientExpectations(
            self, list(self.scenario.build_submissions()), self.scenario.build_client_scripts()
        )
        self.running_steps = RunningSteps(self)
        self.cluster = SimulatedCluster(self, self.profile.hosts if self.backend.many_hosts else 1)
        self.healed_at: float | None = None
        self._work_folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def has_healed(self) -> bool:
        return self.healed_at is not None

    # --- the phases of a simulation

    def run(self) -> SimulationVerdict:
        problem: str | None = None
        try:
            with self.world():
                self._run_phases()
        except InvariantViolation as violation:
            problem = str(violation)
        except Exception as error:  # noqa: BLE001 - whatever ends a worker or a client is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            self.note(traceback.format_exc())
        finally:
            self._clean_up()
        return SimulationVerdict(
            self.seed,
            problem,
            self.scheduler.turns,
            self.scheduler.now - START_TIME,
            self.checker.commit_count,
            self.profile.fault_mix,
            self.faults.counts,
            self.trace.lines,
        )

    def _run_phases(self) -> None:
        self.note(f"profile: {self.profile}")
        self.cluster.start_all()
        self._run_until(
            lambda: (
                self.scheduler.now > START_TIME + FAULT_SECONDS
                or (not self.cluster.active_clients and (not self.faults.rate or self._is_quiet()))
            )
        )
        self._stop_faults()
        deadline = self.scheduler.now + QUIET_SECONDS
        self._run_until(lambda: self._is_quiet() or self.scheduler.now > deadline)
        if not self._is_quiet():
            restless = [self._describe_record(checked.ref) for checked in find_restless(self.checker)][:3]
            raise InvariantViolation(
                f"not quiet {QUIET_SECONDS:.0f} s after the last fault: {'; '.join(restless) or 'clients, or action requests'}"
            )
        self._stop_everything()
        for problem in find_problems(self, self.observer):
            raise InvariantViolation(problem)

    def _run_until(self, is_enough: Callable[[], bool]) -> None:
        self.scheduler.run(is_enough, MAX_TURNS)
        if self.scheduler.turns >= MAX_TURNS:
            raise InvariantViolation(f"still busy after {MAX_TURNS} turns")

    def _stop_faults(self) -> None:
        """Inject nothing more; what was frozen goes on, what crashed is replaced."""
        self.note("--- no more faults")
        self.healed_at = self.scheduler.now
        self.faults.stop_faults()
        self.world.transient_error_rate = 0.0
        self.cluster.recover_processes()

    def _is_quiet(self) -> bool:
        if self.has_healed:
            self._clear_holds()  # a client may still wait for what they block
        if self.cluster.active_clients:
            return False
        return (
            not any(True for _ in find_restless(self.checker))
            and not self.observer.list_action_requests(1)
            and not self._has_unread_events()
        )

    def _has_unread_events(self) -> bool:
        """Whether a subscription that is not parked has not read to the end of the log."""
        if not self.subscriptions.subscribers:
            return False
        end = find_log_end(self.observer)
        return any(
            record.state == LISTENING and position_of(record) < end
            for record in self.observer.each(SUBSCRIPTION_KIND, documents=True)
        )

    def _clear_holds(self) -> None:
        queues = [machine.queue for machine in self.machines.values()]
        for name in [n for n in self.checker.holds if n in queues or not self.profile.keeps_holds]:
            self.observer.clear_hold(name)
            del self.checker.holds[name]
            self.note(f"clear hold {name}")
            self.cluster.hint_workers()

    def _stop_everything(self) -> None:
        """Stop all workers: each must stop in time, and leave no session open."""
        self.note("--- all workers stop")
        self.cluster.stop_workers()
        deadline = self.scheduler.now + STOP_SECONDS
        self._run_until(lambda: self.cluster.has_stopped() or self.scheduler.now > deadline)
        for process in self.cluster.processes:
            if process.is_service:
                process.end_process()
            elif not process.is_dead:
                raise InvariantViolation(f"{process.name} was told to stop and did not within {STOP_SECONDS:.0f} s")
        for name, session in self.checker.sessions.items():
            # A session whose opening or closing was cut off, or was late, is not known to its worker, and expires.
            owner = self.cluster.get_process(session.owner)
            if session.opened_at > (self.healed_at or 0.0) and owner.has_exited and not owner.was_frozen:
                raise InvariantViolation(
                    f"{session.owner} exited and left its session {self.trace.alias_of(name)} open"
                )

    def _clean_up(self) -> None:
        self.cluster.end_processes()
        self.backend.close()
        if self._work_folder is not None:
            self._work_folder.cleanup()

    def root_of(self, host: str) -> Path:
        """The working root of a host; a real folder where the scenario's steps use one."""
        if not self.scenario.uses_real_files:
            return Path("unused")
        if self._work_folder is None:
            # nothing simulated must survive a restart of the real machine
            memory = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
            self._work_folder = tempfile.TemporaryDirectory(prefix="waybill-sim-", dir=memory)
        return Path(self._work_folder.name, host)

    # --- faults and time

    def reach_point(self, name: str, weight: float = 1.0) -> None:
        """A point: a fault may be injected, and others may run. `weight`: how much more likely a fault is here than
        elsewhere.
        """
        fiber = self.scheduler.current
        assert fiber is not None
        process = fiber.owner
        if process.is_dead:
            raise ProcessCrashed
        if self.faults.rate and (fault := self.faults.draw_fault(name, weight)) is not None:
            assert isinstance(process, SimulatedProcess)
            self._inject_fault(fault, process, name)
        if self.rng.random() < self.profile.switch_rate:
            self.scheduler.yield_turn()

    def _inject_fault(self, fault: str, process: SimulatedProcess, where: str) -> None:
        self.note(f"!! {fault} at {where}")
        rng, ttl = self.rng, self.profile.ttl
        if fault == "crash":
            self.cluster.end_and_replace(process)
        elif fault == "freeze":
            process.was_frozen = True
            process.frozen_until = self.scheduler.now + rng.uniform(0.3, 4.0) * ttl
            self.scheduler.yield_turn()
        elif fault == "jump":
            self.scheduler.now += rng.uniform(0.1, 5.0) * ttl
        elif fault == "outage":
            self.faults.unavailable_until = self.scheduler.now + rng.uniform(0.05, 2.5) * ttl
        elif fault == "cut":
            process.cut_until = self.scheduler.now + rng.uniform(0.3, 4.0) * ttl
        elif fault == "stop" and process.worker is not None:
            process.worker.stop()
        elif fault == "wipe" and process.worker is not None and self.backend.many_hosts:
            self.cluster.wipe_host(process.host)
        elif fault in ("lost", "refused"):
            process.wire_fault = fault
        if process.is_dead:
            raise ProcessCrashed

    def draw_chance(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability

    def pass_time(self, seconds: float) -> None:
        """Keep this fiber busy for so long."""
        until = self.scheduler.now + seconds
        self.scheduler.sleep(until)
        while self.scheduler.now < until:
            self.scheduler.sleep(until)

    # --- commits and processes

    def note_commits(self, groups: Sequence[CommitGroup], answers: Sequence[CommitAnswer]) -> None:
        self.trace.note_commits(groups, answers)
        written = [
            isinstance(answer, CommitResult) and not self._is_repeated(group, answer)
            for group, answer in zip(groups, answers, strict=True)
        ]
        self.checker.check_commits(groups, answers)
        for group, is_written in zip(groups, written, strict=True):
            for request in group.requests if is_written else ():
                self.expectations.note_pending_action(request.ref, request.action, request.who)
        for group, answer in zip(groups, answers, strict=True):
            if isinstance(answer, CommitResult) and (
                group.wake or any(r and r.session is r.blocked_by is None for r in answer.records)
            ):
                self.cluster.hint_workers()
                break

    def _is_repeated(self, group: CommitGroup, answer: CommitResult) -> bool:
        """Whether the group creates what exists already under its idempotency key: then nothing of it is written."""
        return any(
            change.before is None and record is not None and record.ref in self.checker.records
            for change, record in zip(group.changes, answer.records, strict=True)
        )

    def _check_change(self, change: Change, record: Record | None, checked: CheckedRecord) -> None:
        if (
            change.cause == "retry"
            and not self.profile.transient_error_rate
            and self.profile.fault_mix in RETRY_FREE_MIXES
            and self.scenario.is_retry_free
        ):
            raise InvariantViolation(
                f"{checked.ref} met a transient error in {checked.state} though nothing was wrong: {change.why}"
            )
        self.scenario.check_change(change, record, checked)

    def note_exit(self, process: SimulatedProcess) -> None:
        """A worker has exited in order."""
        process.has_exited = True
        self.note("exits")
        self.cluster.end_and_replace(process)

    def is_live(self, record: Record) -> bool:
        """Whether the claim under which a step runs is still valid: not so for a late worker."""
        return self.checker.is_claimed_by(record.ref, record.session)

    def _describe_record(self, ref: Ref) -> str:
        try:
            record = self.observer.get(*ref)
        except StoreError as error:
            return f"{ref}: {error}"
        owner = self.trace.alias_of(record.session)
        return f"{ref} is {record.state}, blocked by {record.blocked_by}, claimed by {owner}, locks {record.locks}, host {record.host!r}"
