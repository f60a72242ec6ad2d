"""The processes of workers and clients on their hosts.

start -> ... -> end (crashed, exited, or its host is lost) -> a replacement, a little later
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from waybill.engine import Engine
from waybill.record import Ref, Store, StoreError
from waybill.rules import ActionRefused
from waybill.sim.fault_injecting_store import DirectStore, FaultInjectingStore
from waybill.sim.process import SimulatedProcess, SimulatedSingleStepWorker, SimulatedWorker
from waybill.sim.simulated_clients import ScriptedClient, SimulatedOperator, SimulatedSubmitter
from waybill.sim.simulated_maintenance import scheduler_of

if TYPE_CHECKING:
    from waybill.sim.simulation import Simulation


class SimulatedCluster:
    def __init__(self, simulation: Simulation, hosts: int) -> None:
        self.simulation, self.scheduler, self.rng = simulation, simulation.scheduler, simulation.rng
        self.processes: list[SimulatedProcess] = []
        self.hosts = [f"host{n}" for n in range(hosts)]
        self.active_clients = 0  # clients that have not finished
        self.process_count = 0

    def start_all(self) -> None:
        """Create the maintenance records, then start workers and clients."""
        simulation = self.simulation
        for host in self.hosts:
            self._ensure_maintenance(host)
        if simulation.subscriptions.subscribers:
            setup = DirectStore(SimulatedProcess(simulation, "setup", ""), simulation.observer, splits_commits=False)
            simulation.subscriptions.ensure_records(Engine(setup, simulation.machines))
        for n in range(simulation.profile.workers):
            self.start_worker(n % len(self.hosts), self._draw_queues())
        starts = [self.start_submitter]
        if self.rng.random() < 0.3:
            starts.append(self.start_submitter)  # two that submit the same
        if simulation.expectations.pending_scripts:
            starts.append(self.start_scripted_client)
        if simulation.profile.has_operator:
            starts.append(self.start_operator)
        self.active_clients = len(starts)
        for start in starts:
            start()

    def _ensure_maintenance(self, host: str) -> None:
        """Create the records of the host's own maintenance routines and of those of all hosts."""
        simulation = self.simulation
        if simulation.maintenance_routines:
            setup = DirectStore(SimulatedProcess(simulation, "setup", ""), simulation.observer, splits_commits=False)
            scheduler_of(simulation, SimulatedProcess(simulation, "setup", host)).ensure_records(
                Engine(setup, simulation.machines)
            )

    def _draw_queues(self) -> list[str] | None:
        if self.rng.random() >= self.simulation.profile.partial_queues_rate:
            return None
        queues = [
            f"{machine.name}.{state.name}"
            for machine in self.simulation.machines.values()
            for state in machine.list_work_states()
        ]
        return [q for q in queues if self.rng.random() < 0.6] or queues

    # --- start

    def start_worker(self, slot: int, queues: list[str] | None) -> None:
        process = self._add_process("worker", self.hosts[slot], lambda: self.start_worker(slot, queues))
        process.maintenance_scheduler = scheduler_of(self.simulation, process)
        process.worker = SimulatedWorker(process, queues=queues, threads=self.simulation.profile.threads)
        process.spawn_fiber("owner", process.worker.run_owner)

    def run_one_step(self, target: Ref | None) -> None:
        """An operator runs one step by hand, on some host."""
        process = self._add_process("single-step", self.rng.choice(self.hosts), lambda: None)
        process.maintenance_scheduler = scheduler_of(self.simulation, process)

        def run_worker() -> None:
            worker = SimulatedSingleStepWorker(process, queues=None, threads=1)
            worker.target = target
            try:
                self.simulation.note(f"ran {worker.run_one()}")
            except (StoreError, ActionRefused) as refusal:
                self.simulation.note(f"refused: {type(refusal).__name__} {refusal}")
            process.end_process()

        process.spawn_fiber("main", run_worker)

    def start_submitter(self) -> None:
        process = self._add_process("submitter", "", self.start_submitter)
        process.spawn_fiber(
            "main",
            SimulatedSubmitter(
                self.simulation, process, Engine(self.connect_process(process), self.simulation.machines)
            ).run_client,
        )

    def start_scripted_client(self) -> None:
        process = self._add_process("scripted-client", "", self.start_scripted_client)
        process.spawn_fiber(
            "main",
            ScriptedClient(
                self.simulation, process, Engine(self.connect_process(process), self.simulation.machines)
            ).run_client,
        )

    def start_operator(self) -> None:
        process = self._add_process("operator", "", self.start_operator)
        process.spawn_fiber(
            "main",
            SimulatedOperator(
                self.simulation, process, Engine(self.connect_process(process), self.simulation.machines)
            ).run_client,
        )

    def start_service(self, name: str) -> SimulatedProcess:
        """A process of an outside service: it serves requests, and does not count when all processes must have
        stopped.
        """
        process = self._add_process(name, "", lambda: None)
        process.is_service = True
        return process

    def _add_process(self, name: str, host: str, start_replacement: Callable[[], None]) -> SimulatedProcess:
        self.process_count += 1
        process = SimulatedProcess(self.simulation, f"{name}{self.process_count}", host)
        process.start_replacement = start_replacement
        self.processes.append(process)
        return process

    def connect_process(self, process: SimulatedProcess) -> Store:
        return FaultInjectingStore(
            process, self.simulation.backend.connect(), splits_commits=self.simulation.backend.splits_commits
        )

    # --- end

    def end_and_replace(self, process: SimulatedProcess) -> None:
        """It crashed or exited; start a replacement a little later."""
        process.end_process()
        self.scheduler.schedule_call(
            self.scheduler.now + self.rng.random() * self.rng.choice((0.1, 20.0)), lambda: self._replace(process)
        )

    def _replace(self, process: SimulatedProcess) -> None:
        if (
            process.worker is None or not self.simulation.has_healed
        ):  # a client is replaced until everything is submitted
            process.start_replacement()

    def note_client_finished(self, process: SimulatedProcess) -> None:
        """A client has done everything."""
        self.active_clients -= 1
        process.is_dead = True

    def wipe_host(self, host: str) -> None:
        """A host is lost for ever, with its processes and its disk; a new one replaces it."""
        self.process_count += 1
        self.hosts[self.hosts.index(host)] = f"host{self.process_count}"
        self._ensure_maintenance(f"host{self.process_count}")
        self.simulation.world.wipe_disk(host)
        if self.simulation.scenario.uses_real_files:
            shutil.rmtree(self.simulation.root_of(host), ignore_errors=True)
        for process in list(self.processes):
            if process.host == host and not process.is_dead:
                self.end_and_replace(process)

    # --- all processes

    def hint_workers(self) -> None:
        """Hint that something may be claimable; hints can be lost."""
        for process in self.processes:
            worker = process.worker
            if (
                worker is not None
                and worker.is_listening
                and not process.is_dead
                and not self.simulation.draw_chance(self.simulation.profile.lost_hint_rate)
            ):
                worker.hint_work()

    def recover_processes(self) -> None:
        """Frozen and cut-off processes go on, and every queue is served on every host."""
        for process in self.processes:
            process.frozen_until = process.cut_until = 0.0
            process.wire_fault = None
        for slot in range(len(self.hosts)):
            self.start_worker(slot, None)

    def stop_workers(self) -> None:
        for process in self.processes:
            if process.worker is not None:
                process.worker.stop()

    def has_stopped(self) -> bool:
        return all(process.is_dead or process.is_service for process in self.processes)

    def end_processes(self) -> None:
        for process in self.processes:
            if not process.is_dead:
                process.end_process()

    def get_process(self, name: str) -> SimulatedProcess:
        return next(p for p in self.processes if p.name == name)

    def get_current_process(self) -> SimulatedProcess:
        """The process whose fiber runs now."""
        fiber = self.scheduler.current
        assert fiber is not None
        assert isinstance(fiber.owner, SimulatedProcess)
        return fiber.owner
