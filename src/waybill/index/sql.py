"""A catalogue's SQL files, read for one of the two databases.

A text is cut into tokens once, so that neither a quoted string, a comment nor a cast (`::text`) is taken for a
parameter or an end.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal

from waybill import statements
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
_MIGRATION = re.compile(r"(?P<number>\d{4})_(?P<words>[a-z0-9_]+?)(?:\.(?P<dialect>sqlite|postgres))?\.sql")


@dataclass(frozen=True)
class Migration:
    number: int
    words: str
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def for_psycopg(statement: str) -> str:
    """`:name` as psycopg writes it."""

    def translate(token: re.Match[str]) -> str:
        if token["name"]:
            return f"%({token['name']})s"
        return token[0].replace("%", "%%")

    return _TOKEN.sub(translate, statement)


def split(text: str) -> Iterator[str]:
    """The single statements of a migration."""
    start = 0
    for token in _TOKEN.finditer(text):
        if token["end"]:
            yield from _whole(text[start : token.start()])
            start = token.end()
    yield from _whole(text[start:])


def _whole(piece: str) -> Iterator[str]:
    if _TOKEN.sub(lambda token: "" if token["comment"] else token[0], piece).strip():
        yield piece.strip()


def named(package: str, dialect: Dialect) -> dict[str, str]:
    """The statements of a catalogue by their names; the dialect's own file wins."""
    folder = resources.files(package)
    found: dict[str, str] = {}
    for name in ("statements.sql", f"statements.{dialect}.sql"):
        if folder.joinpath(name).is_file():
            found |= statements.load(package, name)
    return found


def migrations(package: str, dialect: Dialect) -> list[Migration]:
    """The migrations of a catalogue for one database, in order, numbered 1, 2, 3 without a gap."""
    chosen: dict[int, tuple[bool, Migration]] = {}
    for file in _files(resources.files(package).joinpath("migrations")):
        match = _MIGRATION.fullmatch(file.name)
        if match is None:
            raise BadStore(
                f"{package}: {file.name} is no name for a migration; write 0001_words.sql or 0001_words.{dialect}.sql."
            )
        if match["dialect"] not in (None, dialect):
            continue
        number, own = int(match["number"]), match["dialect"] is not None
        if number in chosen and chosen[number][0] == own:
            raise BadStore(f"{package}: two migrations have the number {number}.")
        if number not in chosen or own:
            chosen[number] = own, Migration(number, match["words"], file.read_text("utf-8"))
    if sorted(chosen) != list(range(1, len(chosen) + 1)):
        raise BadStore(
            f"{package}: the migrations for {dialect} are numbered {sorted(chosen)}; they must be 1, 2, 3 without a gap."
        )
    return [chosen[number][1] for number in sorted(chosen)]


def _files(folder: Traversable) -> list[Traversable]:
    return sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
