"""URLs as settings: files of SQLite, and the time-outs of PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

# Defaults that a PostgreSQL URL may override. A server that does not answer is given up before a worker's session expires.
POSTGRES_TIMEOUTS = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def sqlite_url(path: Path) -> str:
    """Three slashes and the path: an absolute path makes four."""
    return "sqlite:///" + quote(path.absolute().as_posix())


def sqlite_path(url: str) -> Path | None:
    """The file that a sqlite URL names; None for other URLs and for a database in memory."""
    parts = urlsplit(url)
    return Path(unquote(parts.path[1:])) if parts.scheme == "sqlite" and not parts.netloc and parts.path[1:] else None


def make_absolute(url: str, folder: Path) -> str:
    """A sqlite URL with a relative path, made absolute."""
    path = sqlite_path(url)
    return url if path is None or path.is_absolute() else sqlite_url(folder / path)
