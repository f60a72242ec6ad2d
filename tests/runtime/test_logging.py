"""How the log is written."""

import logging
from collections.abc import Iterator

import pytest

from waybill.config import LogSettings
from waybill.runtime.server_processes import TextLogFormatter, configure_logging


def test_a_line_of_the_log_is_one_line_that_can_be_printed() -> None:
    record = logging.makeLogRecord(
        {"msg": "broken: %s", "args": ("a\nb\0c\x1b[31m\ud800 é",), "levelname": "INFO", "id": "x\ny"}
    )
    line = TextLogFormatter().format(record)
    assert line.endswith(r"info    broken: a\nb\x00c\x1b[31m\ud800 é  id=x\ny")


@pytest.fixture
def as_before() -> Iterator[None]:
    """What a process sets up once is undone."""
    root, names = logging.getLogger(), ("kazoo", "uvicorn.error", "uvicorn.access", "asyncio", "httpx2")
    handlers, level, levels = root.handlers[:], root.level, {name: logging.getLogger(name).level for name in names}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, was in levels.items():
        logging.getLogger(name).setLevel(was)


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize("level", ["info", "debug"])
def test_the_client_of_zookeeper_does_not_tell_of_each_try(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It tries several times a second, on each connection; the worker and the server say once that the store is
    away.
    """
    configure_logging(LogSettings(level, "text"))
    tries = logging.getLogger("kazoo.client")
    tries.warning("Connection dropped: socket connection error: Connection refused")
    tries.error("Unhandled exception in connection loop")
    logging.getLogger("waybill.worker").warning("the store is away")
    captured = capsys.readouterr().err
    assert ("Connection dropped" in captured) == (level == "debug")
    assert "Unhandled exception" in captured
    assert "the store is away" in captured
