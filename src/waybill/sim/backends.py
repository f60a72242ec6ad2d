"""The stores that a simulation runs over: each fresh and empty, with the simulation's clock and any number of
connections.

    model    plain dicts (`waybill.stores.model`), behind a loose wire: fast, and shows what one writer cannot
    sqlite   the real driver on a file in a temporary folder, in memory where the system has such a place
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol

from waybill.record import Store
from waybill.stores import open_store
from waybill.stores.model import ModelStore
from waybill.stores.model import World as Shelves


class Backend(Protocol):
    loose: bool  # the wire may take a commit apart
    many_hosts: bool  # workers of several hosts may share it

    def connect(self) -> Store: ...

    def disconnect(self, store: Store) -> None: ...

    def close(self) -> None: ...


class ModelBackend:
    loose = many_hosts = True

    def __init__(self, clock: Callable[[], float]) -> None:
        self.shelves = Shelves(clock)

    def connect(self) -> Store:
        return ModelStore(self.shelves)

    def disconnect(self, store: Store) -> None:
        store.close()

    def close(self) -> None:
        """Nothing is left."""


class SqliteBackend:
    loose = many_hosts = False

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.folder = tempfile.TemporaryDirectory(dir=_quick_place(), prefix="waybill-sim-")
        self.file = Path(self.folder.name, "sim.db")
        shutil.copyfile(_empty_database(), self.file)
        self.open: list[Store] = []

    def connect(self) -> Store:
        store = open_store(f"sqlite:///{self.file}", clock=self.clock)
        self.open.append(store)
        return store

    def disconnect(self, store: Store) -> None:
        self.open.remove(store)
        store.close()

    def close(self) -> None:
        for store in self.open:
            store.close()
        self.folder.cleanup()


@cache
def _empty_database() -> Path:
    """Made once in a process, and copied for every seed: making the schema takes longer than most simulations."""
    folder = tempfile.TemporaryDirectory(dir=_quick_place(), prefix="waybill-sim-")
    _kept.append(folder)
    file = Path(folder.name, "empty.db")
    open_store(f"sqlite:///{file}").close()
    return file


_kept: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def _quick_place() -> str | None:
    memory = "/dev/shm"  # a file system in memory on Linux; elsewhere the usual temporary folder will do
    return memory if os.access(memory, os.W_OK) else None


BACKENDS: dict[str, Callable[[Callable[[], float]], Backend]] = {"model": ModelBackend, "sqlite": SqliteBackend}
