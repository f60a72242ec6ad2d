"""The context of a maintenance routine over a ingest, as its scheduler makes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill.maintenance import MaintenanceContext


@contextmanager
def make_context(ingest: IngestFixture, memory: dict[str, Any] | None = None) -> Iterator[MaintenanceContext]:
    environment = ingest.environment
    with ingest.engine() as engine:
        yield MaintenanceContext(
            engine.store,
            environment.machines,
            environment.host,
            ingest.root,
            environment.objects,
            environment.open_store,
            {},
            memory if memory is not None else {},
            resources_of=environment.resources_of,
        )
