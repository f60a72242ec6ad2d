"""A server of ingest on loopback, with a token of each role, and the two clients of these tests: httpx and the real
curl.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from fastapi import FastAPI

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.service.service_caller import ServiceCaller
from tests.http.api_fixture import run_server
from waybill.http import create_app
from waybill.tokens import ROLES, Role, issue

API = "/api/v1/ingest"


class CurlResponse(NamedTuple):
    status: int
    kind: str
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class IngestServer:
    def __init__(self, ingest: IngestFixture, **options: Any) -> None:
        self.ingest = ingest
        self.environment = ingest.environment
        self.app: FastAPI = create_app(ingest.environment, **options)
        self.url = ""
        with ServiceCaller.at(ingest) as desk:
            desk.furnish()
            self.tokens = {role: issue(desk.engine, f"the {role}", role).token for role in ROLES}

    @contextmanager
    def open(self) -> Iterator[IngestServer]:
        with run_server(self) as self.url:  # type: ignore[arg-type]
            yield self

    def client(self, role: Role | None = "admin") -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=120)

    def curl(self, *args: str, role: Role | None = "submitter", path: str, scheme: str = "bearer") -> CurlResponse:
        """As people type it. `scheme`: how the token is sent."""
        sent: list[str] = []
        if role is not None:
            token = self.tokens[role]
            sent = ["-u", f"ann:{token}"] if scheme == "basic" else ["-H", f"Authorization: Bearer {token}"]
        command = [
            "curl",
            "-sS",
            "--max-time",
            "120",
            "-w",
            "\n%{http_code} %{content_type}",
            *sent,
            *args,
            f"{self.url}{path}",
        ]
        done = subprocess.run(command, capture_output=True, check=True)
        body, _, told = done.stdout.rpartition(b"\n")
        status, _, kind = told.decode().partition(" ")
        return CurlResponse(int(status), kind, body)

    def payloads(self) -> list[str]:
        return [info.name for info in self.environment.objects.list("ingest/payloads")]

    def batch(self, batch_id: str) -> Any:
        with self.ingest.engine() as engine:
            return engine.store.get_by_idempotency_key("batch", batch_id)

    def count(self, kind: str = "batch") -> int:
        with self.ingest.engine() as engine:
            return sum(engine.store.count_by_state(kind).values())


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path
