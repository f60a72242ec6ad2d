"""Summons: how the main thread of a process learns that it is to end, by a signal or by one of its own parts.

    answers signals -> waits -> told -> a second signal of a person does not wait any more

Python runs a handler in the main thread, between two of its steps: a signal that comes in the moment in which that
thread begins to wait for a lock, or that the system gives to another thread, would not be seen before the next one. So
the main thread waits for a socket, into which the interpreter itself writes at every signal. Handlers take no lock: the
thread that they interrupt may hold it.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from types import FrameType, TracebackType

from waybill.cli.processes import STOP


class Summons:
    """In the main thread; `tell` may be called from any."""

    def __init__(self) -> None:
        self._asked: list[int] = []  # the signals of people and supervisors
        self._asked_by_parent = False
        self._told = False
        self._ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)

    def __enter__(self) -> Summons:
        signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)  # full: the ear is awake anyway
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hear)
        signal.signal(STOP, self._hear_parent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(-1)
        self._ear.close()
        self._mouth.close()

    @property
    def is_asked(self) -> bool:
        """Whether somebody outside asked for the end."""
        return bool(self._asked) or self._asked_by_parent

    def wait(self) -> None:
        while not self.is_asked and not self._told:
            self._ear.recv(64)

    def tell(self) -> None:
        self._told = True
        with suppress(OSError):  # nobody waits any more, or so much was told that one more makes no difference
            self._mouth.send(b"!")

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._asked.append(number)
        if len(self._asked) > 1:
            # asked twice: as after a crash, claims are left to expire, and other processes end with this one
            os._exit(128 + number)

    def _hear_parent(self, number: int, frame: FrameType | None) -> None:
        self._asked_by_parent = True
