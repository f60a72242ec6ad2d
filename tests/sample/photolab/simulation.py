"""Rolls of film in the simulator: every photo is developed, and entered in the catalogue, whatever crashes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from photolab.application import PHOTOLAB
from photolab.machine import Film
from photolab.resources import LabSettings
from waybill import Machine, New, Store
from waybill.sim.memory_objects import MemoryObjects
from waybill.sim.scenario import Scenario
from waybill.sim.world import SimulatedWorld


class SimulatedLab:
    """The resources: a catalogue in memory, whose every write is a point where the process may crash."""

    settings = LabSettings()

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world

    @contextmanager
    def open_catalogue(self) -> Iterator[SimulatedLab]:
        yield self

    def execute(self, statement: str, *, id: str, caption: str) -> int:
        return self.world.perform_effect(statement, id)


class RollScenario(Scenario):
    name = "rolls"
    description = "Rolls of film."

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world)
        self.objects = MemoryObjects(lambda: world.simulation.scheduler.now, world.reach_point)

    def build_machines(self) -> tuple[Machine, ...]:
        return PHOTOLAB.machines

    def build_submissions(self) -> Iterator[New]:
        for n in range(self.rng.randint(1, 4)):
            captions = tuple(f"photo {m}" for m in range(self.rng.randint(1, 6)))
            yield New("roll", (Film(captions),), idempotency_key=f"roll-{n}")

    def open_objects(self) -> Any:
        return self.objects

    def resources_of(self, kind: str) -> Any:
        return SimulatedLab(self.world)

    def find_problems(self, store: Store) -> Iterator[str]:
        for roll in store.each("roll", documents=True):
            photos = list(store.each("photo", parent=roll.ref))
            if len(photos) != len(roll.document(Film).captions):
                yield f"{roll.ref} has {len(photos)} photos"
            for photo in photos:
                if photo.state == "Developed" and not self.world.count_effects("enter", photo.id):
                    yield f"{photo.ref} is not in the catalogue"
