"""How a process that serves or works learns that it must stop: by a signal, from a caller, or from one of its parts.

    install handlers -> wait -> woken by a signal, a caller or a part -> a second signal ends the process at once
    -> SIGTERM and SIGINT are handled as before

Python runs a handler in the main thread, between two bytecodes: a signal that arrives just as that thread begins to
wait for a lock, or that the system delivers to another thread, would not be handled before the next one. So the main
thread waits on a socket, into which the interpreter itself writes at every signal. Handlers take no lock: the thread
that they interrupt may hold it. In another thread than the main one no handler can be installed: only a caller stops it.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from waybill.runtime.worker_processes import STOP_SIGNAL


class StopSignals:
    """`request_stop` and `wake` may be called from any thread."""

    def __init__(self) -> None:
        self._received_signals: list[int] = []  # from people and supervisors
        self._is_stopped_by_caller = False
        self._is_woken = False
        self._previous_handlers: dict[int, Any] = {}
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        self._wakeup_writer.setblocking(False)

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            # a full buffer: the reader wakes anyway
            signal.set_wakeup_fd(self._wakeup_writer.fileno(), warn_on_full_buffer=False)
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous_handlers[number] = signal.signal(number, self._handle_signal) or signal.SIG_DFL
            # never restored: the parent may send it as late as it likes, and by default it would kill this process
            signal.signal(STOP_SIGNAL, self._handle_parent_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous_handlers:
            for number, handler in self._previous_handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(-1)
        self._wakeup_reader.close()
        self._wakeup_writer.close()

    @property
    def is_stop_requested(self) -> bool:
        """Whether a signal or a caller asked for the end."""
        return bool(self._received_signals) or self._is_stopped_by_caller

    def wait(self) -> None:
        while not self.is_stop_requested and not self._is_woken:
            self._wakeup_reader.recv(64)

    def request_stop(self) -> None:
        self._is_stopped_by_caller = True
        self.wake()

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
        self._is_stopped_by_caller = True
