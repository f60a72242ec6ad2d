"""`GET /metrics`: what Prometheus reads. All names begin with waybill_; no label is an id, so their number stays small.

Records are counted when they are asked for, from the store's tally. While the store is away `waybill_store_up` is 0,
and the rest is there.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from waybill.http.front import Front
from waybill.record import Store, StoreError

log = logging.getLogger("waybill.http")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
NO_ROUTE = "no route"


class Metrics:
    def __init__(self, front: Front) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(namespace="waybill", registry=self.registry)
        self.requests = Counter(
            "waybill_http_requests",
            "Requests, by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "waybill_http_request_seconds",
            "Seconds until the answer began.",
            ("method", "route"),
            registry=self.registry,
        )
        self.registry.register(StoreCollector(front))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class StoreCollector(Collector):
    def __init__(self, front: Front) -> None:
        self._front = front

    def describe(self) -> list[Metric]:
        return []  # or registering would read the store

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("waybill_listeners", "Streams of live changes.", value=self._front.hub.listeners)
        try:
            with self._front.connections.store() as store:
                found = list(self._of(store))
        except StoreError as error:
            log.warning("metrics without the store: %s", error)
            found = []
        yield GaugeMetricFamily("waybill_store_up", "1 when the store could be read.", value=1.0 if found else 0.0)
        yield from found

    def _of(self, store: Store) -> Iterator[Metric]:
        records = GaugeMetricFamily("waybill_records", "Records, by kind and state.", labels=("kind", "state"))
        oldest = GaugeMetricFamily(
            "waybill_oldest_record_seconds",
            "Age of the oldest record in a working state, since its creation.",
            labels=("kind", "state"),
        )
        now = store.now()
        for kind, machine in sorted(self._front.depot.machines.items()):
            for name, count in sorted(store.tally(kind).items()):
                records.add_metric((kind, name), count)
                state = machine.state(name)
                if count and state is not None and state.works:
                    for record in store.find(kind, state=name, limit=1).records:
                        oldest.add_metric((kind, name), max(0.0, now - record.created))
        sessions = store.sessions()
        steps = sum(len(session.progress) for session in sessions)
        yield records
        yield oldest
        expired = sum(session.expires <= now for session in sessions)
        yield GaugeMetricFamily("waybill_sessions", "Workers that are alive.", value=len(sessions) - expired)
        yield GaugeMetricFamily(
            "waybill_sessions_expired", "Workers that are gone and have not been missed yet.", value=expired
        )
        yield GaugeMetricFamily("waybill_steps_with_progress", "Steps at work that say how far they are.", value=steps)
        yield GaugeMetricFamily("waybill_marks", "Marks in force.", value=len(store.marks()))


class Measured:
    """Counts and times every answer, under the route's own text: what a client sends never becomes a label."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                method = scope["method"] if scope["method"] in METHODS else "other"
                route = _route(scope)
                self._metrics.requests.labels(method, route, message["status"]).inc()
                self._metrics.seconds.labels(method, route).observe(time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, measured)


def _route(scope: Scope) -> str:
    """The route's text as the docs have it: {name}, where the code says {name:path}."""
    route = scope.get("route")
    # only FastAPI's own routes say themselves who they are
    if route is None and (endpoint := scope.get("endpoint")) is not None:
        route = next((each for each in scope["app"].routes if getattr(each, "endpoint", None) is endpoint), None)
    return re.sub(r":\w+}", "}", str(getattr(route, "path", NO_ROUTE)))
