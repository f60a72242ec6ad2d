"""What stands before every route: names, origins, headers."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.http.api_fixture import ApiFixture, make_environment
from waybill.http.browser_security import is_loopback_name

API = "/api/v1"


OURS = ["127.0.0.1:8700", "127.0.0.1", "localhost", "LOCALHOST:9", "[::1]:8700", "127.8.9.1", "waybill.localhost:1"]
THEIRS = ["evil.example", "evil.example:8700", "127.0.0.1.evil.example", "", "[", "10.0.0.1", "localhost.evil.example"]


@pytest.mark.parametrize("host", OURS)
def test_a_server_on_loopback_answers_to_its_own_names(reader: TestClient, host: str) -> None:
    assert reader.get(f"{API}/me", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", THEIRS)
def test_a_name_that_was_rebound_to_us_is_refused(reader: TestClient, host: str) -> None:
    for path in (f"{API}/me", "/health", "/openapi.json", "/nowhere"):
        refused = reader.get(path, headers={"Host": host})
        assert refused.status_code == 421
        assert refused.json()["error"]["code"] == "unknown-host"


def test_names_can_be_added_and_a_public_server_takes_any(tmp_path: Path) -> None:
    api = ApiFixture(make_environment(tmp_path / "one"), hosts=["environment.example"])
    with api.client("reader") as client:
        assert client.get(f"{API}/me", headers={"Host": "environment.example"}).status_code == 200
        assert client.get(f"{API}/me", headers={"Host": "other.example"}).status_code == 421
    api = ApiFixture(make_environment(tmp_path / "two"), hosts=["*"])
    with api.client("reader") as client:
        assert client.get(f"{API}/me", headers={"Host": "other.example"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://127.0.0.1:8700", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),  # another port of this machine
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}, 403),
    ],
)
def test_a_page_of_another_site_cannot_change_anything(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    api = ApiFixture(make_environment(tmp_path / "data"), open_loopback=True)
    with api.client() as client:
        assert client.put(f"{API}/holds/road/north", headers=headers).status_code == status
        assert len(client.get(f"{API}/holds").json()["holds"]) == (1 if status == 200 else 0)


def test_answers_stay_where_they_belong(reader: TestClient) -> None:
    for path in (f"{API}/me", "/nowhere", "/health"):
        answer = reader.get(path, headers={"Origin": "https://evil.example"})
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert reader.options(f"{API}/records/crate", headers={"Origin": "https://evil.example"}).status_code == 405


def test_loopback_names() -> None:
    assert all(map(is_loopback_name, ("localhost", "a.localhost", "127.0.0.1", "127.1.2.3", "::1")))
    assert not any(map(is_loopback_name, ("", "example.org", "localhost.example.org", "128.0.0.1", "::2", "0.0.0.0")))


@pytest.mark.parametrize(
    "path",
    ["holds/road/a%20b%0A", "holds/a%0Ab", "holds/%0Aa", "holds%0A", "records/crate/x/scrap%0A", "records/box%0A"],
)
def test_a_line_break_in_a_path_leads_nowhere_wherever_it_stands(admin: TestClient, path: str) -> None:
    """A route's end fits before a last line break too, which then was dropped: what was named is not what would be
    changed.
    """
    for method in ("GET", "PUT", "POST", "DELETE"):
        refused = admin.request(method, f"{API}/{path}", json={} if method in ("PUT", "POST") else None)
        assert refused.status_code == 404, (method, path)
        assert refused.json()["error"]["code"] == "no-route"
        assert "line break" in refused.json()["error"]["message"]
    assert admin.get(f"{API}/holds").json()["holds"] == []
    assert admin.put(f"{API}/holds/road/a%20b", json={}).status_code == 200


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
def test_open_loopback_is_for_our_own_pages_and_for_links(tmp_path: Path, site: str) -> None:
    api = ApiFixture(make_environment(tmp_path / "data"), open_loopback=True)
    with api.client() as client:
        assert client.get(f"{API}/me", headers={"Sec-Fetch-Site": site}).status_code == 401
        link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
        assert client.get(f"{API}/me", headers=link).status_code == 200
        assert client.get(f"{API}/me", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
