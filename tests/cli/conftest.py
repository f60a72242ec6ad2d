"""A command line to call: in this process, which is quick, or in one of its own, which can be signalled and killed."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from waybill.cli import invoke


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


Waybill = Callable[..., Result]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No settings of the user; the demonstration's machines and no others; wide lines."""
    monkeypatch.setenv("WAYBILL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("WAYBILL_DEMO", "yes")
    monkeypatch.setenv("WAYBILL_APPLICATIONS", ",")  # none: an empty variable says nothing
    monkeypatch.setenv("WAYBILL_LOG_LEVEL", "warning")
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    loggers = [
        logging.getLogger(name) for name in ("", "kazoo", "uvicorn.error", "uvicorn.access", "asyncio", "httpx2")
    ]
    handlers, levels = loggers[0].handlers[:], [each.level for each in loggers]
    yield
    # what a command sets up for its process, and the stream that it writes to, end with the test
    loggers[0].handlers[:] = handlers
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def bare(capsys: pytest.CaptureFixture[str]) -> Waybill:
    """Calls a command; no store is there yet."""

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = invoke([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def waybill(bare: Waybill) -> Waybill:
    """Calls a command; an empty store is there."""
    assert bare("migrate").code == 0
    return bare


@pytest.fixture(params=["sqlite", "postgres", "zookeeper"])
def anywhere(request: pytest.FixtureRequest, bare: Waybill, monkeypatch: pytest.MonkeyPatch) -> Waybill:
    """A command line on an empty store of each sort."""
    if request.param != "sqlite":
        fixture = "fast_postgres_url" if request.param == "postgres" else "zookeeper_url"
        monkeypatch.setenv("WAYBILL_STORE", request.getfixturevalue(fixture))
    assert bare("migrate").code == 0
    return bare


FILMS = """
from waybill.application import Application
from waybill.machine import Machine, end, work
from waybill.step import Done

FILM = Machine(
    name="film", plural="films", prefix="fi", description="A film.",
    states=(
        work("Load", to="Show", description="Fetch it.", leaves_files=True),
        work("Show", to="Shown", description="Show it.", on_host_lost="Load"),
        end("Shown", description="Seen."),
    ),
    steps=dict.fromkeys(("Load", "Show"), lambda record, ctx: Done()),
)
APP = Application("films", "Films.", machines=(FILM,))
"""


@pytest.fixture
def films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application whose first state leaves files on its host."""
    (tmp_path / "films.py").write_text(FILMS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "films:APP")


def submit_shipment(waybill: Waybill, parcels: int = 1) -> str:
    made = waybill("submit", "shipment", "--document", f'order={{"parcels": {parcels}}}', "--json")
    assert made.code == 0, made.err
    return str(made.json["id"])


def take_step(waybill: Waybill, queue: str) -> Any:
    """One due step of a queue, and its transition."""
    done = waybill("work", "--once", "--queue", queue, "--json")
    assert done.code == 0, done.err
    return done.json["transition"]


def address_of(line: str) -> str:
    """The address of the server in the line that `up` or `serve` prints; that of `up` is a link that signs in."""
    parts = urlsplit(line.strip())
    assert parts.scheme == "http", line
    assert parts.netloc, line
    return f"http://{parts.netloc}/"


class Running:
    """A command in a process of its own."""

    def __init__(
        self, *arguments: object, env: dict[str, str] | None = None, cwd: Path | None = None, under: Sequence[str] = ()
    ) -> None:
        """`under`: the command that starts it."""
        command = [*under, sys.executable, "-m", "waybill", *(str(argument) for argument in arguments)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, signal: int | None = None, timeout: float = 150) -> Result:
        if signal is not None:
            self.process.send_signal(signal)
        out, err = self.process.communicate(timeout=timeout)
        return Result(self.process.returncode, out, err)


Start = Callable[..., Running]


@pytest.fixture
def running() -> Iterator[Callable[..., Running]]:
    """Starts commands; what still runs at the end of the test is killed."""
    started: list[Running] = []

    def start(*arguments: object, **options: Any) -> Running:
        started.append(Running(*arguments, **options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()
