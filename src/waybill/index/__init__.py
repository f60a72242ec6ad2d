"""The index: searchable SQL tables, each of which can be rebuilt from manifests or says that it is durable.

Records are in the store and bytes in objects; what must be *searchable* (an inventory, the entries of a directory, the
files of a migration) is in a catalogue: some tables of an application, in the store's own database or, beside ZooKeeper,
in a database of their own. A catalogue is one of two sorts:

- **rebuildable**: it holds nothing of its own, so it may be dropped and rebuilt (`clear`, `enter`);
- **durable** (`durable = True`): its rows are the truth. It is never dropped, cleared or rebuilt, and needs backups.

    with closing(open_index(url)) as index:
        tables = index.open_catalogue(CATALOGUE)                  makes or upgrades the catalogue's tables
        with tables.transaction():
            tables.execute("enter", path="a/b", size=3)           statements by name, from the catalogue's .sql files
            tables.load("inventory_file", ("path", "size"), rows) many new rows at once
        rows = tables.query("under", folder="a", max_rows=100)    never more rows than the limit
        for row in tables.iter_rows("page", keys=("path",)): ...  any number of rows, a page at a time
        rebuild_catalogue(tables, CATALOGUE, lambda: manifests)   from nothing

A catalogue's package holds `statements.sql` (named statements) and `migrations/0001_title.sql`, `0002_...`; both
databases read the same files. Where one must differ, `statements.postgres.sql` or `0002_title.sqlite.sql` replaces the
common one. Parameters are written `:name`. Its tables begin with its own name: `inventory_object`. A migration may create
triggers, and indexes for searches in texts: FTS5 on SQLite, `gin (trigrams(title))` on PostgreSQL, whose function
`trigrams` is in every index.

One connection is for one thread, as with a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from waybill.record import BadStore

URL_FORMS = "sqlite:///path or postgresql://user@host/database"
MAX_ROWS = 10_000  # rows that one query may return

Row = dict[str, Any]
SourceT = TypeVar("SourceT", contravariant=True)


class Catalogue(Protocol):
    """What an application declares: where its SQL is. It is a RebuildableCatalogue or a DurableCatalogue."""

    @property
    def name(self) -> str:
        """The prefix of its tables' names: letters and digits."""

    @property
    def package(self) -> str:
        """The package that holds `statements.sql` and `migrations/`."""


class DurableCatalogue(Catalogue, Protocol):
    """A catalogue whose rows are the truth."""

    @property
    def durable(self) -> Literal[True]: ...


class RebuildableCatalogue(Catalogue, Protocol[SourceT]):
    """A catalogue that also says how one source (such as a manifest) is entered."""

    def clear(self, tables: CatalogueTables) -> int:
        """Remove some rows, at most a few thousand; returns how many. Called in a transaction until it returns 0."""

    def enter(self, tables: CatalogueTables, source: SourceT) -> None:
        """Write the rows of one source, in place of its earlier ones; safe to repeat.

        Called outside a transaction: it opens one for a short source, and one for each chunk of a long one.
        """


class CatalogueTables(Protocol):
    """The tables of one catalogue."""

    name: str
    durable: bool

    def execute(self, statement: str, **values: Any) -> int:
        """Run a named statement; returns how many rows it changed. Outside a transaction it opens its own."""

    def execute_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> int:
        """Run a named statement for each of these values, in one transaction and few round trips; returns how many rows
        it changed.
        """

    def query(self, statement: str, *, max_rows: int = MAX_ROWS, **values: Any) -> list[Row]:
        """The rows of a named statement; raises StoreError if there are too many. A statement that pages has its own limit."""

    def iter_rows(
        self, statement: str, *, keys: Sequence[str], page: int = 1000, after: Sequence[Any] = (), **values: Any
    ) -> Iterator[Row]:
        """All rows of a statement that pages, one page in memory at a time.

        The statement orders by the columns `keys`, begins behind `:after_KEY` of each and has `limit :row_limit`. The
        first page begins behind `after`; without it behind the empty text. No transaction is held between two pages.
        """

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        """Insert many new rows into a table, all or nothing, as fast as the database can (COPY on PostgreSQL); returns
        how many. A row that is there already is an error: load into a table of your own, and merge from there.
        """

    def transaction(self) -> AbstractContextManager[None]:
        """Commits all or nothing; a transaction inside another belongs to the outer one."""

    def get_state(self) -> str:
        """ "ready"; "rebuilding": searches may miss rows that are not entered yet; "durable": nothing is ever missing."""

    def set_state(self, state: str) -> None: ...

    def drop(self) -> None:
        """Remove the catalogue's tables, and its rows in the bookkeeping tables. A durable one refuses it."""


class Index(Protocol):
    """A database of catalogues."""

    url: str  # without secrets

    def open_catalogue(self, catalogue: Catalogue) -> CatalogueTables:
        """The catalogue's tables, made or upgraded."""

    def close(self) -> None: ...


def open_index(url: str) -> Index:
    """Open the database that `url` names; a SQLite file is created when it does not exist."""
    scheme = urlsplit(url).scheme
    try:
        if scheme == "sqlite":
            from waybill.index.sqlite import SqliteIndex

            return SqliteIndex(url)
        if scheme in ("postgresql", "postgres"):
            from waybill.index.postgres import PostgresIndex

            return PostgresIndex(url)
    except ModuleNotFoundError as error:
        raise BadStore(
            f"An index in PostgreSQL needs the package {error.name}; install waybill-engine[postgres]."
        ) from error
    raise BadStore(f"{scheme or 'that'} is no database for an index; its URL is {URL_FORMS}.")


def rebuild_catalogue(
    tables: CatalogueTables, catalogue: RebuildableCatalogue[SourceT], sources: Callable[[], Iterable[SourceT]]
) -> int:
    """Rebuild a catalogue from all its sources; returns how many. Safe to repeat, and to run while new sources are entered.

    `sources` is called when the tables are empty: a manifest is written before it is entered, so every row that is removed
    here is listed by `sources`. Transactions are short, because the database may be the store's own, and its workers wait
    meanwhile.
    """
    tables.set_state("rebuilding")
    while True:
        with tables.transaction():
            if not catalogue.clear(tables):
                break
    count = 0
    for source in sources():
        catalogue.enter(tables, source)
        count += 1
    tables.set_state("ready")
    return count
