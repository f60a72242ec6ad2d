"""The index: SQL tables in which people search, each of which can be rebuilt from manifests.

Records live in the store and bytes in objects; what must be *searchable* (an inventory, the entries of a directory, the
files of a migration) lives in a catalogue: some tables of an application, in the store's own database or, beside
ZooKeeper, in one of their own. A catalogue is never the truth, so it may be dropped and built again.

    with closing(open_index(url)) as index:
        shelf = index.shelf(CATALOGUE)                      makes or upgrades the catalogue's tables
        with shelf.transaction():
            shelf.execute("enter", path="a/b", size=3)      statements by name, from the catalogue's .sql files
        rows = shelf.query("under", folder="a", most=100)   never more rows than asked for
        rebuild(shelf, CATALOGUE, lambda: manifests)        from nothing

A catalogue's package holds `statements.sql` (named statements) and `migrations/0001_words.sql`, `0002_...`; both
databases read the same files. Where one must differ, `statements.postgres.sql` or `0002_words.sqlite.sql` takes the
place of the common one. Parameters are written `:name`. Its tables begin with its own name: `inventory_object`.

One connection is for one thread, as with a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from waybill.record import BadStore, StoreError

FORMS = "sqlite:///path or postgresql://user@host/database"
MOST_ROWS = 1000  # rows that one query may answer

Row = dict[str, Any]
Source = TypeVar("Source", contravariant=True)


class TooMany(StoreError):
    """A query found more rows than it may answer."""

    code = "too-many"


class Catalogue(Protocol[Source]):
    """What an application declares: where its SQL lies, and how one manifest (or whatever it is built from) is
    entered.
    """

    @property
    def name(self) -> str:
        """The beginning of its tables' names: letters and digits."""

    @property
    def package(self) -> str:
        """The package that holds `statements.sql` and `migrations/`."""

    def clear(self, shelf: Shelf) -> int:
        """Remove some rows, at most a few thousand; how many. Called in a transaction until it answers 0."""

    def enter(self, shelf: Shelf, source: Source) -> None:
        """Write what one source says, in place of what it said before; safe to repeat.

        Called outside a transaction: it takes one for a short source, and one for each portion of a long one.
        """


class Shelf(Protocol):
    """The tables of one catalogue."""

    name: str

    def execute(self, statement: str, **values: Any) -> int:
        """Run a named statement; how many rows it changed. Outside a transaction it is one of its own."""

    def execute_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> int:
        """Run a named statement for each of these values, in one transaction and few round trips; how many rows it
        changed.
        """

    def query(self, statement: str, *, most: int = MOST_ROWS, **values: Any) -> list[Row]:
        """The rows of a named statement, or TooMany: a statement that pages has its own limit."""

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; one inside another belongs to the outer one."""

    def state(self) -> str:
        """ "ready", or "rebuilding": then searches may miss what is not entered yet."""

    def set_state(self, state: str) -> None: ...

    def drop(self) -> None:
        """Remove the catalogue's tables and all that is known of them."""


class Index(Protocol):
    """A database of catalogues."""

    url: str  # without secrets

    def shelf(self, catalogue: Catalogue[Any]) -> Shelf:
        """The catalogue's tables, made or upgraded."""

    def close(self) -> None: ...


def open_index(url: str) -> Index:
    """Open the database that `url` names; made when it is a SQLite file that is not there."""
    scheme = urlsplit(url).scheme
    try:
        if scheme == "sqlite":
            from waybill.index.sqlite import SqliteIndex

            return SqliteIndex(url)
        if scheme in ("postgresql", "postgres"):
            from waybill.index.postgres import PostgresIndex

            return PostgresIndex(url)
    except ModuleNotFoundError as error:
        raise BadStore(f"An index in PostgreSQL needs the package {error.name}; install waybill[postgres].") from error
    raise BadStore(f"{scheme or 'that'} is no database for an index; its URL is {FORMS}.")


def rebuild(shelf: Shelf, catalogue: Catalogue[Source], sources: Callable[[], Iterable[Source]]) -> int:
    """Build a catalogue again from all its sources; how many. Safe to repeat, and to run while new sources are entered.

    `sources` is called when the tables are empty: whoever enters a manifest has written it before, so what is removed
    here is listed there. Transactions are short, for the database may be the store's own, and its workers wait
    meanwhile.
    """
    shelf.set_state("rebuilding")
    while True:
        with shelf.transaction():
            if not catalogue.clear(shelf):
                break
    count = 0
    for source in sources():
        catalogue.enter(shelf, source)
        count += 1
    shelf.set_state("ready")
    return count
