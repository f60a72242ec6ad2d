"""What steps, maintenance routines, routes, pages and commands of lots share; made once in each process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, cast

from waybill.apps.lots.catalogue import LotCatalogue, LotTables
from waybill.apps.lots.locations import Locations
from waybill.apps.lots.settings import read as read_settings
from waybill.sandbox import SandboxSupport, find_support, sweep_remains
from waybill.step import StepContext

if TYPE_CHECKING:
    from waybill.environment import Environment
    from waybill.index import Index
    from waybill.objects import Objects

MAX_CONNECTIONS = 12


class CatalogueConnections:
    """Connections to the catalogue that threads borrow."""

    def __init__(self, open_index: Callable[[], Index]) -> None:
        self._open_index = open_index
        self._idle: list[tuple[Index, LotTables]] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._borrowed = threading.local()

    @contextmanager
    def open(self) -> Iterator[LotTables]:
        """The tables on a connection of this thread alone. Inside another `open` of the same thread, the same."""
        if (tables := getattr(self._borrowed, "tables", None)) is not None:
            yield tables
            return
        with self._slots:
            with self._lock:
                held = self._idle.pop() if self._idle else None
            if held is None:
                index = self._open_index()
                try:
                    held = index, LotTables(index.open_catalogue(LotCatalogue()))
                except BaseException:
                    index.close()
                    raise
            self._borrowed.tables = held[1]
            try:
                yield held[1]
            finally:
                self._borrowed.tables = None
                with self._lock:
                    self._idle.append(held)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for index, _ in idle:
            index.close()


class LotsResources:
    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.settings = read_settings(environment.config.app.get("lots", {}))
        self.connections = CatalogueConnections(environment.open_index)
        self._lock = threading.Lock()
        self._support: SandboxSupport | None = None

    @property
    def objects(self) -> Objects:
        return self.environment.objects

    @property
    def host(self) -> str:
        return self.environment.host

    @cached_property
    def locations(self) -> Locations:
        return Locations(self.environment.objects, self.environment.config.objects)

    @contextmanager
    def open_catalogue(self) -> Iterator[LotTables]:
        with self.connections.open() as tables:
            yield tables

    @property
    def sandbox_support(self) -> SandboxSupport:
        """What this machine offers; found when the first command is to run."""
        with self._lock:
            if self._support is None:
                support = find_support(self.environment.config.sandbox)
                if support.can_run:
                    sweep_remains(support)
                self._support = support
            return self._support

    @cached_property
    def container_program(self) -> str:
        """The program that runs containers; empty: there is none."""
        import shutil

        if self.settings.podman:
            return (
                self.settings.podman
                if os.access(self.settings.podman, os.X_OK)
                else shutil.which(self.settings.podman) or ""
            )
        return shutil.which("podman") or shutil.which("docker") or ""

    def close(self) -> None:
        if "locations" in self.__dict__:
            self.locations.close()
            del self.__dict__["locations"]
        self.connections.close()


def resources_of(ctx: StepContext) -> LotsResources:
    return cast(LotsResources, ctx.resources)
