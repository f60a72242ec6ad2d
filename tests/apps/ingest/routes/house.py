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

from tests.apps.ingest.service.desk import Desk
from tests.apps.ingest.site import Site
from tests.http.yard import served
from waybill.http import create_app
from waybill.tokens import ROLES, issue

API = "/api/v1/ingest"


class Curled(NamedTuple):
    status: int
    kind: str
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class House:
    def __init__(self, site: Site, **options: Any) -> None:
        self.site = site
        self.depot = site.depot
        self.app: FastAPI = create_app(site.depot, **options)
        self.url = ""
        with Desk.at(site) as desk:
            desk.furnish()
            self.tokens = {role: issue(desk.engine, f"the {role}", role).token for role in ROLES}

    @contextmanager
    def open(self) -> Iterator[House]:
        with served(self) as self.url:  # type: ignore[arg-type]
            yield self

    def client(self, role: str | None = "admin") -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=120)

    def curl(self, *args: str, role: str | None = "submitter", path: str, scheme: str = "bearer") -> Curled:
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
        return Curled(int(status), kind, body)

    def payloads(self) -> list[str]:
        return [info.name for info in self.depot.objects.list("ingest/payloads")]

    def batch(self, batch_id: str) -> Any:
        with self.site.engine() as engine:
            return engine.store.requested("batch", batch_id)

    def count(self, kind: str = "batch") -> int:
        with self.site.engine() as engine:
            return sum(engine.store.tally(kind).values())


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path
