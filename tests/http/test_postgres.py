"""The same application on PostgreSQL: one walk through all of it, and the store going away and coming back."""

from pathlib import Path

from tests.http.api_fixture import ApiFixture, make_environment
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until

API = "/api/v1"


def test_one_walk_on_postgresql(fast_postgres_url: str, tmp_path: Path) -> None:
    api = ApiFixture(make_environment(tmp_path / "data", fast_postgres_url))
    with api.client("admin") as client:
        wait_until(lambda: client.get("/ready").json() == {"ready": True}, "the server to be ready")
        made = client.post(
            f"{API}/records/crate",
            json={"documents": {"label": {"to": "Ada \u0000 é"}}},
            headers={"Idempotency-Key": "k"},
        )
        assert made.status_code == 201
        again = client.post(f"{API}/records/crate", json={"documents": {"label": {}}}, headers={"Idempotency-Key": "k"})
        assert (again.status_code, again.json()["id"]) == (200, made.json()["id"])
        where = f"{API}/records/crate/{made.json()['id']}"
        assert client.get(where).json()["documents"]["label"]["to"] == "Ada \u0000 é"
        assert client.get(f"{API}/records/crate/a%00b").status_code == 404
        assert client.get(f"{API}/records/crate", params={"owner": "a\x00b"}).status_code == 422
        api.fail(api.submit())
        first = client.get(f"{API}/records/crate", params={"limit": 1}).json()
        second = client.get(f"{API}/records/crate", params={"limit": 1, "page_token": first["next"]}).json()
        assert [r["state"] for r in first["records"] + second["records"]] == ["Packing", "Failed"]
        assert client.put(f"{API}/holds/road/north", json={"why": "snow"}).status_code == 200
        assert client.post(f"{where}/scrap", json={"confirmed": True}).json()["record"]["state"] == "Scrapped"
        assert [line["cause"] for line in client.get(f"{where}/history").json()["entries"]] == ["submit", "scrap"]
        assert client.get(f"{API}/counts/crate").json()["total"] == 2
        assert 'waybill_records{kind="crate",state="Scrapped"} 1.0' in client.get("/metrics").text


def test_a_server_whose_database_is_restarted_serves_again_by_itself(tmp_path: Path) -> None:
    with PostgresServer(fast=True) as server:
        api = ApiFixture(make_environment(tmp_path / "data", server.create_database()))
        with api.client("admin") as client:
            made = client.post(f"{API}/records/crate", json={"documents": {"label": {}}})
            assert made.status_code == 201
            server.kill()
            away = client.get("/ready")
            assert away.status_code == 503
            assert away.json() == {"ready": False}, "who asks without a token learns neither the database nor the user"
            refused = client.post(f"{API}/records/crate", json={"documents": {"label": {}}})
            assert refused.status_code == 503
            assert refused.headers["retry-after"]
            assert client.get("/health").status_code == 200
            server.start()
            wait_until(lambda: client.get("/ready").json() == {"ready": True}, "the server to be ready")
            assert client.get(f"{API}/records/crate").json()["records"][0]["id"] == made.json()["id"]
            assert client.get(f"{API}/counts/crate").json()["total"] == 1
