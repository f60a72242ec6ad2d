"""The life of a process that serves or works, once it is built:

    tune the process -> start the parts -> `on_start` -> wait for a signal, a caller or an error -> stop in order

SIGTERM and SIGINT end it cleanly: no new claims, running steps end or give up at a safe point, requests are answered,
the session is closed, and so is what applications have opened. A second signal ends it at once. Nothing makes the end
take longer than STOP_TIMEOUT.

A server on a SQLite file opens a session (`ServerSession`), so that no other host works or serves there meanwhile.
`configure_logging` sets up the log: lines for people, or JSON for programs, on stderr.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from waybill.config import LogSettings
from waybill.environment import Environment
from waybill.record import SERVER_ABOUT, CommitOutcomeUnknown, Store, StoreUnavailable
from waybill.runtime.listening_server import ListeningServer
from waybill.runtime.signals import StopSignals
from waybill.runtime.worker_processes import WorkerProcesses

if TYPE_CHECKING:
    from waybill.worker import Worker

STOP_TIMEOUT = 60.0  # seconds from the signal to the exit; steps have half of them
EXIT_FAILED = 1  # the exit code of a process that had to be ended
MAX_OPEN_FILES = 65_536
GC_THRESHOLD = 20_000  # allocations between two runs of the garbage collector
log = logging.getLogger("waybill")


class ProcessPart(Protocol):
    def run(self) -> None: ...

    def stop(self) -> None:
        """May be called from any thread; `run` returns soon after."""


def run_until_stopped(
    environment: Environment,
    signals: StopSignals,
    *,
    server: ListeningServer | None = None,
    worker: Worker | None = None,
    worker_processes: WorkerProcesses | None = None,
    server_session: ServerSession | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> bool:
    """Run until a signal or a caller stops it, or until a part ends by itself, which is an error: raises that of the
    part. Return whether it was asked to stop. `on_start` is called when all parts have started.
    """
    tune_process()
    other_threads = set(threading.enumerate())
    with signals:
        parts = _PartThreads(signals)
        own_errors: list[BaseException] = []  # of the main thread; they may only follow from the end of a part
        try:
            if server is not None:
                parts.start(server, "server")
                server.ready.wait()
            if not parts.errors:
                for part, name in (
                    (worker, "worker"),
                    (worker_processes, "worker-processes"),
                    (server_session, "server-session"),
                ):
                    if part is not None:
                        parts.start(part, name)
                on_start()
                signals.wait()
        # raised below, once the parts have ended: nothing could stop them any more
        except BaseException as error:  # noqa: BLE001
            own_errors.append(error)
        deadline = time.monotonic() + STOP_TIMEOUT
        with _exit_after(STOP_TIMEOUT, worker_processes):
            parts.stop()
            log.info("stopping")
            parts.join()
            errors = [*parts.errors, *own_errors]
            if not _wait_for_threads(set(threading.enumerate()) - other_threads, deadline - 1):
                log.warning("a request or a step has not ended after %.0f s: exiting", STOP_TIMEOUT)
                logging.shutdown()
                os._exit(0 if signals.is_stop_requested and not errors else EXIT_FAILED)
            _close_environment(environment)
        if errors:
            raise errors[0]
        return signals.is_stop_requested


class _PartThreads:
    def __init__(self, signals: StopSignals) -> None:
        self.errors: list[BaseException] = []
        self._signals = signals
        self._running: list[tuple[ProcessPart, threading.Thread]] = []

    def start(self, part: ProcessPart, name: str) -> None:
        def run_part() -> None:
            try:
                part.run()
            except BaseException as error:  # noqa: BLE001 - raised by the main thread, which ends the process
                self.errors.append(error)
            finally:
                self._signals.wake()

        thread = threading.Thread(target=run_part, name=name)
        thread.start()
        self._running.append((part, thread))

    def stop(self) -> None:
        for part, _ in self._running:
            part.stop()

    def join(self) -> None:
        for _, thread in self._running:
            thread.join()


@contextmanager
def _exit_after(seconds: float, worker_processes: WorkerProcesses | None) -> Iterator[None]:
    """Exit the process when the block takes longer: a thread that waits for an answer cannot be ended otherwise."""
    is_over = threading.Event()

    def exit_when_late() -> None:
        if is_over.wait(seconds):
            return
        if worker_processes is not None:
            worker_processes.kill()
        # in a thread of its own: the reader of the log may have stopped reading
        logging_thread = threading.Thread(target=log_late_exit, daemon=True)
        logging_thread.start()
        logging_thread.join(1)
        os._exit(EXIT_FAILED)

    def log_late_exit() -> None:
        log.error("still waiting for the store or a request after %.0f s: exiting; claims are left to expire", seconds)
        logging.shutdown()

    threading.Thread(target=exit_when_late, name="exit-timer", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _wait_for_threads(threads: set[threading.Thread], deadline: float) -> bool:
    """Whether all of them have ended in time. A request that was given up still has its thread, and Python would wait
    for it forever.
    """
    for thread in threads:
        if not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() and not thread.daemon for thread in threads)


def _close_environment(environment: Environment) -> None:
    """Close what applications have opened: an index on SQLite moves its WAL into its file."""
    try:
        environment.close()
    except Exception as error:  # noqa: BLE001 - a step that was given up may still use it; it ends with the process
        log.warning("not everything could be closed: %s", error)


def tune_process() -> None:
    raise_file_limit()
    # A worker holds hundreds of records at once, and they are freed without the collector: to traverse them all after
    # every 700 new ones costs a tenth of a worker's time on ZooKeeper. Dead reference cycles are still found, a little
    # later.
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard one: many systems start with 1,024, and a thousand clients may
    listen to changes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# --- the session of a server


class ServerSession:
    """Opens its session at creation; `run` renews it until `stop`."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._ttl = environment.config.work.ttl
        self._stop_event = threading.Event()
        with closing(environment.open_store()) as store:
            self._session = self._open_session(store)

    def _open_session(self, store: Store) -> str:
        return store.open_session(host=self._environment.host, ttl=self._ttl, about=SERVER_ABOUT)

    def run(self) -> None:
        """Raises BadStore when the machine was suspended and another host has taken the file meanwhile."""
        with closing(self._environment.open_store()) as store:
            while not self._stop_event.wait(self._ttl / 3):
                try:
                    if not store.renew_session(self._session).alive:
                        self._session = self._open_session(store)
                # a full or failing disk, or a busy file: it is tried again
                except (StoreUnavailable, CommitOutcomeUnknown) as error:
                    log.warning("the session of this server cannot be renewed: %s", error)
            try:
                store.close_session(self._session)
            except (StoreUnavailable, CommitOutcomeUnknown) as error:  # it expires by itself
                log.warning("the session of this server cannot be closed: %s", error)

    def stop(self) -> None:
        self._stop_event.set()


# --- the log

_STANDARD_FIELDS = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


def extra_fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The `extra` fields of a log call: kind, id, state, claim."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


def _escape_unprintable(text: str) -> str:
    """Keep one entry on one line: no text can add a line to the log, or colours to a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class JsonLogFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= extra_fields_of(record)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class TextLogFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        extra = " ".join(f"{name}={value}" for name, value in extra_fields_of(record).items())
        line = _escape_unprintable(
            f"{at} {record.levelname.lower():7} {record.getMessage()}{'  ' + extra if extra else ''}"
        )
        if record.exc_info and record.levelno >= logging.WARNING:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure_logging(settings: LogSettings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLogFormatter() if settings.format == "json" else TextLogFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    for noisy in ("uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING if settings.level != "debug" else logging.DEBUG)
    # It warns of every attempt to reach ZooKeeper, several a second; whoever needs the store logs once that it is
    # unavailable.
    logging.getLogger("kazoo").setLevel(logging.ERROR if settings.level != "debug" else logging.DEBUG)
    # It logs whole URLs, and the URL of a payload may hold a signature that lets anyone fetch it.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
