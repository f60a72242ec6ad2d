"""ThreadSignal: wakes a waiting thread, from another thread or from a signal handler.

threading.Event is not safe in signal handlers: it takes a lock, and the thread that the signal interrupts may hold that
lock. `SimpleQueue.put` is reentrant.
"""

from __future__ import annotations

import queue


class ThreadSignal:
    def __init__(self) -> None:
        self._signals: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        if self._signals.empty():
            self._signals.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; whether it was set since the last wait or clear."""
        try:
            self._signals.get(timeout=timeout)
        except queue.Empty:
            return False
        self.clear()
        return True

    def clear(self) -> None:
        try:
            while True:
                self._signals.get_nowait()
        except queue.Empty:
            return
