"""Manta's official clients, installed from their registries as they are: the npm package and the Python package `manta`.

What is installed is pinned with the hashes of its files, in package-lock.json and requirements.txt. Nothing of it is
kept: a run of the suite installs it once, for all its workers.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.apps.compute.compute_server import ComputeServer
from waybill import config
from waybill.accounts import OWN, Grant, add_key, create_user, find_account
from waybill.engine import Engine
from waybill.environment import Environment

HERE = Path(__file__).parent
PATIENCE = 120.0


class Finished(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def _install_once(tmp_path_factory: pytest.TempPathFactory, name: str, install: Callable[[Path], None]) -> Path:
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / f"manta-{name}"
    with (shared / f"manta-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            install(folder)
            (folder / "installed").touch()
    return folder


def install_node_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands."""

    def install(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(words, cwd=folder, check=True, timeout=PATIENCE)

    return _install_once(tmp_path_factory, "node", install) / "node_modules" / "manta" / "bin"


def install_python_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder to import from; its commands are in `bin`."""

    def install(folder: Path) -> None:
        words = ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--no-warn-script-location"]
        words += ["--target", str(folder), "-r", str(HERE / "requirements.txt")]
        subprocess.run([sys.executable, *words], check=True, timeout=PATIENCE)

    return _install_once(tmp_path_factory, "python", install)


def add_user_key(server: ComputeServer, user: str, line: str) -> None:
    """A key for a user, who is made when there is none of this name yet."""
    given = {"data": server.data, "store": server.store or None}
    environment = Environment.from_config(config.load(env={}, overrides=given))
    with closing(environment.open_store()) as store:
        engine = Engine(store, environment.machines)
        if find_account(store, "user", user) is None:
            create_user(engine, user, roles=[Grant("submitter", OWN)], who="test")
        add_key(engine, user, line, who="test")
    environment.close()


class ClientUser:
    """Somebody with a home of its own who runs the commands of the clients; with a key, every request is signed."""

    def __init__(self, server: ComputeServer, home: Path, commands: list[Path], account: str = "alice") -> None:
        self.server, self.home, self.account = server, home, account
        home.mkdir(exist_ok=True)
        self.environment = {
            "PATH": os.pathsep.join([*map(str, commands), os.environ["PATH"]]),
            "HOME": str(home),
            "MANTA_URL": server.url,
            "MANTA_USER": account,
            "MANTA_NO_AUTH": "true",
        }

    def make_key(self, kind: str, *options: str) -> None:
        """A key with which this user signs from now on."""
        folder = self.home / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        file = folder / f"id_{kind}"
        words = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", self.account, "-f", str(file), *options]
        subprocess.run(words, check=True, timeout=PATIENCE)
        add_user_key(self.server, self.account, file.with_suffix(".pub").read_text())
        shown = subprocess.run(["ssh-keygen", "-l", "-E", "md5", "-f", str(file)], check=True, capture_output=True)
        self.environment["MANTA_KEY_ID"] = shown.stdout.split()[1].decode()
        self.environment.pop("MANTA_NO_AUTH", None)

    def run(self, *words: str, text: str = "", code: int | None = 0, more: Mapping[str, str] | None = None) -> Finished:
        done = subprocess.run(
            words, input=text, capture_output=True, text=True, timeout=PATIENCE, cwd=self.home,
            env={**self.environment, **(more or {})},
        )  # fmt: skip
        finished = Finished(done.returncode, done.stdout, done.stderr)
        assert code is None or finished.code == code, (words, finished)
        return finished
