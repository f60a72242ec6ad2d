"""A server process under a test's control: started, waited for, stopped, killed, paused; never left behind.

**Readiness** is a condition that is polled up to a deadline; nothing sleeps and hopes. A server that ends early or is not ready in time
raises ServerFailed with the end of its log.

**No orphans**: the kernel itself sends a signal to the server when the thread that started it dies (prctl PR_SET_PDEATHSIG, set by
util-linux's `setpriv` so that no Python runs between fork and exec). That thread must not be one that a test ends, so one thread starts
all servers and lives as long as the process; however the process dies, SIGKILL included, its servers die with it.

**Ctrl-C** reaches only the tests: each server has a session of its own, and the fixtures stop them in order.
"""

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.servers.accounts import Account

_launcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="server-launcher")


class NotInstalled(Exception):
    """A server that a test needs is not installed."""

    def __init__(self, what: str, packages: str) -> None:
        super().__init__(
            f"{what} is not installed, and this test needs the real one. Run `tools/system-packages` as root, or install: {packages}"
        )


class ServerFailed(Exception):
    """A server did not become ready, or did not stop, in time."""


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = 120.0, every: float = 0.01) -> None:
    """Return as soon as the condition holds; raise TimeoutError, naming what was waited for, when it does not in
    time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {seconds:g} s for {what}, in vain.")
        time.sleep(every)


def program(name: str, *places: Path, packages: str) -> str:
    """The path of a program, from the given folders or PATH; NotInstalled with what to install when there is none."""
    for place in places:
        if (place / name).exists():
            return str(place / name)
    found = shutil.which(name)
    if found is None:
        raise NotInstalled(f"The program {name}", packages)
    return found


class Process:
    """One server process that can be started again after it stopped or was killed."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        ready: Callable[[], bool],
        stop_signal: signal.Signals = signal.SIGTERM,
        orphan_signal: signal.Signals = signal.SIGKILL,
        account: Account | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = list(command)
        self._folder = folder
        self._ready = ready
        self._stop_signal = stop_signal
        self._orphan_signal = orphan_signal
        self._account = account
        self._environment = environment
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        if self._child is None:
            raise ServerFailed(f"{self.name} has not been started.")
        return self._child.pid

    def start(self, *, seconds: float = 120.0, wait: bool = True) -> None:
        """Start, and wait until it is ready unless told not to (the members of an ensemble become ready together)."""
        if self.running:
            raise ServerFailed(f"{self.name} is running already.")
        self._child = _launcher.submit(self._launch).result()
        if wait:
            self.wait_ready(seconds=seconds)

    def wait_ready(self, *, seconds: float = 120.0) -> None:
        def ready_or_ended() -> bool:
            return not self.running or self._ready()

        try:
            wait_until(ready_or_ended, f"{self.name} to be ready", seconds=seconds)
        except TimeoutError as late:
            self.kill()
            raise ServerFailed(f"{late}\n{self.log_tail()}") from None
        if not self.running:
            code = self._child.returncode if self._child else None
            raise ServerFailed(f"{self.name} ended with code {code} before it was ready.\n{self.log_tail()}")

    def stop(self, *, seconds: float = 120.0, how: signal.Signals | None = None) -> None:
        """Ask it to stop and wait until it has; a server that does not is killed, and that is an error."""
        if self._child is None:
            return
        if self.running:
            self._child.send_signal(signal.SIGCONT)  # a paused process would never see the next one
            self._child.send_signal(how or self._stop_signal)
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(
                f"{self.name} did not stop within {seconds:g} s and was killed.\n{self.log_tail()}"
            ) from None

    def kill(self) -> None:
        """SIGKILL: the process is gone when this returns, with whatever it had not written."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def pause(self) -> None:
        """SIGSTOP: alive to the kernel, silent to its peers; what a long collection of garbage or a stolen CPU looks
        like.
        """
        assert self._child is not None
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._child is not None
        self._child.send_signal(signal.SIGCONT)

    def log_tail(self, lines: int = 30) -> str:
        with contextlib.suppress(FileNotFoundError):
            text = self.log.read_text(errors="replace").splitlines()
            return f"The end of its log ({self.log.name}):\n" + "\n".join(f"    {line}" for line in text[-lines:])
        return "It wrote no log."

    def _launch(self) -> subprocess.Popen[bytes]:
        setpriv = program("setpriv", packages="util-linux")
        guarded = [setpriv, "--pdeathsig", self._orphan_signal.name.removeprefix("SIG"), "--", *self._command]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                guarded,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
                user=self._account.uid if self._account else None,
                group=self._account.gid if self._account else None,
                extra_groups=[] if self._account else None,
            )
