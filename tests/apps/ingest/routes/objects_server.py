"""The routes of access and objects on a real server, with a client of each role."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.http.api_fixture import ApiFixture, run_server
from waybill.apps.ingest.routes import access, objects


class ObjectsClient:
    """A server over a ingest. `get` and the like are a reader's unless they say otherwise; role None shows no token."""

    def __init__(self, url: str, tokens: dict[str, str]) -> None:
        self.url, self._tokens = url, tokens
        self._client = httpx2.Client(base_url=url, timeout=120.0)

    def ask(
        self, method: str, path: str, *, role: str | None = "reader", headers: dict[str, str] | None = None, **more: Any
    ) -> Any:
        shown = {"Authorization": f"Bearer {self._tokens[role]}"} if role else {}
        return self._client.request(
            method, path.removeprefix("http://waybill.test"), headers={**shown, **(headers or {})}, **more
        )

    def get(self, path: str, **more: Any) -> Any:
        return self.ask("GET", path, **more)

    def close(self) -> None:
        self._client.close()


@contextmanager
def serve_objects(ingest: IngestFixture) -> Iterator[ObjectsClient]:
    brought = [access.build_access_router(), objects.build_object_router(), objects.build_landing_router()]
    application = dataclasses.replace(ingest.environment.applications[0], routes=lambda environment: brought)
    over = ApiFixture(dataclasses.replace(ingest.environment, applications=(application,)))
    with run_server(over) as url:
        front = ObjectsClient(url, over.tokens)
        try:
            yield front
        finally:
            front.close()
