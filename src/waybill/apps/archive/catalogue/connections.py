"""The connections of a process to the catalogue, which threads borrow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from waybill.apps.archive.catalogue.tables import ArchiveTables

if TYPE_CHECKING:
    from waybill.index import Index

MAX_CONNECTIONS = 12


class ArchiveCatalogue:
    name = "archive"
    package = "waybill.apps.archive.catalogue"
    durable: Literal[True] = True


CATALOGUE = ArchiveCatalogue()


class CatalogueConnections:
    def __init__(self, open_index: Callable[[], Index]) -> None:
        self._open_index = open_index
        self._idle: list[tuple[Index, ArchiveTables]] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._borrowed = threading.local()

    @contextmanager
    def open(self) -> Iterator[ArchiveTables]:
        """The tables on a connection of this thread alone. Inside another `open` of the same thread, the same."""
        if (tables := getattr(self._borrowed, "tables", None)) is not None:
            yield tables
            return
        with self._slots:
            index, tables = self._take()
            self._borrowed.tables = tables
            try:
                yield tables
            finally:
                self._borrowed.tables = None
                with self._lock:
                    self._idle.append((index, tables))

    def _take(self) -> tuple[Index, ArchiveTables]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        index = self._open_index()
        try:
            return index, ArchiveTables(index.open_catalogue(CATALOGUE))
        except BaseException:
            index.close()
            raise

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for index, _ in idle:
            index.close()
