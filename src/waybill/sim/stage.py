"""Who is on the stage: the processes of workers and people on their hosts, started, gone and replaced.

start -> ... -> gone (crashed, exited, or its host is gone) -> another in its place, a little later
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from waybill.engine import Engine
from waybill.record import Ref, Store, StoreError
from waybill.rules import Refused
from waybill.sim.duty import post_of
from waybill.sim.people import Operator, Submitter, Visitor
from waybill.sim.process import Process, SimulatedOnce, SimulatedWorker
from waybill.sim.wire import Direct, Wire

if TYPE_CHECKING:
    from waybill.sim.simulation import Simulation


class Stage:
    def __init__(self, simulation: Simulation, hosts: int) -> None:
        self.simulation, self.hub, self.rng = simulation, simulation.hub, simulation.rng
        self.processes: list[Process] = []
        self.hosts = [f"host{n}" for n in range(hosts)]
        self.people = 0  # who are not finished
        self.born = 0

    def set_up(self) -> None:
        """What is there before anything can go wrong, and then everybody."""
        simulation = self.simulation
        for host in self.hosts:
            self._take_up(host)
        for n in range(simulation.profile.workers):
            self.start_worker(n % len(self.hosts), self._roles())
        people = [self.start_submitter]
        if self.rng.random() < 0.3:
            people.append(self.start_submitter)  # two who want the same
        if simulation.promises.errands:
            people.append(self.start_visitor)
        if simulation.profile.lively:
            people.append(self.start_operator)
        self.people = len(people)
        for start in people:
            start()

    def _take_up(self, host: str) -> None:
        """The duties of a host, and those of all."""
        simulation = self.simulation
        if simulation.duties:
            setup = Direct(Process(simulation, "setup", ""), simulation.observer, loose=False)
            post_of(simulation, Process(simulation, "setup", host)).ensure(Engine(setup, simulation.machines))

    def _roles(self) -> list[str] | None:
        if self.rng.random() >= self.simulation.profile.narrow:
            return None
        roles = [
            f"{machine.name}.{state.name}"
            for machine in self.simulation.machines.values()
            for state in machine.working()
        ]
        return [r for r in roles if self.rng.random() < 0.6] or roles

    # --- coming

    def start_worker(self, slot: int, roles: list[str] | None) -> None:
        process = self._process("w", self.hosts[slot], lambda: self.start_worker(slot, roles))
        process.post = post_of(self.simulation, process)
        process.worker = SimulatedWorker(process, roles=roles, threads=self.simulation.profile.threads)
        process.spawn("owner", process.worker.live)

    def step_once(self, target: Ref | None) -> None:
        """Somebody takes one step by hand, on some host."""
        process = self._process("once", self.rng.choice(self.hosts), lambda: None)
        process.post = post_of(self.simulation, process)

        def main() -> None:
            once = SimulatedOnce(process, roles=None, threads=1)
            once.target = target
            try:
                self.simulation.note(f"took {once.take_one()}")
            except (StoreError, Refused) as refusal:
                self.simulation.note(f"refused: {type(refusal).__name__} {refusal}")
            process.end()

        process.spawn("main", main)

    def start_submitter(self) -> None:
        process = self._process("submitter", "", self.start_submitter)
        process.spawn(
            "main", Submitter(self.simulation, process, Engine(self.wire(process), self.simulation.machines)).live
        )

    def start_visitor(self) -> None:
        process = self._process("visitor", "", self.start_visitor)
        process.spawn(
            "main", Visitor(self.simulation, process, Engine(self.wire(process), self.simulation.machines)).live
        )

    def start_operator(self) -> None:
        process = self._process("operator", "", self.start_operator)
        process.spawn(
            "main", Operator(self.simulation, process, Engine(self.wire(process), self.simulation.machines)).live
        )

    def start_service(self, name: str) -> Process:
        """Of an outside service: it does what its requests ask for, and has nothing to do when everybody has gone
        home.
        """
        process = self._process(name, "", lambda: None)
        process.serves = True
        return process

    def _process(self, name: str, host: str, again: Callable[[], None]) -> Process:
        self.born += 1
        process = Process(self.simulation, f"{name}{self.born}", host)
        process.again = again
        self.processes.append(process)
        return process

    def wire(self, process: Process) -> Store:
        return Wire(process, self.simulation.backend.connect(), loose=self.simulation.backend.loose)

    # --- going

    def gone(self, process: Process) -> None:
        """It crashed or went home; another comes a little later."""
        process.end()
        self.hub.alarm(self.hub.now + self.rng.random() * self.rng.choice((0.1, 20.0)), lambda: self._replace(process))

    def _replace(self, process: Process) -> None:
        if process.worker is None or not self.simulation.healed:  # whoever submits comes back until all is there
            process.again()

    def finished(self, process: Process) -> None:
        """A person has done what there was to do."""
        self.people -= 1
        process.dead = True

    def wipe(self, host: str) -> None:
        """A host is gone for ever, with its processes and its disk; another stands in its place."""
        self.born += 1
        self.hosts[self.hosts.index(host)] = f"host{self.born}"
        self._take_up(f"host{self.born}")
        self.simulation.world.wipe(host)
        if self.simulation.scenario.real_files:
            shutil.rmtree(self.simulation.root_of(host), ignore_errors=True)
        for process in list(self.processes):
            if process.host == host and not process.dead:
                self.gone(process)

    # --- all of them

    def ring(self) -> None:
        """A hint that something may be claimable; hints are lossy."""
        for process in self.processes:
            worker = process.worker
            if (
                worker is not None
                and worker.listens
                and not process.dead
                and not self.simulation.chance(self.simulation.profile.deaf)
            ):
                worker.ring()

    def heal(self) -> None:
        """What was late goes on, and every queue is served on every host."""
        for process in self.processes:
            process.frozen_until = process.cut_until = 0.0
            process.wire_fault = None
        for slot in range(len(self.hosts)):
            self.start_worker(slot, None)

    def stop(self) -> None:
        for process in self.processes:
            if process.worker is not None:
                process.worker.stop()

    def everybody_is_home(self) -> bool:
        return all(process.dead or process.serves for process in self.processes)

    def clear(self) -> None:
        for process in self.processes:
            if not process.dead:
                process.end()

    def named(self, name: str) -> Process:
        return next(p for p in self.processes if p.name == name)

    def here(self) -> Process:
        """The process whose fiber runs now."""
        fiber = self.hub.current
        assert fiber is not None
        assert isinstance(fiber.owner, Process)
        return fiber.owner
