"""Stir: wakes a thread that waits, from another thread or from a signal handler.

An Event is not for handlers: it takes a lock, and the thread that the signal interrupts may be the one that holds it.
`SimpleQueue.put` may be interrupted by itself.
"""

from __future__ import annotations

import queue


class Stir:
    def __init__(self) -> None:
        self._stirs: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        if self._stirs.empty():
            self._stirs.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it was set since it was last waited for or cleared."""
        try:
            self._stirs.get(timeout=timeout)
        except queue.Empty:
            return False
        self.clear()
        return True

    def clear(self) -> None:
        try:
            while True:
                self._stirs.get_nowait()
        except queue.Empty:
            return
