"""What both databases do alike: a catalogue's tables are made and upgraded, statements are found by name, rows are
counted.

A dialect brings a few verbs (`Connection`); everything else is here, once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from waybill.index import MOST_ROWS, Catalogue, Row, TooMany
from waybill.index.sql import Dialect, Migration, migrations, named, split
from waybill.record import BadStore

# What is known of each catalogue. The same text on both databases.
BOOK = (
    "create table if not exists index_migration (catalogue text not null, number integer not null, words text not null, "
    "digest text not null, primary key (catalogue, number))",
    "create table if not exists index_state (catalogue text not null primary key, state text not null)",
)


class Connection(Protocol):
    """One connection. `run` takes `:name` parameters; `tables` are those that a catalogue may have made."""

    dialect: Dialect

    def run(self, statement: str, values: dict[str, Any], most: int) -> tuple[list[Row], int]:
        """At most `most` rows and one more if there are more, and how many rows were changed."""

    def run_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> int:
        """The same for many values, none of which answers rows; how many rows were changed."""

    def begin(self) -> AbstractContextManager[None]:
        """A transaction that may write; raises what the dialect maps to Unavailable or Unknown."""

    def lock(self, name: str) -> None:
        """Inside a transaction: until its end nobody else passes here with the same name."""

    def tables(self) -> set[str]: ...


class TableShelf:
    """The tables of one catalogue on one connection."""

    def __init__(self, connection: Connection, catalogue: Catalogue[Any]) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]*", catalogue.name) or catalogue.name == "index":
            raise BadStore(f"{catalogue.name!r} is no name for a catalogue; it is made of small letters and digits.")
        self.name = catalogue.name
        self._connection = connection
        self._statements = named(catalogue.package, connection.dialect)
        self._depth = 0
        self._migrate(migrations(catalogue.package, connection.dialect))

    def execute(self, statement: str, **values: Any) -> int:
        with self.transaction():
            return self._connection.run(self._find(statement), values, 0)[1]

    def execute_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> int:
        with self.transaction():
            return self._connection.run_all(self._find(statement), rows)

    def query(self, statement: str, *, most: int = MOST_ROWS, **values: Any) -> list[Row]:
        if not 0 < most <= MOST_ROWS:
            raise ValueError(f"A query answers 1 to {MOST_ROWS} rows, not {most}.")
        rows, _ = self._connection.run(self._find(statement), values, most)
        if len(rows) > most:
            raise TooMany(f"{self.name}: {statement} found more than {most} rows. Ask for less, or page through them.")
        return rows

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

    def state(self) -> str:
        rows, _ = self._connection.run(
            "select state from index_state where catalogue = :catalogue", {"catalogue": self.name}, 1
        )
        return str(rows[0]["state"]) if rows else "ready"

    def set_state(self, state: str) -> None:
        with self.transaction():
            self._run(
                "insert into index_state (catalogue, state) values (:catalogue, :state) "
                "on conflict (catalogue) do update set state = excluded.state",
                state=state,
            )

    def drop(self) -> None:
        with self.transaction():
            self._connection.lock(self.name)
            for table in sorted(self._connection.tables()):
                if table.startswith(f"{self.name}_"):
                    self._connection.run(f'drop table "{table}"', {}, 0)
            self._run("delete from index_migration where catalogue = :catalogue")
            self._run("delete from index_state where catalogue = :catalogue")

    def _find(self, statement: str) -> str:
        if statement not in self._statements:
            there = ", ".join(sorted(self._statements)) or "none"
            raise LookupError(f"The catalogue {self.name} has no statement {statement}; it has {there}.")
        return self._statements[statement]

    def _run(self, statement: str, **values: Any) -> list[Row]:
        return self._connection.run(statement, {"catalogue": self.name, **values}, MOST_ROWS)[0]

    def _migrate(self, wanted: list[Migration]) -> None:
        """Under a lock: see which migrations were run, that they are the ones of the files, and run the rest."""
        with self.transaction():
            self._connection.lock(self.name)
            done = {
                row["number"]: row for row in self._run("select * from index_migration where catalogue = :catalogue")
            }
            if done and max(done) > len(wanted):
                raise BadStore(
                    f"The catalogue {self.name} is of version {max(done)}, newer than this program knows ({len(wanted)}). "
                    "Use the newer program, or remove the catalogue and rebuild it."
                )
            for migration in wanted:
                if migration.number in done:
                    if done[migration.number]["digest"] != migration.digest:
                        raise BadStore(
                            f"Migration {migration.number} of the catalogue {self.name} was changed after it was run here. "
                            "Write a new one instead, or remove the catalogue and rebuild it."
                        )
                    continue
                self._apply(migration)

    def _apply(self, migration: Migration) -> None:
        before = self._connection.tables()
        for statement in split(migration.text):
            self._connection.run(statement, {}, 0)
        if foreign := [t for t in sorted(self._connection.tables() ^ before) if not t.startswith(f"{self.name}_")]:
            raise BadStore(
                f"Migration {migration.number} of {self.name} touches the table {foreign[0]}; a catalogue's tables begin with {self.name}_."
            )
        self._run(
            "insert into index_migration (catalogue, number, words, digest) values (:catalogue, :number, :words, :digest)",
            number=migration.number,
            words=migration.words,
            digest=migration.digest,
        )
