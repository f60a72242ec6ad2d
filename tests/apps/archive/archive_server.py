"""A server of archive in a process of its own, as `waybill up` starts it.

with ArchiveServer(tmp_path) as server:
    server.waybill("archive", "put", str(folder))
    server.kill(); server.start()                    as after a power cut
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import Request, urlopen

from tests.servers.ports import free_port

PATIENCE = 90.0


class ArchiveServer:
    def __init__(self, folder: Path, *, settings: str = "") -> None:
        self.data = folder / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / "waybill.toml").write_text(f'applications = ["archive"]\n[work]\nttl = 2\n{settings}\n')
        self.port = free_port()
        self.log = folder / "server.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "waybill", "up", "--data", str(self.data), "--port", str(self.port), "--open-loopback"],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.call("/health")
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"The server did not start: {self.log.read_text()}") from error
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """All its processes at once, as by the kernel."""
        assert self.process is not None
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def call(self, path: str, body: Any = None) -> Any:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        content = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"{self.url}{path}", content, headers), timeout=PATIENCE) as answer:
            return json.loads(answer.read())

    def waybill(self, *words: str, code: int = 0) -> Any:
        """What a command prints as JSON, run on the data folder of the server."""
        done = subprocess.run(
            [sys.executable, "-m", "waybill", *words, "--data", str(self.data), "--json"],
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if done.stdout else None

    def wait_for(self, request: int, *states: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while True:
            shown: dict[str, Any] = self.call(f"/api/v1/archive/requests/{request}")
            if shown["state"] in states:
                return shown
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
