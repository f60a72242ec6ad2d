"""The stores that can be simulated: each new and empty, with the simulation's clock and any number of connections.

model    plain dicts (`waybill.stores.model`), with commits split into their groups: fast, and shows what a store with
         one writer cannot
sqlite   the real driver on a file in a temporary folder, in memory where the system has such a folder
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
from waybill.stores.model import ModelDatabase, ModelStore


class SimulationBackend(Protocol):
    splits_commits: bool  # the groups of a commit may be written one by one
    many_hosts: bool  # workers of several hosts may share it

    def connect(self) -> Store: ...

    def disconnect(self, store: Store) -> None: ...

    def close(self) -> None: ...


class ModelBackend:
    splits_commits = many_hosts = True

    def __init__(self, clock: Callable[[], float]) -> None:
        self.database = ModelDatabase(clock)

    def connect(self) -> Store:
        return ModelStore(self.database)

    def disconnect(self, store: Store) -> None:
        store.close()

    def close(self) -> None:
        """Nothing to remove."""


class SqliteBackend:
    splits_commits = many_hosts = False

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.folder = tempfile.TemporaryDirectory(dir=_find_memory_folder(), prefix="waybill-sim-")
        self.file = Path(self.folder.name, "sim.db")
        shutil.copyfile(_make_empty_database(), self.file)
        self.open_stores: list[Store] = []

    def connect(self) -> Store:
        store = open_store(f"sqlite:///{self.file}", clock=self.clock)
        self.open_stores.append(store)
        return store

    def disconnect(self, store: Store) -> None:
        self.open_stores.remove(store)
        store.close()

    def close(self) -> None:
        for store in self.open_stores:
            store.close()
        self.folder.cleanup()


@cache
def _make_empty_database() -> Path:
    """Made once in a process and copied for every seed: creating the schema takes longer than most simulations."""
    folder = tempfile.TemporaryDirectory(dir=_find_memory_folder(), prefix="waybill-sim-")
    _temporary_folders.append(folder)
    file = Path(folder.name, "empty.db")
    open_store(f"sqlite:///{file}").close()
    return file


_temporary_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def _find_memory_folder() -> str | None:
    memory = "/dev/shm"  # a file system in memory on Linux; elsewhere the usual temporary folder is used
    return memory if os.access(memory, os.W_OK) else None


BACKENDS: dict[str, Callable[[Callable[[], float]], SimulationBackend]] = {
    "model": ModelBackend,
    "sqlite": SqliteBackend,
}
