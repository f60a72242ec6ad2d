"""What both databases share: makes and upgrades a catalogue's tables, finds statements by name, limits the rows.

A database implements a few methods (`IndexConnection`); everything else is here, once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from waybill.index import MAX_ROWS, Catalogue, Row
from waybill.index.sql import CatalogueMigration, Dialect, load_migrations, load_statements, split_statements
from waybill.record import BadStore, StoreError

# The state of each catalogue and the migrations that were applied. The same text on both databases.
BOOKKEEPING_TABLES = (
    "create table if not exists index_migration (catalogue text not null, number integer not null, title text not null, "
    "digest text not null, primary key (catalogue, number))",
    "create table if not exists index_state (catalogue text not null primary key, state text not null)",
)


class IndexConnection(Protocol):
    """One connection. Statements have `:name` parameters."""

    dialect: Dialect

    def run(self, statement: str, values: dict[str, Any], max_rows: int) -> tuple[list[Row], int]:
        """At most `max_rows` rows, and one more if there are more; and how many rows were changed."""

    def run_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> int:
        """The same for many values, without result rows; returns how many rows were changed."""

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        """Insert many rows, in the present transaction; returns how many."""

    def begin(self) -> AbstractContextManager[None]:
        """A transaction that may write; raises StoreUnavailable or CommitOutcomeUnknown."""

    def lock(self, name: str) -> None:
        """Inside a transaction: hold the lock of this name until its end."""

    def list_tables(self) -> set[str]: ...

    def drop_routines(self, prefix: str) -> None:
        """Drop the functions of triggers whose names begin so."""


class SqlCatalogueTables:
    """The tables of one catalogue on one connection."""

    def __init__(self, connection: IndexConnection, catalogue: Catalogue) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]*", catalogue.name) or catalogue.name == "index":
            raise BadStore(
                f"{catalogue.name!r} is no name for a catalogue; it consists of lower-case letters and digits."
            )
        self.name = catalogue.name
        self.durable = is_durable(catalogue)
        self._connection = connection
        self._statements = load_statements(catalogue.package, connection.dialect)
        self._depth = 0
        with self.transaction():
            connection.lock(self.name)
            self._migrate(load_migrations(catalogue.package, connection.dialect))
            self._check_durability()

    def execute(self, statement: str, **values: Any) -> int:
        with self.transaction():
            return self._connection.run(self._find_statement(statement), values, 0)[1]

    def execute_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> int:
        with self.transaction():
            return self._connection.run_all(self._find_statement(statement), rows)

    def query(self, statement: str, *, max_rows: int = MAX_ROWS, **values: Any) -> list[Row]:
        if not 0 < max_rows <= MAX_ROWS:
            raise ValueError(f"A query returns 1 to {MAX_ROWS} rows, not {max_rows}.")
        rows, _ = self._connection.run(self._find_statement(statement), values, max_rows)
        if len(rows) > max_rows:
            raise StoreError(
                f"{self.name}: {statement} found more than {max_rows} rows. Narrow the query, or page through the rows.",
                code="too-many-rows",
            )
        return rows

    def iter_rows(
        self, statement: str, *, keys: Sequence[str], page: int = 1000, after: Sequence[Any] = (), **values: Any
    ) -> Iterator[Row]:
        last: Sequence[Any] = after or [""] * len(keys)
        while True:
            behind = {f"after_{key}": value for key, value in zip(keys, last, strict=True)}
            rows = self.query(statement, max_rows=page, row_limit=page, **behind, **values)
            yield from rows
            if len(rows) < page:
                return
            last = [rows[-1][key] for key in keys]

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        if not table.startswith(f"{self.name}_"):
            raise ValueError(f"The catalogue {self.name} has no table {table}; its tables begin with {self.name}_.")
        if bad := next((word for word in (table, *columns) if not re.fullmatch(r"[a-z_][a-z0-9_]*", word)), None):
            raise ValueError(f"{bad!r} is no name of a table or column.")
        with self.transaction():
            return self._connection.load(table, columns, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._depth:
            yield
            return
        with self._connection.begin():
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def get_state(self) -> str:
        rows, _ = self._connection.run(
            "select state from index_state where catalogue = :catalogue", {"catalogue": self.name}, 1
        )
        return str(rows[0]["state"]) if rows else "ready"

    def set_state(self, state: str) -> None:
        self._refuse_if_durable("rebuilt")
        self._write_state(state)

    def _write_state(self, state: str) -> None:
        with self.transaction():
            self._run_for_catalogue(
                "insert into index_state (catalogue, state) values (:catalogue, :state) "
                "on conflict (catalogue) do update set state = excluded.state",
                state=state,
            )

    def drop(self) -> None:
        self._refuse_if_durable("dropped")
        with self.transaction():
            self._connection.lock(self.name)
            for table in sorted(self._connection.list_tables()):
                if table.startswith(f"{self.name}_"):
                    # A virtual table of SQLite takes tables of its own with it.
                    self._connection.run(f'drop table if exists "{table}"', {}, 0)
            self._connection.drop_routines(f"{self.name}_")
            self._run_for_catalogue("delete from index_migration where catalogue = :catalogue")
            self._run_for_catalogue("delete from index_state where catalogue = :catalogue")

    def _refuse_if_durable(self, what: str) -> None:
        if self.durable:
            raise StoreError(
                f"The catalogue {self.name} is durable: its rows are the truth, and it cannot be {what}.",
                code="durable-catalogue",
            )

    def _check_durability(self) -> None:
        """Write down that a catalogue is durable, so that no program that takes it for a rebuildable one clears it."""
        state = self.get_state()
        if not self.durable and state == "durable":
            raise BadStore(
                f"The catalogue {self.name} is durable here, and this program would drop and rebuild it. "
                "Use the release that wrote it."
            )
        if self.durable and state == "rebuilding":
            raise BadStore(
                f"The catalogue {self.name} lacks rows: a rebuild was interrupted before it was declared durable. "
                "Rebuild it with the former release."
            )
        if self.durable and state == "ready":
            self._write_state("durable")

    def _find_statement(self, statement: str) -> str:
        if statement not in self._statements:
            names = ", ".join(sorted(self._statements)) or "none"
            raise LookupError(f"The catalogue {self.name} has no statement {statement}; it has {names}.")
        return self._statements[statement]

    def _run_for_catalogue(self, statement: str, **values: Any) -> list[Row]:
        return self._connection.run(statement, {"catalogue": self.name, **values}, MAX_ROWS)[0]

    def _migrate(self, migrations: list[CatalogueMigration]) -> None:
        """Under a lock: check that the applied migrations are those of the files, and apply the rest."""
        applied = {
            row["number"]: row
            for row in self._run_for_catalogue("select * from index_migration where catalogue = :catalogue")
        }
        or_rebuild = "." if self.durable else ", or remove the catalogue and rebuild it."
        if applied and max(applied) > len(migrations):
            raise BadStore(
                f"The catalogue {self.name} is of version {max(applied)}, newer than this release knows ({len(migrations)}). "
                f"Use the newer release{or_rebuild}"
            )
        for migration in migrations:
            if migration.number in applied:
                if applied[migration.number]["digest"] != migration.digest:
                    raise BadStore(
                        f"Migration {migration.number} of the catalogue {self.name} was changed after it was applied here. "
                        f"Write a new one instead{or_rebuild}"
                    )
                continue
            self._apply_migration(migration)

    def _apply_migration(self, migration: CatalogueMigration) -> None:
        before = self._connection.list_tables()
        for statement in split_statements(migration.text):
            self._connection.run(statement, {}, 0)
        if foreign := [t for t in sorted(self._connection.list_tables() ^ before) if not t.startswith(f"{self.name}_")]:
            raise BadStore(
                f"Migration {migration.number} of {self.name} touches the table {foreign[0]}; "
                f"the names of its tables must begin with {self.name}_."
            )
        self._run_for_catalogue(
            "insert into index_migration (catalogue, number, title, digest) values (:catalogue, :number, :title, :digest)",
            number=migration.number,
            title=migration.title,
            digest=migration.digest,
        )


def is_durable(catalogue: Catalogue) -> bool:
    """Whether a catalogue is declared durable; raises BadStore for one that is neither durable nor can be rebuilt."""
    durable = bool(getattr(catalogue, "durable", False))
    can_be_rebuilt = hasattr(catalogue, "clear") and hasattr(catalogue, "enter")
    if durable == can_be_rebuilt:
        both = "is durable and has `clear` and `enter`, which would rebuild it" if durable else "is neither"
        raise BadStore(
            f"The catalogue {catalogue.name} {both}: declare `durable = True`, or the methods `clear` and `enter`."
        )
    return durable
