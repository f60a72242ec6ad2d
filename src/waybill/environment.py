"""What a process works with: its settings, its applications and their machines, and how its store, index and objects
are opened.

    environment = Environment.from_config(config.load(env=os.environ))
    with closing(environment.open_store()) as store:
        environment.make_engine(store).submit(...)

A store is one connection for one thread: every thread opens its own and closes it. Objects are shared.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from waybill import application, index, stores
from waybill.application import Application
from waybill.config import ADDRESS_FILE, Config, sqlite_path
from waybill.engine import Engine
from waybill.errors import InputError, NotFound
from waybill.index import Index
from waybill.machine import Machine
from waybill.published_objects import PublishedObject
from waybill.record import BadStore, Store
from waybill.rules import Machines, find_id_problem

if TYPE_CHECKING:
    from waybill.activity import ActivityRecorder
    from waybill.maintenance import MaintenanceRoutine
    from waybill.objects import Objects
    from waybill.subscriptions import Subscriber, SubscriptionScheduler


@dataclass(frozen=True)
class Environment:
    """What a process works with."""

    config: Config
    applications: tuple[Application, ...]
    machines: Machines
    subscribers: dict[str, Subscriber] = field(default_factory=dict)  # by the ids of their subscriptions
    _application_by_kind: Mapping[str, Application] = field(default_factory=dict)
    _resources: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _recorders: list[ActivityRecorder] = field(default_factory=list)  # at most one, while a process serves or works

    @classmethod
    def from_config(
        cls, config: Config, applications: Iterable[Application] | None = None, *, demo: bool | None = None
    ) -> Environment:
        """Load the applications that the settings name (or use those given) and collect their machines."""
        chosen = list(applications) if applications is not None else application.load_applications(config.applications)
        if config.demo if demo is None else demo:
            from waybill.demo import DEMO

            chosen.append(DEMO)
        if urlsplit(config.store).scheme == "zookeeper" and (large := [a.name for a in chosen if a.sql_only]):
            if applications is not None or config.applications is not None:
                raise InputError(
                    f"The application {large[0]} can have more records than ZooKeeper should hold: give it a sqlite or postgresql store, "
                    f"or leave it out with the setting `applications`.",
                    code="bad-application",
                )
            chosen = [a for a in chosen if not a.sql_only]  # installed, and asked for by nobody
        _check_names(chosen)
        built = [(a, machine) for a in chosen for machine in a.build_machines(config.app.get(a.name, {}))]
        from waybill.notify import make_webhook_subscribers
        from waybill.subscriptions import build_routing, list_subscribers

        # the address and the resources of the environment that is made below
        webhooks = make_webhook_subscribers(config.webhooks, source=lambda: config.events.source or environment.address)
        subscribers = list_subscribers(chosen, lambda name: environment.resources_of(name), webhooks)
        built_in = make_built_in_machines(config, subscribers)
        machines = Machines.from_machines((*built_in, *(machine for _, machine in built)))
        machines.event_routing = build_routing(
            (event for each in chosen for event in each.events), subscribers, config.events.log
        )
        for name in config.retention:
            _check_retention(name, machines)
        environment = cls(config, tuple(chosen), machines, subscribers, {machine.name: a for a, machine in built})
        environment.subscriptions.register_step()
        return environment

    @property
    def subscriptions(self) -> SubscriptionScheduler:
        """The step of the subscriptions, and their records."""
        from waybill.subscriptions import SubscriptionScheduler

        return SubscriptionScheduler(self.subscribers, self.machines)

    def list_maintenance(self) -> tuple[MaintenanceRoutine, ...]:
        """Return the routines beside those that every process has: of the log of events, and of the applications."""
        from waybill.subscriptions import EventLogRoutine, SubscriptionRoutine

        return (
            EventLogRoutine(self.config.events.keep),
            SubscriptionRoutine(frozenset(self.subscribers)),
            *(routine for each in self.applications for routine in each.maintenance),
        )

    @property
    def host(self) -> str:
        """The stable name of this host, to which working files bind records."""
        return self.config.work.host

    @property
    def address(self) -> str:
        """The URL of the server of this data folder: where it listens, or listened last; before its first start, where
        the settings say.
        """
        # Read each time: a worker may have been started before the server, and neither knows the other's command line.
        return read_address(self.config.data) or address_of(
            self.config.http.host, self.config.http.port, tls=self.config.http.tls_certificate is not None
        )

    def open_store(self, *, migrate: bool = True) -> Store:
        """Return a new connection, which the caller closes. `migrate`: create or upgrade the schema; otherwise the
        store must exist.
        """
        if (path := sqlite_path(self.config.store)) is not None:
            if migrate:
                make_data_folder(path.parent)
            elif not path.exists():
                raise BadStore(
                    f"There is no store at {path}; `waybill up` or `waybill migrate` makes one; --data and --store name others."
                )
        store = stores.open_store(self.config.store, migrate=migrate)
        return self._recorders[0].watch(store) if self._recorders else store

    @contextmanager
    def record_activity(self) -> Iterator[None]:
        """Count what is written through the stores that are opened here, for as long as the block runs."""
        from waybill.activity import ActivityRecorder
        from waybill.sign_in import PRIVATE_KINDS

        def open_store() -> Store:
            return stores.open_store(self.config.store, migrate=False)

        recorder = ActivityRecorder(open_store, self.machines, left_out=PRIVATE_KINDS)
        self._recorders.append(recorder)
        recorder.start()
        try:
            yield
        finally:
            self._recorders.remove(recorder)
            recorder.close()

    def open_index(self) -> Index:
        """Return a new connection to the searchable catalogues, which the caller closes."""
        return index.open_index(self.config.index)

    @cached_property
    def objects(self) -> Objects:
        """Opened when first used: most commands of the command line never touch an object."""
        from waybill.objects import open_objects

        return open_objects(self.config.objects, probe=False)

    def list_objects_of(self, key: str, number: int) -> Iterator[PublishedObject]:
        """Yield the objects of a version or generation of a thing of whichever application it is. Raises NotFound."""
        for each in self.applications:
            if each.published_objects is not None:
                objects = each.published_objects(self)(key, number)
                if objects is not None:
                    return objects
        raise NotFound(f"No application that is loaded has the objects of {key}.")

    def resources_of(self, application_name: str) -> Any:
        """Return what the steps, routes and commands of an application use; made when first needed, shared by all
        threads.

        None: there is no such application here, or it has no resources.
        """
        application = next((each for each in self.applications if each.name == application_name), None)
        if application is None or application.resources is None:
            return None
        with self._lock:
            if application.name not in self._resources:
                self._resources[application.name] = application.resources(self)
            return self._resources[application.name]

    def resources_of_kind(self, kind: str) -> Any:
        """Return the resources of the application that declares this kind, for `ctx.resources` of its records."""
        application = self._application_by_kind.get(kind)
        return self.resources_of(application.name) if application is not None else None

    def application_of_kind(self, kind: str) -> Application | None:
        """Return the application that declares this kind; None for those that every process has."""
        return self._application_by_kind.get(kind)

    def close(self) -> None:
        """Close the resources of the applications; those needed afterwards are made again."""
        with self._lock:
            opened = list(self._resources.values())
            self._resources.clear()
        for resources in opened:
            if hasattr(resources, "close"):
                resources.close()

    def make_engine(self, store: Store) -> Engine:
        return Engine(store, self.machines)


def _check_names(applications: Iterable[Application]) -> None:
    """Raise InputError for two of one name: settings, resources and the records of maintenance routines are found
    by name, and one would silently replace the other.
    """
    from waybill.maintenance import collect_routines

    seen: set[str] = set()
    from waybill.subscriptions import EventLogRoutine, SubscriptionRoutine

    built_in = collect_routines((EventLogRoutine(), SubscriptionRoutine()))
    owners = dict.fromkeys(built_in, "Waybill itself")
    for each in applications:
        if each.name in seen:
            raise InputError(
                f"Two applications are called {each.name}; leave one out with the setting `applications`.",
                code="bad-application",
            )
        seen.add(each.name)
        for routine in each.maintenance:
            if problem := find_id_problem(routine.name) or ("no @ in it." if "@" in routine.name else ""):
                raise InputError(
                    f"The maintenance routine {routine.name!r} of the application {each.name} needs another name: {problem}",
                    code="bad-application",
                )
            if routine.name in owners:
                raise InputError(
                    f"The maintenance routine {routine.name} of the application {each.name} has the name of a routine of "
                    f"{owners[routine.name]}; call it {each.name}-{routine.name}.",
                    code="bad-application",
                )
            owners[routine.name] = f"the application {each.name}"


def _check_retention(name: str, machines: Machines) -> None:
    """Raise InputError for a state that is not declared, and for one from which nothing is ever removed."""
    kind, _, state_name = name.partition(".")
    state = machines[kind].find_state(state_name) if kind in machines else None
    if state is None:
        raise InputError(
            f"retention names {name}, which no machine here declares; the kinds are {', '.join(sorted(machines))}.",
            code="bad-config",
        )
    if state.open:
        settled = ", ".join(each.name for each in machines[kind].states if not each.open)
        raise InputError(
            f"retention names {name}, in which a {kind} is still open; only settled records are removed: those in {settled}.",
            code="bad-config",
        )


def make_built_in_machines(config: Config, subscribers: Mapping[str, Subscriber]) -> Iterator[Machine]:
    """Yield the machines that every process has."""
    from waybill.accounts import GROUP, KEY, USER
    from waybill.activity import ACTIVITY
    from waybill.maintenance import MAINTENANCE
    from waybill.notify import make_mail_machine, make_webhook_machine
    from waybill.sign_in import LOGIN_LINK, SIGN_IN
    from waybill.subscriptions.machines import EVENT, make_subscription_machine
    from waybill.tokens import TOKEN

    yield MAINTENANCE
    yield ACTIVITY
    yield TOKEN
    yield LOGIN_LINK
    yield SIGN_IN
    yield USER
    yield GROUP
    yield KEY
    yield make_mail_machine(config.mail)
    yield make_webhook_machine(config.webhooks)
    yield EVENT
    yield make_subscription_machine(subscribers)


def address_of(host: str, port: int, *, tls: bool = False) -> str:
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def read_address(data: Path) -> str:
    """Return the URL that the server of a data folder has written there; empty if it has never run."""
    try:
        return (data / ADDRESS_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def make_data_folder(path: Path) -> None:
    """Create a folder for data that only its owner can read; an existing folder keeps its mode."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadStore(
            f"The folder {path} cannot be made: {os.strerror(error.errno or 0)}. Choose another with --data."
        ) from error


StoreOpener = Callable[[], Store]
