"""A user's place at the service: an engine, the resources, and shorthands for what most tests do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill.apps.ingest import service
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.submission import Submission
from waybill.engine import Engine

OWNER = "ark:/13030/j2owner"
COLLECTION = "ark:/13030/m5maps"


@dataclass
class ServiceCaller:
    ingest: IngestFixture
    engine: Engine
    resources: IngestResources

    @classmethod
    @contextmanager
    def at(cls, ingest: IngestFixture) -> Iterator[ServiceCaller]:
        with ingest.engine() as engine:
            yield cls(ingest, engine, ingest.resources)

    def furnish(self) -> None:
        service.COLLECTIONS.put(self.engine, {"mnemonic": "maps", "ark": COLLECTION}, who="admin")
        service.PROFILES.put(
            self.engine, {"name": "demo", "owner": OWNER, "collections": [COLLECTION], "priority": 7}, who="admin"
        )

    def submit(
        self, data: BinaryIO | list[bytes] | bytes | None = None, *, who: str = "ada", **fields: Any
    ) -> service.AcceptedDeposit:
        body = [data] if isinstance(data, bytes) else data
        fields = {"profile": "demo", "url": "", **fields}
        if body is not None:
            fields.setdefault("filename", "a.txt")
        return service.submit_deposit(self.engine, self.resources, Submission(**fields), body, who=who)

    def payloads(self) -> list[str]:
        return [info.name for info in self.ingest.environment.objects.list("ingest/payloads")]
