"""What Prometheus reads, and the two questions that a supervisor asks."""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from starlette.testclient import TestClient

from tests.http.api_fixture import ApiFixture
from tests.servers.process import wait_until
from waybill.http import create_app
from waybill.record import StoreUnavailable

API = "/api/v1"


def samples(client: TestClient) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for s in _samples(answer.text)}


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from family.samples


def test_records_are_counted_by_kind_and_state(api: ApiFixture, reader: TestClient) -> None:
    first = api.submit()
    api.submit()
    api.fail(first)
    found = samples(reader)
    assert found["waybill_records", (("kind", "crate"), ("state", "Packing"))] == 1
    assert found["waybill_records", (("kind", "crate"), ("state", "Failed"))] == 1
    assert found["waybill_records", (("kind", "token"), ("state", "Active"))] == 4
    assert found["waybill_oldest_record_seconds", (("kind", "crate"), ("state", "Packing"))] >= 0
    assert ("waybill_oldest_record_seconds", (("kind", "crate"), ("state", "Failed"))) not in found
    assert found["waybill_store_up", ()] == 1


def test_workers_and_marks_are_counted(api: ApiFixture, reader: TestClient) -> None:
    ref = api.submit()
    with api.worker(ref, {f"crate {ref.id}": [1, 2, "boxes", "Packing"]}) as (engine, _):
        engine.set_hold("road/north")
        found = samples(reader)
    assert found["waybill_sessions", ()] == 1
    assert found["waybill_steps_with_progress", ()] == 1
    assert found["waybill_holds", ()] == 1
    assert found["waybill_listeners", ()] == 0


def test_workers_that_are_gone_are_counted_apart(api: ApiFixture, reader: TestClient) -> None:
    with api.engine() as engine:
        for ttl in (60.0, 1e-9, 1e-9):
            engine.store.open_session(host="h", ttl=ttl, about={})
        found = samples(reader)
    assert (found["waybill_sessions", ()], found["waybill_sessions_expired", ()]) == (1, 2)


def test_requests_are_counted_by_route_and_never_by_what_was_sent(api: ApiFixture, reader: TestClient) -> None:
    for n in range(3):
        reader.get(f"{API}/records/crate/secret{n}")
        reader.get(f"/nowhere/secret{n}")
        reader.request(f"SECRET{n}", f"{API}/me")
    text = reader.get("/metrics").text
    assert "secret" not in text.lower()
    found = samples(reader)
    labels = (("method", "GET"), ("route", f"{API}/records/{{kind}}/{{id}}"), ("status", "404"))
    assert found["waybill_http_requests_total", labels] == 3
    assert found["waybill_http_requests_total", (("method", "GET"), ("route", "no route"), ("status", "404"))] == 3
    assert (
        found["waybill_http_request_seconds_count", (("method", "GET"), ("route", f"{API}/records/{{kind}}/{{id}}"))]
        == 3
    )


def test_routes_are_called_as_the_docs_call_them(api: ApiFixture, operator: TestClient) -> None:
    assert operator.put(f"{API}/holds/road/north", json={}).status_code == 200
    assert operator.get("/openapi.json").status_code == 200
    found = samples(operator)
    assert (
        found["waybill_http_requests_total", (("method", "PUT"), ("route", f"{API}/holds/{{name}}"), ("status", "200"))]
        == 1
    )
    assert found["waybill_http_requests_total", (("method", "GET"), ("route", "/openapi.json"), ("status", "200"))] == 1


def test_every_name_begins_with_waybill(api: ApiFixture, reader: TestClient) -> None:
    found = samples(reader)
    assert found
    assert [name for name, _ in found if not name.startswith("waybill_")] == []
    assert [labels for _, labels in found if any(label in ("id", "record") for label, _ in labels)] == []
    assert ("waybill_process_resident_memory_bytes", ()) in found


def test_without_the_store_metrics_still_come_health_is_good_and_ready_is_not(
    api: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.app = create_app(api.environment, open_loopback=True)
    client = api.client()

    def away(*args: object, **kwargs: object) -> None:
        raise StoreUnavailable("The store is out for lunch.")

    with monkeypatch.context() as patch:
        patch.setattr("waybill.stores.open_store", away)
        assert samples(client)["waybill_store_up", ()] == 0
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get(client.get("/").json()["api"]).json()["info"]["title"] == "Waybill"
        ready = client.get("/ready")
        assert ready.status_code == 503
        assert ready.json() == {"ready": False}
        assert ready.headers["retry-after"]
        assert client.get(f"{API}/counts/crate").status_code == 503
    wait_until(lambda: client.get("/ready").json() == {"ready": True}, "the server to be ready")
    assert samples(client)["waybill_store_up", ()] == 1
