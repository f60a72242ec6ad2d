"""URLs as settings: files of SQLite, and how a URL is shown."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

# What a PostgreSQL URL may say otherwise: a server that does not answer is given up before a worker's session is.
POSTGRES_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def sqlite_url(path: Path) -> str:
    """Three slashes and a path: an absolute one makes four."""
    return "sqlite:///" + quote(path.absolute().as_posix())


def sqlite_path(url: str) -> Path | None:
    """The file that a sqlite URL names; None for other URLs and for a database in memory."""
    parts = urlsplit(url)
    return Path(unquote(parts.path[1:])) if parts.scheme == "sqlite" and not parts.netloc and parts.path[1:] else None


def anchored(url: str, folder: Path) -> str:
    """A sqlite URL with a relative path, made absolute."""
    path = sqlite_path(url)
    return url if path is None or path.is_absolute() else sqlite_url(folder / path)


def masked(value: str) -> str:
    """A URL without its password, as it may be shown and logged."""
    start, account = re.match(r"([\w+.-]+://)?((?:[^/?#]*@)?)", value, re.ASCII).groups()  # type: ignore[union-attr]  # it matches always
    if not start:
        return value
    user, colon, _ = account.partition(":")
    rest = re.sub(
        r"(?i)([?&][\w-]*(?:password|secret|key|token|signature))=[^&#]*", r"\1=***", value[len(start) + len(account) :]
    )
    return f"{start}{f'{user}:***@' if colon else account}{rest}"
