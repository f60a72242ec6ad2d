"""A server of compute in a process of its own, as `waybill up` starts it, and plain HTTP requests to it.

with ComputeServer(tmp_path) as server:
    server.put("/alice/stor/a.txt", b"hello")
    server.kill(); server.start()                    as after a power cut
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from tests.servers.ports import free_port

PATIENCE = 60.0


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["code"])

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def names(self) -> list[str]:
        return [line["name"] for line in self.lines]


class ComputeServer:
    def __init__(self, folder: Path, *, store: str = "", settings: str = "", open_loopback: bool = True) -> None:
        self.data = folder / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / "waybill.toml").write_text(
            f'applications = ["compute"]\n{settings}\n' if "applications" not in settings else settings
        )
        self.port = free_port()
        self._arguments = ["--data", str(self.data), "--port", str(self.port)]
        self._arguments += ["--store", store] if store else []
        self.store = store
        self._arguments += ["--open-loopback"] if open_loopback else []
        self.log = folder / "server.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "waybill", "up", *self._arguments],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self.request("GET", "/health").status == 200:
                    return
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"The server did not start: {self.log.read_text()}") from error
                time.sleep(0.05)

    def kill(self) -> None:
        """All its processes at once, as by the kernel."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"The server did not stop: {self.log.read_text()[-2000:]}") from None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def waybill(self, *words: str, code: int = 0, text: str = "") -> str:
        """What a command prints, run on the data folder of the server."""
        arguments = [*words, "--data", str(self.data), *(["--store", self.store] if self.store else [])]
        done = subprocess.run(
            [sys.executable, "-m", "waybill", *arguments], input=text, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Response:
        connection = self.connect()
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, headers, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Response:
        return self.request("GET", path, headers=_to_header_names(headers))

    def head(self, path: str, **headers: str) -> Response:
        return self.request("HEAD", path, headers=_to_header_names(headers))

    def delete(self, path: str) -> Response:
        return self.request("DELETE", path)

    def put(self, path: str, body: Any = b"", **headers: str) -> Response:
        return self.request("PUT", path, body, _to_header_names(headers))

    def make_directory(self, path: str) -> Response:
        return self.put(path, content_type="application/json; type=directory")

    def link(self, path: str, source: str) -> Response:
        return self.put(path, content_type="application/json; type=link", location=source)


def _to_header_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


class JobClient:
    """Jobs of one account, over HTTP as Manta's clients send them."""

    def __init__(self, server: ComputeServer, account: str = "alice") -> None:
        self.server, self.account = server, account

    def create(self, *phases: dict[str, Any], name: str = "", **more: Any) -> str:
        body = json.dumps({"name": name, "phases": list(phases), **more})
        answer = self.server.request(
            "POST", f"/{self.account}/jobs", body, {"content-type": "application/json; type=job"}
        )
        assert answer.status == 201, answer.body
        return answer.headers["location"].rpartition("/")[2]

    def path(self, job: str, *names: str) -> str:
        return "/".join((f"/{self.account}/jobs/{job}", *names))

    def add(self, job: str, keys: list[str], *, end: bool = False) -> None:
        query = "?end=true" if end else ""
        answer = self.server.request(
            "POST", self.path(job, f"live/in{query}"), "\r\n".join(keys), {"content-type": "text/plain"}
        )
        assert answer.status == 204, answer.body

    def end(self, job: str) -> None:
        assert self.server.request("POST", self.path(job, "live/in/end"), b"{}").status == 202

    def cancel(self, job: str) -> None:
        assert self.server.request("POST", self.path(job, "live/cancel"), b"{}").status == 202

    def status(self, job: str) -> dict[str, Any]:
        return dict(json.loads(self.server.get(self.path(job, "live/status")).body))

    def wait(self, job: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """Until the job is done."""
        deadline = time.monotonic() + seconds
        while (status := self.status(job))["state"] != "done":
            if time.monotonic() > deadline:
                raise AssertionError(f"not done: {status}\n{self.server.log.read_text()[-3000:]}")
            time.sleep(0.05)
        return status

    def run(self, phases: list[dict[str, Any]], keys: list[str], **more: Any) -> str:
        """The id of a job that has run to its end."""
        job = self.create(*phases, **more)
        self.add(job, keys, end=True)
        self.wait(job)
        return job

    def lines(self, job: str, name: str) -> list[str]:
        return self.server.get(self.path(job, "live", name)).body.decode().splitlines()

    def errors(self, job: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines(job, "err")]

    def outputs(self, job: str) -> list[bytes]:
        """The contents of all outputs."""
        return [self.server.get(quote(key)).body for key in self.lines(job, "out")]
