"""The catalogue of compute: directory entries, and the progress of jobs. It is the truth of what it holds, so it is durable:
backed up with the objects, never dropped and never rebuilt.

One connection is for one thread at a time; `CatalogueConnections` keeps a few.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from waybill.index import CatalogueTables

if TYPE_CHECKING:
    from waybill.index import Index

MAX_CONNECTIONS = 12
ACQUIRE_TIMEOUT = 30.0  # seconds


class ComputeCatalogue:
    name = "compute"
    package = "waybill.apps.compute.catalogue"
    durable: Literal[True] = True


CATALOGUE = ComputeCatalogue()


class CatalogueConnections:
    """Connections that threads borrow."""

    def __init__(self, open_index: Callable[[], Index]) -> None:
        self._open_index = open_index
        self._idle: list[tuple[Index, CatalogueTables]] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._borrowed = threading.local()

    @contextmanager
    def open(self) -> Iterator[CatalogueTables]:
        """The tables on a connection of this thread alone. Inside another `open` of the same thread, the same."""
        if (tables := getattr(self._borrowed, "tables", None)) is not None:
            yield tables
            return
        with self._slots:
            with self._lock:
                index, tables = self._idle.pop() if self._idle else (None, None)
            if index is None or tables is None:
                index = self._open_index()
                try:
                    tables = index.open_catalogue(CATALOGUE)
                except BaseException:
                    index.close()
                    raise
            self._borrowed.tables = tables
            try:
                yield tables
            finally:
                self._borrowed.tables = None
                with self._lock:
                    self._idle.append((index, tables))

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for index, _ in idle:
            index.close()
