"""The server on ZooKeeper while ZooKeeper is away: whoever asks is told so soon, and is served again when it is
back.
"""

import threading
from pathlib import Path

import pytest

from tests.http.api_fixture import ApiFixture, make_environment
from tests.servers.process import wait_until
from tests.servers.zookeeper import ZooKeeperServer
from waybill.environment import Environment
from waybill.record import Store

API = "/api/v1"


def test_while_zookeeper_is_away_each_request_is_refused_soon_and_served_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request waits for a new connection, which takes ten seconds or, here, until the test says so."""
    over = threading.Event()
    open_store = Environment.open_store

    def open_store_later(environment: Environment) -> Store:
        assert over.wait(120)
        return open_store(environment)

    with ZooKeeperServer(fast=True) as server:
        api = ApiFixture(make_environment(tmp_path / "data", server.create_chroot()))
        with api.client("admin") as client:
            made = client.post(f"{API}/records/crate", json={"documents": {"label": {}}})
            assert made.status_code == 201
            monkeypatch.setattr(Environment, "open_store", open_store_later)
            server.kill()
            for path in ("holds", "records/crate", "holds"):
                refused = client.get(f"{API}/{path}")
                assert refused.status_code == 503
                assert refused.headers["retry-after"]
                assert refused.json()["error"]["code"] == "unavailable"
            server.start()
            over.set()
            wait_until(lambda: client.get(f"{API}/holds").status_code == 200, "the server to serve again")
            assert client.get(f"{API}/records/crate").json()["records"][0]["id"] == made.json()["id"]
