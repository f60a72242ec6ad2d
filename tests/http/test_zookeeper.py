"""The server on ZooKeeper while ZooKeeper is away: whoever asks is told so soon, and is served again when it is
back.
"""

import time
from pathlib import Path

from tests.http.api_fixture import ApiFixture, make_environment
from tests.servers.process import wait_until
from tests.servers.zookeeper import ZooKeeperServer

API = "/api/v1"
SOON = 5.0  # seconds, on a busy machine; a new connection alone is waited for ten


def test_while_zookeeper_is_away_each_request_is_refused_soon_and_served_when_it_is_back(tmp_path: Path) -> None:
    with ZooKeeperServer() as server:
        api = ApiFixture(make_environment(tmp_path / "data", server.create_chroot()))
        with api.client("admin") as client:
            made = client.post(f"{API}/records/crate", json={"documents": {"label": {}}})
            assert made.status_code == 201
            server.kill()
            for path in ("holds", "records/crate", "holds"):
                began = time.monotonic()
                refused = client.get(f"{API}/{path}")
                took = time.monotonic() - began
                assert refused.status_code == 503
                assert refused.headers["retry-after"]
                assert refused.json()["error"]["code"] == "unavailable"
                assert took < SOON, f"{path}: {took:.1f} s"
            server.start()
            wait_until(lambda: client.get(f"{API}/holds").status_code == 200, "the server to serve again")
            assert client.get(f"{API}/records/crate").json()["records"][0]["id"] == made.json()["id"]
