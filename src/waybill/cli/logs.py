"""How a process logs: lines for people, or JSON for machines, on stderr."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import msgspec

from waybill.config import Log

_PLAIN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What was said beside the message: kind, id, state, attempt."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


def _printable(text: str) -> str:
    """One line, whatever it holds: nobody can write a second one into the log, or colours into a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= fields(record)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        beside = " ".join(f"{name}={value}" for name, value in fields(record).items())
        line = _printable(f"{at} {record.levelname.lower():7} {record.getMessage()}{'  ' + beside if beside else ''}")
        if record.exc_info and record.levelno >= logging.WARNING:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up(log: Log) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if log.format == "json" else Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(log.level.upper())
    for noisy in ("uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING if log.level != "debug" else logging.DEBUG)
    # It warns of each try to reach ZooKeeper, several a second; that the store is away is said once, by whoever needs
    # it.
    logging.getLogger("kazoo").setLevel(logging.ERROR if log.level != "debug" else logging.DEBUG)
    # It names whole URLs, and the URL of a payload may hold a signature that lets everybody fetch it.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
