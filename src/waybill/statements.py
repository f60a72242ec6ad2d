"""Named SQL statements, read from the .sql files that lie beside a driver.

A file is a list of statements, each headed by its name and, above its first line, the comment that says what it is for
and why it is so:

    -- name: take
    -- Only one writer at a time on SQLite, so a claim needs no lock.
    update record set session = ? where ...

Lines before the first name are the file's own head comment. A statement may end in ";" or not.
"""

from __future__ import annotations

import re
from importlib import resources

_HEAD = re.compile(r"^-- name: *([a-z_][a-z0-9_]*) *$", re.MULTILINE)


def load(package: str, name: str) -> dict[str, str]:
    """The statements of the file `name` in `package`, by their names; comments stay in, for whoever reads the
    server's log.
    """
    return parse(resources.files(package).joinpath(name).read_text("utf-8"), name)


def parse(text: str, name: str = "this text") -> dict[str, str]:
    """The statements of `text`, by their names; ValueError for a name given twice or a name without a statement."""
    pieces = _HEAD.split(text)  # [head comment, name, body, name, body, ...]
    statements: dict[str, str] = {}
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if title in statements:
            raise ValueError(f"{name} has two statements named {title}")
        statement = body.strip().removesuffix(";").rstrip()
        if not any(line.strip() and not line.lstrip().startswith("--") for line in statement.splitlines()):
            raise ValueError(f"{name} names {title} and gives no statement")
        statements[title] = statement
    return statements
