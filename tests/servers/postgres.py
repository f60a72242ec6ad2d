"""A PostgreSQL server for tests: Debian's binaries, one cluster, a unix socket, one database a test.

    with PostgresServer() as server:
        url = server.create_database()

Commits are durable (fsync and synchronous_commit are on) unless `fast=True`, for tests in which no machine loses its
power. Killing the processes loses nothing in either case: what was written is with the kernel.
"""

import itertools
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql

from tests.servers.accounts import unprivileged
from tests.servers.process import NotInstalled, Process, ServerFailed, wait_until
from tests.servers.server import Server

_PACKAGES = "postgresql"


def binaries() -> Path:
    """The folder of the newest installed PostgreSQL's programs."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not found:
        raise NotInstalled("PostgreSQL", _PACKAGES)
    return max(found, key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)])


class PostgresServer(Server):
    def __init__(self, *, fast: bool = False, settings: Mapping[str, str] | None = None) -> None:
        """`settings` go to the server as `-c name=value` and win over the ones chosen here."""
        self._binaries = binaries()
        self._account = unprivileged()
        super().__init__(owner=self._account)
        self._numbers = itertools.count(1)
        chosen = {
            "listen_addresses": "",  # the socket in the folder is the only way in
            "unix_socket_directories": str(self._folder),
            "max_connections": "200",
            "shared_buffers": "64MB",
            "timezone": "UTC",
            "fsync": "off" if fast else "on",
            "synchronous_commit": "off" if fast else "on",
            "full_page_writes": "off" if fast else "on",
            **(settings or {}),
        }
        self._process = Process(
            "postgres",
            [
                str(self._binaries / "postgres"),
                "-D",
                str(self._data),
                *(f"--{name}={value}" for name, value in chosen.items()),
            ],
            folder=self._folder,
            ready=self._answers,
            stop_signal=signal.SIGINT,  # "fast": sessions are cut off, a checkpoint is written
            orphan_signal=signal.SIGQUIT,  # "immediate": it takes its children and its shared memory with it
            account=self._account,
        )

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def start(self) -> None:
        if not self._data.exists():
            self._initialise()
        self._process.start()

    def stop(self) -> None:
        self._process.stop()

    def restart(self, *, immediate: bool) -> None:
        """Stop and start; `immediate` cuts everything off without a checkpoint, so that the start is a recovery."""
        self._process.stop(how=signal.SIGQUIT if immediate else signal.SIGINT)
        self._process.start()

    def kill(self) -> None:
        """SIGKILL the server and all its children at once, as when a machine goes away. `start` brings it back."""
        # else it takes the death of its children for a crash, and starts others, which outlive it
        self._process.pause()
        wait_until(lambda: _state(self._process.pid) == "T", "PostgreSQL to stand still")
        family = [self._process.pid, *_children(self._process.pid)]
        for pid in family[1:]:
            _signal(pid, signal.SIGKILL)
        self._process.kill()
        wait_until(lambda: not any(alive(pid) for pid in family), "the killed PostgreSQL's children to end")

    def url(self, dbname: str = "postgres") -> str:
        return f"postgresql://postgres@/{quote(dbname)}?host={quote(str(self._folder), safe='')}"

    def create_database(self, collation: str = "") -> str:
        """A new, empty database; its URL. `collation`: how it orders text, "C" or one of ICU, such as en-US-x-icu."""
        name = f"waybill_{next(self._numbers)}"
        ordered: sql.Composable = sql.SQL("")
        if collation.endswith("-x-icu"):
            locale = sql.Literal(collation.removesuffix("-x-icu"))
            ordered = sql.SQL(" TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE {} ENCODING 'UTF8'").format(locale)
        elif collation:
            ordered = sql.SQL(" TEMPLATE template0 LC_COLLATE {} ENCODING 'UTF8'").format(sql.Literal(collation))
        self._execute(sql.SQL("CREATE DATABASE {}{}").format(sql.Identifier(name), ordered))
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Remove it, whoever is still connected."""
        name = urlsplit(url).path.removeprefix("/")
        self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def _initialise(self) -> None:
        # --no-sync: nothing worth keeping is in it yet.
        arguments = [
            "-U",
            "postgres",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "--no-instructions",
        ]
        account = self._account
        done = subprocess.run(
            [str(self._binaries / "initdb"), "-D", str(self._data), *arguments],
            capture_output=True,
            text=True,
            cwd=self._folder,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
        if done.returncode != 0:
            raise ServerFailed(f"initdb ended with code {done.returncode}:\n{done.stdout}{done.stderr}")

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url(), connect_timeout=5):
                return True
        except psycopg.OperationalError:
            return False


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def alive(pid: int) -> bool:
    """A zombie is dead: only its parent has not looked yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
