"""Reads a catalogue's SQL files for one of the two databases.

A text is split into tokens, so that a quoted string, a comment or a cast (`::text`) is not taken for a parameter or for
the end of a statement. The statements of a trigger of SQLite belong to it, up to its `end`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal

from waybill import sql_statements
from waybill.record import BadStore

Dialect = Literal["sqlite", "postgres"]

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
      | (?P<cast>::)
      | :(?P<name>[a-z_][a-z0-9_]*)
      | (?P<end>;)
      | (?P<percent>%)""",
    re.VERBOSE | re.DOTALL,
)
_TRIGGER_BODY = re.compile(r"\s*create\s+(temp(orary)?\s+)?trigger\b.*\bbegin\b", re.IGNORECASE | re.DOTALL)
_TRIGGER_END = re.compile(r";\s*end\s*\Z", re.IGNORECASE)
_MIGRATION = re.compile(r"(?P<number>\d{4})_(?P<title>[a-z0-9_]+?)(?:\.(?P<dialect>sqlite|postgres))?\.sql")


@dataclass(frozen=True)
class CatalogueMigration:
    number: int
    title: str
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def to_psycopg(statement: str) -> str:
    """The statement with its `:name` parameters as psycopg writes them."""

    def translate(token: re.Match[str]) -> str:
        if token["name"]:
            return f"%({token['name']})s"
        return token[0].replace("%", "%%")

    return _TOKEN.sub(translate, statement)


def split_statements(text: str) -> Iterator[str]:
    """The statements of a migration."""
    start = 0
    for token in _TOKEN.finditer(text):
        if token["end"] and not _is_in_trigger(text[start : token.start()]):
            yield from _skip_empty(text[start : token.start()])
            start = token.end()
    yield from _skip_empty(text[start:])


def _is_in_trigger(piece: str) -> bool:
    """Whether this is the beginning of a trigger of SQLite, whose end is to come."""
    bare = _TOKEN.sub(lambda token: " " if token["comment"] or token["quoted"] else token[0], piece)
    return bool(_TRIGGER_BODY.match(bare)) and not _TRIGGER_END.search(bare)


def _skip_empty(piece: str) -> Iterator[str]:
    if _TOKEN.sub(lambda token: "" if token["comment"] else token[0], piece).strip():
        yield piece.strip()


def load_statements(package: str, dialect: Dialect) -> dict[str, str]:
    """The statements of a catalogue by their names; those of the dialect's own file replace the common ones."""
    folder = resources.files(package)
    found: dict[str, str] = {}
    for name in ("statements.sql", f"statements.{dialect}.sql"):
        if folder.joinpath(name).is_file():
            found |= sql_statements.load_statements(package, name)
    return found


def load_migrations(package: str, dialect: Dialect) -> list[CatalogueMigration]:
    """The migrations of a catalogue for one database, in order, numbered 1, 2, 3 without a gap."""
    chosen: dict[int, tuple[bool, CatalogueMigration]] = {}
    for file in _list_sql_files(resources.files(package).joinpath("migrations")):
        match = _MIGRATION.fullmatch(file.name)
        if match is None:
            raise BadStore(
                f"{package}: {file.name} is no name for a migration; write 0001_title.sql or 0001_title.{dialect}.sql."
            )
        if match["dialect"] not in (None, dialect):
            continue
        number, is_own = int(match["number"]), match["dialect"] is not None
        if number in chosen and chosen[number][0] == is_own:
            raise BadStore(f"{package}: two migrations have the number {number}.")
        if number not in chosen or is_own:
            chosen[number] = is_own, CatalogueMigration(number, match["title"], file.read_text("utf-8"))
    if sorted(chosen) != list(range(1, len(chosen) + 1)):
        raise BadStore(
            f"{package}: the migrations for {dialect} are numbered {sorted(chosen)}; they must be 1, 2, 3 without a gap."
        )
    return [chosen[number][1] for number in sorted(chosen)]


def _list_sql_files(folder: Traversable) -> list[Traversable]:
    return sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
