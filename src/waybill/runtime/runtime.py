"""The front door: one object that puts settings, applications, store, worker and server together.

    with Runtime("waybill-data", applications=[BAKERY]) as waybill:
        loaf = waybill.submit("loaf")
        waybill.run_until_idle()
        print(waybill.get("loaf", loaf.id).state)

The life of a runtime:

    settings are read -> prepared: the store is made or upgraded, maintenance has its records -> used -> closed

Everything that runs Waybill goes through here: the command line, a script, a test. The first call that needs the store
prepares it. A store is one connection for one thread: a runtime keeps one for the thread that uses it, and opens others
with `open_store` and `open_engine`.
"""

from __future__ import annotations

import getpass
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from waybill import config
from waybill.application import Application
from waybill.config import DEMO_FILE, Config, sqlite_path
from waybill.engine import ActionResult, Engine
from waybill.environment import Environment, make_data_folder
from waybill.errors import InputError
from waybill.record import Conflict, Documents, HistoryEntry, Record, Ref, Store, WorkQueue
from waybill.rules import list_pause_holds
from waybill.rules.triggered_maintenance import MAINTENANCE_KIND
from waybill.sandbox import find_support
from waybill.step import New

if TYPE_CHECKING:
    from waybill.maintenance import MaintenanceScheduler
    from waybill.runtime.listening_server import ListeningServer
    from waybill.runtime.signals import StopSignals
    from waybill.runtime.worker_processes import WorkerProcesses
    from waybill.worker import StepTransition, Worker

log = logging.getLogger("waybill")

MAX_IDLE_WAIT = 60.0  # seconds; `run_until_idle` waits for records that are due again within this time


class Runtime:
    """Waybill in one process. Use it from one thread; `stop` may be called from any."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        applications: Iterable[Application] | None = None,
        store: str | None = None,
        settings: Mapping[str, Any] | None = None,
        config_file: Path | None = None,
        create: bool = True,
    ) -> None:
        """Settings are read from the environment and from `waybill.toml` in the data folder, as by the command line;
        `settings` overrides them by name (`{"work.threads": 8}`). `applications` replaces the installed ones.
        `create`: the store is made or upgraded when it is first used; otherwise it must exist.
        """
        overrides = {"data": Path(data) if data is not None else None, "store": store, **(settings or {})}
        self.config: Config = config.load(config_file, os.environ, overrides)
        self._applications = None if applications is None else tuple(applications)
        self._config_file = config_file
        self._create = create
        self._is_prepared = False
        self._store: Store | None = None
        self._stop_lock = threading.Lock()
        self._stop_signals: StopSignals | None = None
        self._is_stop_requested = False

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store connection and what applications have opened. A second call is harmless."""
        store, self._store = self._store, None
        if store is not None:
            store.close()
        if "environment" in self.__dict__:
            self.environment.close()

    # --- environment and store

    @cached_property
    def environment(self) -> Environment:
        """Raises InputError when an application cannot be loaded."""
        return Environment.from_config(self.config, self._applications)

    @property
    def who(self) -> str:
        """The user who runs this process, for history."""
        try:
            return getpass.getuser()
        except (KeyError, OSError):  # a user id without a name, as in some containers
            return f"uid {os.getuid()}"

    @property
    def store(self) -> Store:
        """The connection of the thread that uses this runtime."""
        if self._store is None:
            if self._create:
                self.prepare()
            self._store = self.environment.open_store(migrate=False)
        return self._store

    @property
    def engine(self) -> Engine:
        """The verbs over `store` that change records."""
        return self.environment.make_engine(self.store)

    @contextmanager
    def open_store(self, *, migrate: bool = False) -> Iterator[Store]:
        """A connection of its own, for another thread or for a short use."""
        with closing(self.environment.open_store(migrate=migrate)) as store:
            yield store

    @contextmanager
    def open_engine(self) -> Iterator[Engine]:
        with self.open_store() as store:
            yield self.environment.make_engine(store)

    def prepare(self) -> None:
        """Make the folders, make or upgrade the store, and create the records that every process needs. Safe to repeat:
        what is there is left as it is.
        """
        if self._is_prepared:
            return
        environment = self.environment
        make_data_folder(self.config.data)
        if self.config.demo and self.config.origins["demo"] != "default":
            (self.config.data / DEMO_FILE).touch()
        # An S3 server that is unavailable, or lacks what Waybill needs, is reported now and not in the middle of a step.
        _ = environment.objects.capabilities
        if any(application.has_catalogues for application in environment.applications):
            environment.open_index().close()  # so is an index
        if needing := [application.name for application in environment.applications if application.runs_commands]:
            support = find_support(self.config.sandbox)
            if not support.can_run:  # their other work goes on
                log.warning(
                    "%s Commands of %s are refused; sandbox.mode says how to run them without one.",
                    support.problem,
                    ", ".join(needing),
                )
        self._maintenance.register_step()
        with self.open_store(migrate=True) as store:
            if sqlite_path(self.config.store) is not None:
                # Opening a session fails when workers of another host use this file. A server opens none of its own
                # here, but must not write that file either.
                store.close_session(store.open_session(host=environment.host, ttl=self.config.work.ttl, about={}))
            self._maintenance.ensure_records(environment.make_engine(store))
            environment.subscriptions.ensure_records(environment.make_engine(store))
        self._is_prepared = True

    def load_demo(self) -> None:
        """Create the records of the applications' demonstrations. Safe to repeat."""
        with self.open_engine() as engine:
            for application in self.environment.applications:
                if application.demo is not None:
                    application.demo(self.environment, engine)

    # --- records

    def submit(
        self,
        kind: str,
        documents: Documents = (),
        *,
        id: str | None = None,
        owner: str | None = None,
        priority: int | None = None,
        state: str | None = None,
        idempotency_key: str | None = None,
        who: str | None = None,
        why: str = "",
    ) -> Record:
        """Create a record of this kind and return it. With an idempotency key a second call returns the record that the
        first one created. `engine.submit` takes every field of `New`.
        """
        new = New(kind, documents, id, state, owner, priority, idempotency_key=idempotency_key)
        return self.engine.submit(new, who=self.who if who is None else who, why=why)

    def act(
        self,
        kind: str,
        id: str,
        action: str,
        *,
        args: Mapping[str, Any] | None = None,
        confirmed: bool = False,
        who: str | None = None,
        why: str = "",
    ) -> ActionResult:
        """Take an action of the record's machine. Raises ActionRefused with the reason."""
        who = self.who if who is None else who
        return self.engine.act(Ref(kind, id), action, args=args, confirmed=confirmed, who=who, why=why)

    def get(self, kind: str, id: str) -> Record:
        """Return the record with its documents. Raises RecordNotFound."""
        return self.store.get(kind, id)

    def each(self, kind: str, **filters: Any) -> Iterator[Record]:
        """Yield all records of a kind, or those of one `state`, `parent` or `owner`, in creation order."""
        return self.store.each(kind, **filters)

    def history(self, kind: str, id: str) -> list[HistoryEntry]:
        return self.store.history(kind, id)

    def count_by_state(self, kind: str) -> dict[str, int]:
        return self.store.count_by_state(kind)

    # --- work

    def step_once(self, target: Ref | None = None) -> StepTransition | None:
        """Run one step that is due: that of `target`, or of the most urgent record in the queues of the settings (by
        default all but maintenance, which is due at any time). Return its transition; None: no step is due.

        Raises RecordNotFound, or Conflict with the reason, when `target` cannot be claimed now.
        """
        from waybill.worker import run_one_step

        if target is not None:
            self._check_is_not_paused(self.store.get(*target))
            queues: tuple[str, ...] = (target.kind,)
        else:
            queues = tuple(f"{queue.kind}.{queue.state}" for queue in self._list_unpaused_queues())
        if not queues:
            return None
        make_data_folder(self.config.work.root)
        self._maintenance.register_step()
        environment, settings = self.environment, self.config.work
        return run_one_step(
            environment.open_store,
            environment.machines,
            host=environment.host,
            work_root=settings.root,
            objects=environment.objects,
            target=target,
            queues=queues,
            shared=settings.shared,
            ttl=settings.ttl,
            resources_of=environment.resources_of_kind,
        )

    def run_until_idle(self, max_wait: float = MAX_IDLE_WAIT) -> int:
        """Run steps one after the other until none is due, and return how many ran.

        Records that are due again within `max_wait` seconds (a retry, a poll) are waited for. Those that wait for
        longer, for a person or for a hold to be cleared stay where they are.
        """
        count = 0
        while True:
            while self.step_once() is not None:
                count += 1
            seconds = self._seconds_to_next_step()
            if seconds is None or seconds > max_wait:
                return count
            self.store.watch(max(seconds, 0.001))

    def _seconds_to_next_step(self) -> float | None:
        """Seconds until a record of the queues is due again; None: none is by itself."""
        waits = self.store.release_due_waits()
        if waits.released_count or waits.seconds_to_next is None:
            return 0.0 if waits.released_count else None
        due = (
            record.wake_at
            for queue in self._list_unpaused_queues()
            for record in self.store.each(queue.kind, state=queue.state)
            if record.blocked_by == "wait"
        )
        earliest = min(due, default=None)
        return None if earliest is None else max(0.0, earliest - self.store.now())

    def _check_is_not_paused(self, record: Record) -> None:
        machine = self.environment.machines[record.kind]
        if pauses := list_pause_holds(machine, record.state) & set(self.store.list_holds()):
            raise Conflict(
                f"Work on {record.ref} is paused by {', '.join(sorted(pauses))}; `waybill release` that first."
            )

    def _list_unpaused_queues(self) -> list[WorkQueue]:
        """The queues in which a step can be due, for a single step."""
        from waybill.worker import queues_of

        machines, holds = self.environment.machines, set(self.store.list_holds())
        names = self.config.work.queues or [kind for kind in self._list_queues() if kind != MAINTENANCE_KIND]
        return [
            queue
            for queue in queues_of(machines, names)
            if not list_pause_holds(machines[queue.kind], queue.state) & holds
        ]

    def run(self, *, on_start: Callable[[], None] = lambda: None) -> bool:
        """Work, with the threads, processes and queues of the settings, until SIGTERM, Ctrl-C or `stop`. Return whether
        it was asked to stop; raises the error that ended it otherwise. What `waybill work` does.
        """
        self.prepare()
        return self._run_parts(
            worker=self._make_worker(), worker_processes=self._make_worker_processes(), on_start=on_start
        )

    def serve(self, *, work: bool = True, on_start: Callable[[ListeningServer], None] | None = None) -> bool:
        """Serve the API, and work beside it, until SIGTERM, Ctrl-C or `stop`. Return whether it was asked to stop;
        raises the error that ended it otherwise. What `waybill up` does, and without `work` `waybill serve`.
        """
        from waybill.runtime.listening_server import ListeningServer
        from waybill.runtime.server_processes import ServerSession, tune_process

        self.prepare()
        tune_process()  # before the server counts how many connections the process may have
        server = ListeningServer(self.environment)
        if work:
            parts: dict[str, Any] = {"worker": self._make_worker(), "worker_processes": self._make_worker_processes()}
        else:
            is_sqlite = sqlite_path(self.config.store) is not None
            parts = {"server_session": ServerSession(self.environment) if is_sqlite else None}
        start = on_start or (lambda server: log.info("listening at %s", server.url))
        return self._run_parts(server=server, on_start=lambda: start(server), **parts)

    def stop(self) -> None:
        """End `run` or `serve`, also one that has not begun yet: no new claims, running steps end or stop at a safe
        point. May be called from any thread.
        """
        with self._stop_lock:
            self._is_stop_requested = True
            if self._stop_signals is not None:
                self._stop_signals.request_stop()

    def _run_parts(self, **parts: Any) -> bool:
        from waybill.runtime.server_processes import run_until_stopped
        from waybill.runtime.signals import StopSignals

        with self._stop_lock:
            signals = self._stop_signals = StopSignals()
            if self._is_stop_requested:
                signals.request_stop()
        try:
            with self.environment.record_activity():
                return run_until_stopped(self.environment, signals, **parts)
        finally:
            with self._stop_lock:
                self._stop_signals, self._is_stop_requested = None, False

    # --- the parts

    @cached_property
    def _maintenance(self) -> MaintenanceScheduler:
        from waybill.maintenance import MaintenanceScheduler

        return MaintenanceScheduler.from_environment(self.environment)

    def _list_queues(self) -> tuple[str, ...]:
        """The queues of the settings, or every kind that has work."""
        machines = self.environment.machines
        return self.config.work.queues or tuple(
            kind for kind, machine in machines.items() if machine.list_work_states()
        )

    def _make_worker(self) -> Worker:
        from waybill.worker import Worker

        environment, settings = self.environment, self.config.work
        make_data_folder(settings.root)
        return Worker(
            environment.open_store,
            environment.machines,
            host=environment.host,
            work_root=settings.root,
            objects=environment.objects,
            queues=self._list_queues(),
            shared=settings.shared,
            threads=settings.threads,
            pools=settings.pools,
            ttl=settings.ttl,
            max_claims=settings.claim_max,
            resources_of=environment.resources_of_kind,
        )

    def _make_worker_processes(self) -> WorkerProcesses | None:
        """The other worker processes; None when this process is the only one."""
        from waybill.runtime.worker_processes import WorkerProcesses

        settings, count = self.config.work, self.config.work.processes - 1
        if not count:
            return None
        if self._applications is not None:
            raise InputError(
                "Other worker processes load applications by name: name them in the setting `applications`, "
                "or leave work.processes at 1.",
                code="bad-config",
            )
        queues = [argument for queue in settings.queues for argument in ("--queue", queue)]
        demo = ["--demo"] if self.config.demo else []
        # In the environment, which only this user can read: the store's URL may hold a password.
        variables = {
            "WAYBILL_DATA": str(self.config.data),
            "WAYBILL_STORE": self.config.store,
            "WAYBILL_INDEX": self.config.index,
        }
        if self._config_file is not None:
            variables["WAYBILL_CONFIG"] = str(self._config_file.absolute())
        return WorkerProcesses(
            ["work", "--processes", "1", "--threads", str(settings.threads), *queues, *demo], count, variables
        )
