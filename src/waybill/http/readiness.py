"""Whether the server can read its store. One thread at a time checks it, and a probe is answered within CHECK_TIMEOUT,
whatever the store does.

    probe -> a check starts, or the running one is joined -> its result, or "not ready" when it takes longer than
    CHECK_TIMEOUT

A probe is answered with yes or no. The log says why it is not ready, once for each change: the messages of a store name
its address and its user, and probes need no token.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from waybill.record import StoreError

log = logging.getLogger("waybill.http")

CHECK_TIMEOUT = 1.0  # seconds that a check may take; supervisors give up after a few


class ReadinessProbe:
    """`check` raises when the store cannot be read. `is_ready` runs on the event loop: the threads of the pool may all
    be waiting for that store.
    """

    def __init__(self, check: Callable[[], None], timeout: float = CHECK_TIMEOUT) -> None:
        self._check = check
        self._timeout = timeout
        self._lock = threading.Lock()  # guards all below
        self._running_check: tuple[Future[bool], float] | None = None  # with its start time
        # what is logged of the present failure: 0 nothing (or there is none), 1 that the store is slow, 2 the error
        self._logged_level = 0

    async def is_ready(self) -> bool:
        result, started_at = self._join_check()
        done, _ = await asyncio.wait(
            [asyncio.wrap_future(result)], timeout=max(0.0, started_at + self._timeout - time.monotonic())
        )
        if done:
            return done.pop().result()
        self._log_change(1, f"the store has not answered within {self._timeout:g} s")
        return False

    def _join_check(self) -> tuple[Future[bool], float]:
        with self._lock:
            if self._running_check is None:
                result: Future[bool] = Future()
                result.set_running_or_notify_cancel()  # from here on no probe can cancel it
                thread = threading.Thread(target=self._run_check, args=(result,), name="waybill-ready", daemon=True)
                thread.start()  # it may fail: then no check is running
                self._running_check = result, time.monotonic()
            return self._running_check

    def _run_check(self, result: Future[bool]) -> None:
        try:
            self._check()
        except StoreError as error:
            ready = False
            self._log_change(2, str(error))
        except Exception as error:  # noqa: BLE001 - a bug, which the log shows; the next check may succeed
            ready = False
            self._log_change(2, f"{type(error).__name__}: {error}", error)
        else:
            ready = True
            self._log_change(0, "")
        with self._lock:
            self._running_check = None
        result.set_result(ready)

    def _log_change(self, level: int, reason: str, error: Exception | None = None) -> None:
        with self._lock:
            before = self._logged_level
            self._logged_level = level if level == 0 else max(level, before)
        if level == 0 and before:
            log.warning("ready again")
        elif level > before:
            log.warning("not ready: %s", reason, exc_info=error)
