"""How the main thread of a process learns that it must stop: by a signal, or from one of its own parts.

    install handlers -> wait -> woken by a signal or a part -> a second signal ends the process at once

Python runs a handler in the main thread, between two bytecodes: a signal that arrives just as that thread begins to
wait for a lock, or that the system delivers to another thread, would not be handled before the next one. So the main
thread waits on a socket, into which the interpreter itself writes at every signal. Handlers take no lock: the thread
that they interrupt may hold it.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from types import FrameType, TracebackType

from waybill.cli.worker_processes import STOP_SIGNAL


class StopSignals:
    """Used in the main thread; `wake` may be called from any."""

    def __init__(self) -> None:
        self._received_signals: list[int] = []  # from people and supervisors
        self._is_stopped_by_parent = False
        self._is_woken = False
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        self._wakeup_writer.setblocking(False)

    def __enter__(self) -> StopSignals:
        signal.set_wakeup_fd(self._wakeup_writer.fileno(), warn_on_full_buffer=False)  # full: the reader wakes anyway
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle_signal)
        signal.signal(STOP_SIGNAL, self._handle_parent_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(-1)
        self._wakeup_reader.close()
        self._wakeup_writer.close()

    @property
    def is_stop_requested(self) -> bool:
        """Whether a signal asked for the end."""
        return bool(self._received_signals) or self._is_stopped_by_parent

    def wait(self) -> None:
        while not self.is_stop_requested and not self._is_woken:
            self._wakeup_reader.recv(64)

    def wake(self) -> None:
        self._is_woken = True
        with suppress(OSError):  # nothing waits any more, or the buffer is full and wakes it anyway
            self._wakeup_writer.send(b"!")

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        self._received_signals.append(number)
        if len(self._received_signals) > 1:
            # As after a crash, claims are left to expire, and the other processes end with this one.
            os._exit(128 + number)

    def _handle_parent_signal(self, number: int, frame: FrameType | None) -> None:
        self._is_stopped_by_parent = True
