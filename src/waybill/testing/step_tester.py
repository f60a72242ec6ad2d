"""An application in a test: its machines, steps and resources on the model store, with a clock that the test moves.

    with StepTester(BAKERY, tmp_path) as tester:          the application, or only some machines
        loaf = tester.submit("loaf", {"dough": {...}})
        tester.step(loaf)                                 one step of this record; the transition
        tester.run_until(loaf, "Baked")                   steps of all records, until this one is there
        tester.advance(3600)                              the clock

The store is the model store unless another is given; objects, index and working folders are in the folder, and nothing
is forced to disk. Steps run in the thread of the test, as the worker of `waybill step` runs them.

    for point in tester.crash_at_every_call(loaf, "Baked"):
        assert tester.get(loaf).state == "Baked", point

runs the same steps again from the same beginning, once for each call of store, objects, resources and context that they
make. Each time the process crashes there; another process then finishes the work, and the test checks what became of it.
"""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from waybill import config, stores
from waybill.application import Application
from waybill.engine import ActionResult, Engine
from waybill.environment import Environment
from waybill.events import SUBSCRIPTION_KIND
from waybill.machine import Machine
from waybill.maintenance import MaintenanceContext, collect_routines, run_round
from waybill.objects import DirectoryObjects, Objects
from waybill.record import Documents, Record, Ref, Store
from waybill.step import New
from waybill.stores.model import ModelDatabase, ModelStore, StoreSnapshot
from waybill.testing.crashes import CrashPoints, InlineWorker, SimulatedCrash
from waybill.worker import StepTransition

START = 1_800_000_000.0  # of the clock, in seconds since 1970
WAKING_ROUTINES = ("idle-parents", "action-requests")  # they finish what a crash left between two commits
MAX_STEPS = 1000  # of one `run_until_idle` or `run_until`


class StepTester:
    def __init__(
        self,
        application: Application | Iterable[Machine],
        folder: Path,
        *,
        resources: Callable[[], Any] | None = None,
        store: str = "",
        settings: Mapping[str, Any] | None = None,
        app: Mapping[str, Any] | None = None,
        others: Iterable[Application] = (),
        time: float = START,
    ) -> None:
        """`resources` makes what steps receive as `ctx.resources`, instead of what the application makes. `store`: a store
        URL, instead of the model store. `settings`: by their names, as in {"work.host": "h1"}; `app`: those of
        [app.NAME]. `others`: applications that are loaded beside it. `time`: where the clock begins.
        """
        if not isinstance(application, Application):
            application = Application("test", "The machines of a test.", tuple(application))
        if resources is not None:
            application = dataclasses.replace(application, resources=lambda environment: resources())
        self.application = application
        self.others = tuple(others)
        self.folder = folder
        self.time = time
        self._database = ModelDatabase(self.now)
        self._store_url = store
        base = config.load(
            env={},
            overrides={"data": folder / "data", "work.host": "testhost", "store": store or None, **(settings or {})},
        )
        self.config = dataclasses.replace(base, app={**base.app, application.name: app or {}})
        self._open()

    def _open(self) -> None:
        """Begin as a new process does."""
        self.environment = Environment.from_config(self.config, [self.application, *self.others])
        self.config.data.mkdir(parents=True, exist_ok=True)
        self.set_objects(DirectoryObjects(self.config.data / "objects", fsync=False))
        self.store = self._open_store()
        self.engine = Engine(self.store, self.environment.machines)
        self.environment.subscriptions.ensure_records(self.engine)

    def _open_store(self) -> Store:
        if not self._store_url:
            return ModelStore(self._database)
        return stores.open_store(self._store_url, clock=self.now)

    def set_objects(self, objects: Objects) -> None:
        """Let steps and resources use other objects. Call it before the first step, which makes the resources."""
        self.environment.__dict__["objects"] = objects  # where the cached property has them

    def close(self) -> None:
        self.store.close()
        self.environment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def resources(self) -> Any:
        """What the steps receive."""
        return self.environment.resources_of(self.application.name)

    # --- the clock

    def now(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds

    # --- records

    def submit(self, kind: str | New, documents: Documents = (), **fields: Any) -> Record:
        """Create a record. `fields`: those of `New`, such as id and state."""
        new = kind if isinstance(kind, New) else New(kind, documents, **fields)
        return self.engine.submit(new, who="test")

    def get(self, record: Record | Ref) -> Record:
        """Return the record as it is now."""
        return self.store.get(record.kind, record.id)

    def find_all(self, kind: str, **filters: Any) -> list[Record]:
        """Return the records of a kind, oldest first, with their documents."""
        return list(self.store.each(kind, documents=True, **filters))

    def act(self, record: Record | Ref, name: str, **args: Any) -> ActionResult:
        """Take an action, confirmed. Raises ActionRefused."""
        return self.engine.act(Ref(record.kind, record.id), name, who="test", args=args, confirmed=True)

    # --- steps

    def step(self, record: Record | Ref) -> StepTransition:
        """Run one step of this record. Raises Conflict with the reason if it cannot be claimed now."""
        transition = self._run_one(CrashPoints(), Ref(record.kind, record.id))
        assert transition is not None
        return transition

    def run_until_idle(self) -> int:
        """Run steps of all records until nothing is due; return how many. Waits that are not due stay."""
        for count in range(MAX_STEPS):
            if self._run_one(CrashPoints()) is None:
                return count
        raise AssertionError(f"There is still work to do after {MAX_STEPS} steps.")

    def run_until(self, record: Record | Ref, *states: str) -> Record:
        """Run steps of all records until this one is in one of the states; the clock goes on to the next wait that is
        due when nothing else is.
        """
        return self._run_until(CrashPoints(), record, states)

    def _run_until(self, points: CrashPoints, record: Record | Ref, states: tuple[str, ...]) -> Record:
        for _ in range(MAX_STEPS):
            found = self.get(record)
            if found.state in states and found.session is None:
                return found
            if self._run_one(points) is None and not any(map(self.run_maintenance, WAKING_ROUTINES)):
                seconds = self._find_next_wait()
                if seconds is None:
                    break
                self.advance(seconds)
        lines = [f"{x.before} -> {x.after} {x.cause} {x.why}" for x in self.store.history(record.kind, record.id)]
        raise AssertionError("\n".join([f"{found.ref} is {found.state}, not {states}: {found.message}", *lines]))

    def _find_next_wait(self) -> float | None:
        """The seconds to the next wait that is due. Subscriptions look every few seconds, and that nothing has happened is
        no reason to stop the clock, unless one tries an event again; they run with whatever is due next.
        """
        if self.store.release_due_waits().seconds_to_next is None:
            return None
        waits = [
            record.wake_at
            for kind in self.environment.machines
            for record in self.store.each(kind)
            if record.blocked_by == "wait" and (kind != SUBSCRIPTION_KIND or record.error_count)
        ]
        return max(0.0, min(waits) - self.now()) if waits else None

    def _run_one(self, points: CrashPoints, target: Ref | None = None) -> StepTransition | None:
        environment, machines = self.environment, self.environment.machines
        worker = InlineWorker(
            lambda: points.wrap(self._open_store(), "store"),
            machines,
            host=environment.host,
            work_root=self.config.work.root,
            objects=environment.objects,
            queues=[m.name for m in machines.values() if m.list_work_states() and not m.list_states_without_step()],
            threads=1,
            clock=self.now,
            now=self.now,
            resources_of=lambda kind: points.wrap(environment.resources_of_kind(kind), "resources"),
        )
        worker.points, worker.target = points, target
        return worker.run_one()

    def run_maintenance(self, name: str) -> int:
        """Run one round of a maintenance routine; return how many findings it has repaired."""
        routines = collect_routines(self.environment.list_maintenance())
        return run_round(routines[name], self.make_maintenance_context())

    def make_maintenance_context(self) -> MaintenanceContext:
        environment = self.environment
        return MaintenanceContext(
            self.store,
            environment.machines,
            environment.host,
            self.config.work.root,
            environment.objects,
            self._open_store,
            resources_of=environment.resources_of,
        )

    # --- crashes

    def crash_at_every_call(self, record: Record | Ref, *states: str) -> Iterator[str]:
        """Run one step of the record, or all steps until it is in one of the states, again and again from the present
        contents: each time with a crash at the next call, and then to the end in a new process. Yields the call after
        each.

        Objects and files in the folder are put back each time, and the resources are made anew.
        """
        state, began, before = self.get(record).state, self.time, self._save_contents()
        for number in itertools.count():
            self._restore_contents(before)
            self.time = began
            points = CrashPoints(number)
            self.set_objects(points.wrap(self.environment.objects, "objects"))
            try:
                if states:
                    self._run_until(points, record, states)
                else:
                    self._run_one(points, Ref(record.kind, record.id))
            except SimulatedCrash:
                self._restart()
                if states:
                    self._run_until(CrashPoints(), record, states)
                elif (found := self.get(record)).state == state and found.blocked_by is None:
                    self.step(record)
                yield points.crashed_at
            else:
                return

    def _restart(self) -> None:
        """End what the crashed process left, as time would: its session expires. Begin as a new process."""
        for session in self.store.list_sessions():
            self.store.close_session(session.name)
        self.close()
        self._open()

    def _save_contents(self) -> StoreSnapshot:
        self.close()
        shutil.rmtree(self.folder / "snapshot", ignore_errors=True)  # of an earlier loop
        shutil.copytree(self.config.data, self.folder / "snapshot", symlinks=True)
        return self._database.contents.copy()

    def _restore_contents(self, contents: StoreSnapshot) -> None:
        self.close()
        shutil.rmtree(self.config.data)
        shutil.copytree(self.folder / "snapshot", self.config.data, symlinks=True)
        self._database.contents = contents.copy()
        self._open()
