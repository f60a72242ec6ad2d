"""`GET /metrics`, for Prometheus. All names begin with waybill_; no label is an id, so their number stays small.

Records are counted at each request, from the store's counts by state. While the store is unavailable `waybill_store_up`
is 0, and the metrics of the process are still there.
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

from waybill.http.api_services import ApiServices
from waybill.record import Store, StoreError

log = logging.getLogger("waybill.http")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
NO_ROUTE = "no route"


class ServerMetrics:
    def __init__(self, services: ApiServices) -> None:
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
            "Seconds until the response started.",
            ("method", "route"),
            registry=self.registry,
        )
        self.registry.register(StoreMetricsCollector(services))

    def render_text(self) -> bytes:
        return generate_latest(self.registry)


class StoreMetricsCollector(Collector):
    def __init__(self, services: ApiServices) -> None:
        self._services = services

    def describe(self) -> list[Metric]:
        return []  # otherwise registering would read the store

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "waybill_listeners", "Streams of live changes.", value=self._services.change_feed.listener_count
        )
        try:
            with self._services.connections.open_store() as store:
                metrics = list(self._collect_from(store))
        except StoreError as error:
            log.warning("the metrics cannot read the store: %s", error)
            metrics = []
        yield GaugeMetricFamily("waybill_store_up", "1 when the store could be read.", value=1.0 if metrics else 0.0)
        yield from metrics

    def _collect_from(self, store: Store) -> Iterator[Metric]:
        records = GaugeMetricFamily("waybill_records", "Records, by kind and state.", labels=("kind", "state"))
        oldest = GaugeMetricFamily(
            "waybill_oldest_record_seconds",
            "Age of the oldest record in a work state, since its creation.",
            labels=("kind", "state"),
        )
        now = store.now()
        for kind, machine in sorted(self._services.environment.machines.items()):
            for name, count in sorted(store.count_by_state(kind).items()):
                records.add_metric((kind, name), count)
                state = machine.find_state(name)
                if count and state is not None and state.works:
                    for record in store.find(kind, state=name, limit=1).records:
                        oldest.add_metric((kind, name), max(0.0, now - record.created))
        sessions = store.list_sessions()
        steps = sum(len(session.progress) for session in sessions)
        yield records
        yield oldest
        expired = sum(session.expires <= now for session in sessions)
        yield GaugeMetricFamily("waybill_sessions", "Workers that are alive.", value=len(sessions) - expired)
        yield GaugeMetricFamily(
            "waybill_sessions_expired", "Workers that are gone and whose claims are not freed yet.", value=expired
        )
        yield GaugeMetricFamily("waybill_steps_with_progress", "Running steps that report progress.", value=steps)
        yield GaugeMetricFamily("waybill_holds", "Holds in force.", value=len(store.list_holds()))


class RequestMetricsMiddleware:
    """Counts and times every response, by the route's own path: nothing that a client sends becomes a label."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at = time.perf_counter()

        async def send_measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                method = scope["method"] if scope["method"] in METHODS else "other"
                route = _route_of(scope)
                self._metrics.requests.labels(method, route, message["status"]).inc()
                self._metrics.seconds.labels(method, route).observe(time.perf_counter() - started_at)
            await send(message)

        await self._app(scope, receive, send_measured)


def _route_of(scope: Scope) -> str:
    """The path of the route as the docs write it: {name}, where the code writes {name:path}."""
    route = scope.get("route")
    # only FastAPI's own routes are in the scope
    if route is None and (endpoint := scope.get("endpoint")) is not None:
        route = next((each for each in scope["app"].routes if getattr(each, "endpoint", None) is endpoint), None)
    return re.sub(r":\w+}", "}", str(getattr(route, "path", NO_ROUTE)))
