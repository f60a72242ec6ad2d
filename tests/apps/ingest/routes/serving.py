"""The routes of access and objects on a real server, with a client of each role."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from tests.apps.ingest.site import Site
from tests.http.yard import Site as Served
from tests.http.yard import served
from waybill.apps.ingest.routes import access, landing, objects


class Front:
    """A server over a site. `get` and the like are a reader's unless they say otherwise; role None shows no token."""

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
def serving(site: Site) -> Iterator[Front]:
    brought = [access.router(site.depot), objects.router(site.depot), landing.router()]
    application = dataclasses.replace(site.depot.applications[0], routes=lambda depot: brought)
    over = Served(dataclasses.replace(site.depot, applications=(application,)))
    with served(over) as url:
        front = Front(url, over.tokens)
        try:
            yield front
        finally:
            front.close()
