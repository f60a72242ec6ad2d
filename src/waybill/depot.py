"""What a process is put together from: its settings, the machines it knows, and the ways to its store and objects.

    depot = Depot.of(config.load(env=os.environ))
    with closing(depot.open_store()) as store:
        depot.engine(store).submit(...)

A store is one connection for one thread: every thread opens its own and closes it. Objects are shared.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from waybill import application, index, stores
from waybill.application import Application, BadApplication
from waybill.config import ADDRESS_FILE, BadConfig, Config, sqlite_path
from waybill.engine import Engine
from waybill.index import Index
from waybill.machine import Machine
from waybill.record import BadStore, Store
from waybill.rules import Machines, bad_id

if TYPE_CHECKING:
    from waybill.objects import Objects


@dataclass(frozen=True)
class Depot:
    config: Config
    applications: tuple[Application, ...]
    machines: Machines
    _of_kind: Mapping[str, Application] = field(default_factory=dict)
    _outfits: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(
        cls, config: Config, applications: Iterable[Application] | None = None, *, demo: bool | None = None
    ) -> Depot:
        """Load the applications that the settings name (or take those given) and gather their machines."""
        chosen = list(applications) if applications is not None else application.installed(config.applications)
        if config.demo if demo is None else demo:
            from waybill.demo import DEMO

            chosen.append(DEMO)
        if urlsplit(config.store).scheme == "zookeeper" and (large := [a.name for a in chosen if a.sql_only]):
            raise BadApplication(
                f"The application {large[0]} can have more records than ZooKeeper should carry: give it a sqlite or postgresql store, "
                f"or leave it out with the setting `applications`."
            )
        _check_names(chosen)
        brought = [(a, machine) for a in chosen for machine in a.tables(config.app.get(a.name, {}))]
        machines = Machines.of((*built_in(config), *(machine for _, machine in brought)))
        for name in config.retention:
            _check_retention(name, machines)
        return cls(config, tuple(chosen), machines, {machine.name: a for a, machine in brought})

    @property
    def host(self) -> str:
        """The stable name of this host, to which working files are bound."""
        return self.config.work.host

    @property
    def address(self) -> str:
        """Where people reach the server of this data folder: where it listens, or listened last; before that, where
        it is to listen.
        """
        # Read each time: a worker may have been started before the server, and neither knows the other's command line.
        return address_in(self.config.data) or address_of(self.config.http.host, self.config.http.port)

    def open_store(self, *, migrate: bool = True) -> Store:
        """A new connection, which the caller closes. `migrate`: make or upgrade the schema; otherwise a store must
        be there.
        """
        if (path := sqlite_path(self.config.store)) is not None:
            if migrate:
                make_folder(path.parent)
            elif not path.exists():
                raise BadStore(
                    f"There is no store at {path}; `waybill up` or `waybill migrate` makes one; --data and --store name others."
                )
        return stores.open_store(self.config.store, migrate=migrate)

    def open_index(self) -> Index:
        """A new connection to the searchable catalogues, which the caller closes."""
        return index.open_index(self.config.index)

    @cached_property
    def objects(self) -> Objects:
        """Nothing is asked of a server before it is needed: most commands of the command line never touch an object."""
        from waybill.objects import open_objects

        return open_objects(self.config.objects, probe=False)

    def outfit(self, kind: str) -> Any:
        """What the application of a kind works with; made when first asked for, and shared by all threads."""
        application = self._of_kind.get(kind)
        if application is None or application.outfit is None:
            return None
        with self._lock:
            if application.name not in self._outfits:
                self._outfits[application.name] = application.outfit(self)
            return self._outfits[application.name]

    def close(self) -> None:
        """Close what applications have opened; what is asked for afterwards is made anew."""
        with self._lock:
            outfits = list(self._outfits.values())
            self._outfits.clear()
        for outfit in outfits:
            if hasattr(outfit, "close"):
                outfit.close()

    def engine(self, store: Store) -> Engine:
        return Engine(store, self.machines)


def _check_names(applications: Iterable[Application]) -> None:
    """Refuse two of one name: settings, outfits and the duties' records are found by it, and one would quietly take
    the other's place.
    """
    from waybill.duties import all_duties

    seen: set[str] = set()
    owners = dict.fromkeys(all_duties(), "Waybill itself")
    for each in applications:
        if each.name in seen:
            raise BadApplication(
                f"Two applications are called {each.name}; leave one out with the setting `applications`."
            )
        seen.add(each.name)
        for duty in each.duties:
            if problem := bad_id(duty.name) or ("no @ in it." if "@" in duty.name else ""):
                raise BadApplication(
                    f"The duty {duty.name!r} of the application {each.name} needs another name: {problem}"
                )
            if duty.name in owners:
                raise BadApplication(
                    f"The duty {duty.name} of the application {each.name} has the name of a duty of {owners[duty.name]}; "
                    f"call it {each.name}-{duty.name}."
                )
            owners[duty.name] = f"the application {each.name}"


def _check_retention(name: str, machines: Machines) -> None:
    """Refuse a state that is not declared, and one from which nothing is ever removed."""
    kind, _, title = name.partition(".")
    state = machines[kind].state(title) if kind in machines else None
    if state is None:
        raise BadConfig(
            f"retention names {name}, which no machine here declares; the kinds are {', '.join(sorted(machines))}."
        )
    if state.open:
        settled = ", ".join(each.name for each in machines[kind].states if not each.open)
        raise BadConfig(
            f"retention names {name}, in which a {kind} is still open; records are removed only when they have settled: in {settled}."
        )


def built_in(config: Config) -> Iterator[Machine]:
    """The machines that every process has."""
    from waybill.duties import DUTY
    from waybill.notify import event_machine, letter_machine
    from waybill.tokens import TOKEN

    yield DUTY
    yield TOKEN
    yield letter_machine(config.mail)
    yield event_machine(config.webhooks)


def address_of(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def address_in(data: Path) -> str:
    """Where the server of a data folder said that it listens; empty, if it never did."""
    try:
        return (data / ADDRESS_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def make_folder(path: Path) -> None:
    """Make a folder for data, for its owner alone; the mode of one that is there already stays."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadStore(
            f"The folder {path} cannot be made: {os.strerror(error.errno or 0)}. Choose another with --data."
        ) from error


OpenStore = Callable[[], Store]
