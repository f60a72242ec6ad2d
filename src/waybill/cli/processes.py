"""Processes: more workers beside that of this process, for a machine with several cores: one Python process keeps
one of them busy.

    started -> one that ends by itself is said to have, and started again after a pause -> told to stop together with
    this one

Each is a `waybill work` with the same settings and a session of its own. They end with this process however it ends:
the kernel tells them.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial

# from the process that started it. A supervisor may tell all of them too, and two of its signals mean: at once.
STOP = signal.SIGUSR1
PAUSE = 5.0  # seconds before one that ended is started again
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl
log = logging.getLogger("waybill")


class Processes:
    """`stop` may be called from any thread, `run` returns after it."""

    def __init__(self, arguments: Sequence[str], count: int, env: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", "waybill", *arguments]
        self._env = {**os.environ, **env}
        self._count = count
        self._stopped = threading.Event()
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        """In the thread that starts them, which must live as long as they do: the kernel takes its end for that of
        the parent.
        """
        self._running = [self._start() for _ in range(self._count)]
        while not self._stopped.wait(0.2):
            for place, process in enumerate(self._running):
                if process.poll() is not None:
                    log.error(
                        "worker process %d ended with code %d: another is started in %.0f s",
                        process.pid,
                        process.returncode,
                        PAUSE,
                    )
                    if self._stopped.wait(PAUSE):
                        break
                    try:
                        self._running[place] = self._start()
                    # too many processes, or too little memory, at the moment: it is tried again
                    except OSError as error:
                        log.error("no other worker process can be started: %s", error)
        for process in self._running:
            if process.poll() is None:
                process.send_signal(STOP)
        log.info("the other worker processes are told to stop")
        for process in self._running:
            process.wait()

    def stop(self) -> None:
        self._stopped.set()

    def kill(self) -> None:
        """Those that have not stopped in time; their claims are left to expire."""
        for process in self._running:
            if process.poll() is None:
                process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command, env=self._env, stdin=subprocess.DEVNULL, preexec_fn=partial(_end_with_parent, os.getpid())
        )


# Linux; elsewhere they outlive a parent that was killed, until they are stopped
_prctl = getattr(ctypes.CDLL(None), "prctl", None)


def _end_with_parent(parent: int) -> None:
    if _prctl is not None:
        _prctl(_END_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it was killed a moment ago, and nobody will tell
            os._exit(1)
