"""The life of a process that serves or works, once it is put together:

    start -> say where -> until a signal or a fault -> stop in order

SIGTERM and SIGINT end it cleanly: no new claims, running steps end or give up at a safe point, requests are answered, the session is
closed, and what applications have opened. A second signal does not wait.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from waybill.cli.attending import Attendance
from waybill.cli.desk import Desk
from waybill.cli.problems import FAILED
from waybill.cli.processes import STOP, Processes
from waybill.cli.site import Site
from waybill.stores.stir import Stir

if TYPE_CHECKING:
    from waybill.worker import Worker

PATIENCE = 60.0  # seconds from the signal to the end: steps have half of them
log = logging.getLogger("waybill")


def until_stopped(
    desk: Desk, *, site: Site | None = None, worker: Worker | None = None, others: Processes | None = None,
    attendance: Attendance | None = None,
) -> int:  # fmt: skip
    """Run until a signal, or until a part ends by itself, which is a fault."""
    ended = Stir()  # by handlers too, the second of which may come while the first still wakes this thread
    faults: list[BaseException] = []

    def part(run: Callable[[], None], name: str) -> threading.Thread:
        def guarded() -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001 - said by the main thread, which ends the process
                faults.append(error)
            finally:
                ended.set()

        thread = threading.Thread(target=guarded, name=name)
        thread.start()
        return thread

    signals: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        if len(signals) > 1:
            os._exit(128 + number)  # asked twice: as after a crash, claims are left to expire, and other processes end with this one
        ended.set()

    told: list[int] = []

    def stop_with_parent(number: int, frame: FrameType | None) -> None:
        told.append(number)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(STOP, stop_with_parent)
    parts: list[threading.Thread] = []
    if site is not None:
        parts.append(part(site.run, "server"))
        site.ready.wait()
    if not faults:
        if worker is not None:
            parts.append(part(worker.run, "worker"))
        if others is not None:
            parts.append(part(others.run, "processes"))
        if attendance is not None:
            parts.append(part(attendance.run, "attendance"))
        _say_where(desk, site)
        ended.wait()
    log.info("stopping")
    if site is not None:
        site.stop()
    if worker is not None and len(parts) > (site is not None):
        worker.stop()
    if others is not None:
        others.stop()
    if attendance is not None:
        attendance.stop()
    leave = time.monotonic() + PATIENCE
    for thread in parts:
        thread.join(max(0.0, leave - time.monotonic()))
    if any(thread.is_alive() for thread in parts):
        log.error("still waiting for the store or a request after %.0f s: leaving; claims are left to expire", PATIENCE)
        if others is not None:
            others.kill()
        logging.shutdown()
        os._exit(FAILED)  # a thread that waits for an answer cannot be ended otherwise
    desk.depot.close()  # nobody uses it any more: an index on SQLite goes out of its WAL into its file
    if faults:
        raise faults[0]
    return 0 if signals or told else FAILED


def _say_where(desk: Desk, site: Site | None) -> None:
    if site is None:
        return desk.note(f"Working as {desk.config.work.host}.")
    if desk.as_json:
        return desk.print_json({"url": site.url, "token_file": str(site.token_file) if site.token_file else None}, line=True)
    desk.out.print(site.url)
    if site.token_file is not None:
        desk.note(f"The admin token is in {site.token_file}")
    return None
