"""Can the server do its work? Asked of the store by one thread at a time, and answered within PATIENCE, whatever the
store does.

    asked -> a check begins, or the one under way is joined -> its answer, or "not ready" when it has taken longer than
    PATIENCE

Whoever probes learns yes or no. Why it is not ready stands in the log, once for each change: a store's sentences name
its address and its user, and anybody may probe.
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

PATIENCE = 1.0  # seconds that a check may take; supervisors give up after a few


class Readiness:
    """`check` raises when the store cannot be read.

    Asked on the event loop, for the pool's threads may all wait for that store.
    """

    def __init__(self, check: Callable[[], None], patience: float = PATIENCE) -> None:
        self._check = check
        self._patience = patience
        self._lock = threading.Lock()  # guards all below
        self._under_way: tuple[Future[bool], float] | None = None  # with the time of its begin
        # of the present trouble: 0 nothing (or there is none), 1 that the store is slow, 2 what is wrong
        self._said = 0

    async def ask(self) -> bool:
        answer, began = self._join()
        done, _ = await asyncio.wait(
            [asyncio.wrap_future(answer)], timeout=max(0.0, began + self._patience - time.monotonic())
        )
        if done:
            return done.pop().result()
        self._say(1, f"the store has not answered within {self._patience:g} s")
        return False

    def _join(self) -> tuple[Future[bool], float]:
        with self._lock:
            if self._under_way is None:
                answer: Future[bool] = Future()
                answer.set_running_or_notify_cancel()  # from here on nobody who asks can cancel it
                thread = threading.Thread(target=self._run, args=(answer,), name="waybill-ready", daemon=True)
                thread.start()  # it may fail: nothing is under way then
                self._under_way = answer, time.monotonic()
            return self._under_way

    def _run(self, answer: Future[bool]) -> None:
        try:
            self._check()
        except StoreError as error:
            ready = False
            self._say(2, str(error))
        except Exception as error:  # noqa: BLE001 - a mistake, which the log shows; the next check may go well
            ready = False
            self._say(2, f"{type(error).__name__}: {error}", error)
        else:
            ready = True
            self._say(0, "")
        with self._lock:
            self._under_way = None
        answer.set_result(ready)

    def _say(self, level: int, why: str, error: Exception | None = None) -> None:
        with self._lock:
            before = self._said
            self._said = level if level == 0 else max(level, before)
        if level == 0 and before:
            log.warning("ready again")
        elif level > before:
            log.warning("not ready: %s", why, exc_info=error)
