"""Named SQL statements, read from the .sql files beside a driver.

A file is a list of statements, each with its name and a comment that says what it is for and why:

    -- name: claim_one
    -- Only one writer at a time on SQLite, so a claim needs no lock.
    update record set session = ? where ...

Lines before the first name are the head comment of the file. A statement may end in ";" or not.
"""

from __future__ import annotations

import re
from importlib import resources

_NAME_LINE = re.compile(r"^-- name: *([a-z_][a-z0-9_]*) *$", re.MULTILINE)


def load_statements(package: str, name: str) -> dict[str, str]:
    """Return the statements of the file `name` in `package` by name; comments stay in, for readers of the server's log."""
    return parse_statements(resources.files(package).joinpath(name).read_text("utf-8"), name)


def parse_statements(text: str, name: str = "this text") -> dict[str, str]:
    """Return the statements of `text` by name. Raises ValueError for a name given twice or without a statement."""
    pieces = _NAME_LINE.split(text)  # [head comment, name, body, name, body, ...]
    statements: dict[str, str] = {}
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if title in statements:
            raise ValueError(f"{name} has two statements named {title}")
        statement = body.strip().removesuffix(";").rstrip()
        if not any(line.strip() and not line.lstrip().startswith("--") for line in statement.splitlines()):
            raise ValueError(f"{name} names {title} and gives no statement")
        statements[title] = statement
    return statements
