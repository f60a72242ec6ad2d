"""The life of a process that serves or works, once it is put together:

    start -> say where -> until a signal or a fault -> stop in order

SIGTERM and SIGINT end it cleanly: no new claims, running steps end or give up at a safe point, requests are answered,
the session is closed, and what applications have opened. A second signal does not wait. Nothing makes the end take
longer than `PATIENCE`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from waybill.cli.attending import Attendance
from waybill.cli.desk import Desk
from waybill.cli.limits import settle_in
from waybill.cli.problems import FAILED
from waybill.cli.processes import Processes
from waybill.cli.site import Site
from waybill.cli.summons import Summons

if TYPE_CHECKING:
    from waybill.worker import Worker

PATIENCE = 60.0  # seconds from the signal to the end: steps have half of them
log = logging.getLogger("waybill")


class Part(Protocol):
    def run(self) -> None: ...

    def stop(self) -> None:
        """From any thread; `run` returns soon after."""


def until_stopped(
    desk: Desk,
    *,
    site: Site | None = None,
    worker: Worker | None = None,
    others: Processes | None = None,
    attendance: Attendance | None = None,
) -> int:
    """Run until a signal, or until a part ends by itself, which is a fault."""
    settle_in()
    strangers = set(threading.enumerate())
    with Summons() as summons:
        parts = _Parts(summons)
        own: list[BaseException] = []  # what the main thread met; it may be only that a part was gone
        try:
            if site is not None:
                parts.start(site, "server")
                site.ready.wait()
            if not parts.faults:
                for part, name in ((worker, "worker"), (others, "processes"), (attendance, "attendance")):
                    if part is not None:
                        parts.start(part, name)
                _say_where(desk, site)
                summons.wait()
        # raised below, once the parts have ended: nobody could stop them any more
        except BaseException as error:  # noqa: BLE001
            own.append(error)
        leave = time.monotonic() + PATIENCE
        with _leaving_after(PATIENCE, others):
            parts.stop()
            log.info("stopping")
            parts.join()
            faults = [*parts.faults, *own]
            if not _wait_for(set(threading.enumerate()) - strangers, leave - 1):
                log.warning("a request or a step has not ended after %.0f s: leaving", PATIENCE)
                logging.shutdown()
                os._exit(0 if summons.is_asked and not faults else FAILED)
            _close(desk)
        if faults:
            raise faults[0]
        return 0 if summons.is_asked else FAILED


class _Parts:
    def __init__(self, summons: Summons) -> None:
        self.faults: list[BaseException] = []
        self._summons = summons
        self._running: list[tuple[Part, threading.Thread]] = []

    def start(self, part: Part, name: str) -> None:
        def guarded() -> None:
            try:
                part.run()
            except BaseException as error:  # noqa: BLE001 - said by the main thread, which ends the process
                self.faults.append(error)
            finally:
                self._summons.tell()

        thread = threading.Thread(target=guarded, name=name)
        thread.start()
        self._running.append((part, thread))

    def stop(self) -> None:
        for part, _ in self._running:
            part.stop()

    def join(self) -> None:
        for _, thread in self._running:
            thread.join()


@contextmanager
def _leaving_after(seconds: float, others: Processes | None) -> Iterator[None]:
    """What takes longer ends the process: a thread that waits for an answer cannot be ended otherwise."""
    over = threading.Event()

    def watch() -> None:
        if over.wait(seconds):
            return
        if others is not None:
            others.kill()
        told = threading.Thread(target=tell, daemon=True)  # whoever reads the log may have stopped reading
        told.start()
        told.join(1)
        os._exit(FAILED)

    def tell() -> None:
        log.error("still waiting for the store or a request after %.0f s: leaving; claims are left to expire", seconds)
        logging.shutdown()

    threading.Thread(target=watch, name="leaving", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _wait_for(threads: set[threading.Thread], until: float) -> bool:
    """Whether all of them have ended in time.

    A request that was given up still has its thread, and Python would wait for it for ever.
    """
    for thread in threads:
        if not thread.daemon:
            thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() and not thread.daemon for thread in threads)


def _close(desk: Desk) -> None:
    """What applications have opened: an index on SQLite goes out of its WAL into its file."""
    try:
        desk.depot.close()
    except Exception as error:  # noqa: BLE001 - a step that was given up may still use it; it ends with the process
        log.warning("not all could be closed: %s", error)


def _say_where(desk: Desk, site: Site | None) -> None:
    if site is None:
        return desk.note(f"Working as {desk.config.work.host}.")
    if desk.as_json:
        return desk.print_json(
            {"url": site.url, "token_file": str(site.token_file) if site.token_file else None}, line=True
        )
    desk.out.print(site.url)
    if site.token_file is not None:
        desk.note(f"The admin token is in {site.token_file}")
    return None
