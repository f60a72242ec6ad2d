"""Further worker processes beside this one, for a machine with several cores: one Python process keeps one core busy.

    start all -> one that exits by itself is logged and started again after a pause -> stop all with this process

Each is a `waybill work` with the same settings and a session of its own. They end with this process however it ends:
the kernel signals them.
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

# A signal of its own: a supervisor may send SIGTERM to the children too, and two of those mean "at once".
STOP_SIGNAL = signal.SIGUSR1
RESTART_PAUSE = 5.0  # seconds before one that ended is started again
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl
log = logging.getLogger("waybill")


class WorkerProcesses:
    """`stop` may be called from any thread; `run` returns after it."""

    def __init__(self, arguments: Sequence[str], count: int, env: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", "waybill", *arguments]
        self._env = {**os.environ, **env}
        self._count = count
        self._stopped = threading.Event()
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        """Start them and wait for `stop`. The thread that starts them must live as long as they do: the kernel takes
        its end for the end of the parent.
        """
        self._running = [self._start_process() for _ in range(self._count)]
        while not self._stopped.wait(0.2):
            for index, process in enumerate(self._running):
                if process.poll() is not None:
                    log.error(
                        "worker process %d exited with code %d: another is started in %.0f s",
                        process.pid,
                        process.returncode,
                        RESTART_PAUSE,
                    )
                    if self._stopped.wait(RESTART_PAUSE):
                        break
                    try:
                        self._running[index] = self._start_process()
                    # too many processes, or too little memory, for now: it is tried again
                    except OSError as error:
                        log.error("no other worker process can be started: %s", error)
        for process in self._running:
            if process.poll() is None:
                process.send_signal(STOP_SIGNAL)
        log.info("stopping the other worker processes")
        for process in self._running:
            process.wait()

    def stop(self) -> None:
        self._stopped.set()

    def kill(self) -> None:
        """End those that have not stopped in time; their claims are left to expire."""
        for process in self._running:
            if process.poll() is None:
                process.kill()

    def _start_process(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command, env=self._env, stdin=subprocess.DEVNULL, preexec_fn=partial(_end_with_parent, os.getpid())
        )


# Linux only; elsewhere they outlive a parent that was killed, until they are stopped
_prctl = getattr(ctypes.CDLL(None), "prctl", None)


def _end_with_parent(parent: int) -> None:
    if _prctl is not None:
        _prctl(_END_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # the parent was killed before prctl took effect: no signal will come
            os._exit(1)
